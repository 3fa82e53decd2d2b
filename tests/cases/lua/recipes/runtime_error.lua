local function pick(options)
  return options.best.lr
end

return {optimizer = {lr = pick({})}}
