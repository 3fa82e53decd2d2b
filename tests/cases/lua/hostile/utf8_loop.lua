-- ends by: instructions
local s = ("x"):rep(60000)
while true do utf8.len(s) end
