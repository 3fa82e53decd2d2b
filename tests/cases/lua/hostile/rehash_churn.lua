-- ends by: instructions
local t = {}
local i = 0
while true do i = i + 1; t[i % 4096] = nil; t["k" .. i] = true; t["k" .. (i - 3000)] = nil end
