-- ends by: script attempt to index a boolean value (local 'meta')
local meta = getmetatable("")
meta.__index = function() end
