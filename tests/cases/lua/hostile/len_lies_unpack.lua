-- ends by: script too many results to unpack
return table.unpack(setmetatable({}, {__len = function() return 1 << 60 end}))
