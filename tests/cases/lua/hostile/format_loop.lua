-- ends by: instructions
local s = ("x"):rep(60000)
while true do local t = string.format("%s", s) end
