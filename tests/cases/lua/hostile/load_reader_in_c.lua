-- ends by: script reader function must return a string
return load(math.random)
