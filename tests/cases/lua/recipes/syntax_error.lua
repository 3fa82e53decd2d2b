return {
  model = {dim = 8
  train = {},
}
