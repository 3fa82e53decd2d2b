-- ends by: time
local function f(...) while true do select(2, ...) end end
f(table.unpack({}, 1, 150000))
