-- ends by: script attempt to compare two nil values
table.sort(setmetatable({}, {__len = function() return 1 << 30 end}))
