-- ends by: script cannot change a protected metatable
setmetatable(math, {})
