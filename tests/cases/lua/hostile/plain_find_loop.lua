-- ends by: instructions
local s, p = ("a"):rep(60000), ("a"):rep(30000) .. "b"
while true do s:find(p, 1, true) end
