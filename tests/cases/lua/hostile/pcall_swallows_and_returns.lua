-- ends by: instructions
pcall(function() while true do end end)
return "went on"
