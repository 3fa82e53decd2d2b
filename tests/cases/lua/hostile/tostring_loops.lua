-- ends by: instructions
error(setmetatable({}, {__tostring = function() while true do end end}))
