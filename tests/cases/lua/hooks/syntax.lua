return {
  setup = function(ctx)
    if ctx then
  end,
}
