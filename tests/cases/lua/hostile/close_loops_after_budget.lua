-- ends by: instructions
local guard <close> = setmetatable({}, {__close = function() while true do end end})
while true do end
