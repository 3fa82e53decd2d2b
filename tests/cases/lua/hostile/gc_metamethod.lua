-- ends by: script metatables with __gc are not available in the sandbox; use __close
setmetatable({}, {__gc = function() while true do end end})
