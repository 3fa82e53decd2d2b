-- ends by: instructions
coroutine.wrap(function()
  local guard <close> = setmetatable({}, {__close = function() while true do end end})
  while true do end
end)()
