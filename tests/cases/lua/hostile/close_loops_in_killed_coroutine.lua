-- ends by: instructions
kept = coroutine.create(function()
  local guard <close> = setmetatable({}, {__close = function() while true do end end})
  while true do end
end)
coroutine.resume(kept)
coroutine.close(kept)
