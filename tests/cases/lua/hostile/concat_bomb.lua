-- ends by: memory
local parts = {}
for i = 1, 4000 do parts[i] = ("x"):rep(1000) end
return table.concat(parts)
