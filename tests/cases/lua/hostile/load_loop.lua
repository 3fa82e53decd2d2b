-- ends by: instructions
local text = ("x = 1 "):rep(5000)
while true do load(text) end
