-- ends by: instructions
local t = setmetatable({}, {__mode = "k"})
while true do t[{}] = {} end
