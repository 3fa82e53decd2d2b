-- ends by: instructions
local function deeper(n)
  return coroutine.wrap(function()
    if n > 0 then deeper(n - 1) end
    while true do pcall(function() while true do end end) end
  end)()
end
deeper(30)
