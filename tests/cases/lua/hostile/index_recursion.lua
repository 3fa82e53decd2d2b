-- ends by: script C stack overflow
local t
t = setmetatable({}, {__index = function(_, k) return t[k] + 1 end})
return t.x
