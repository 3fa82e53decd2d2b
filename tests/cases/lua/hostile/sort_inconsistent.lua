-- ends by: instructions
local t = {}
for i = 1, 10000 do t[i] = i end
while true do table.sort(t, function() return true end) end
