-- ends by: script chunk too long
return load(function() return "x = 1 " end)
