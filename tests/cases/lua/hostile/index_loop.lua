-- ends by: script '__index' chain too long; possible loop
local t = {}
setmetatable(t, {__index = t})
t.__index = t
local m = {}
m.__index = m
setmetatable(m, m)
return m.x
