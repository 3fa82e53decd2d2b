-- ends by: instructions
local text, pattern = ("a"):rep(1000000), "^[" .. ("b"):rep(1000) .. "a]*"
for _ = 1, 100 do text:find(pattern) end
