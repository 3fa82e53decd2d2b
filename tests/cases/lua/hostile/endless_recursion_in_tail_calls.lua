-- ends by: instructions
local function f() return f() end
f()
