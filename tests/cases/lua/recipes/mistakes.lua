local recipe = {
  model = {
    name = "gpt",
    n_layrs = 2,
    n_layers = 2, dim = 30, n_heads = 4, max_seq_len = 8,
  },
  data = {format = "txt", train = {"none.txt"}},
}
recipe.train = {max_steps = "many"}
recipe.optimiser = {lr = 1}
return recipe
