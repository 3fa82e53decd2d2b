-- All keys are constant names, so the position of every key is known.
local model = {
  name = "llama",
  n_layers = 2,
  dim = 64,
  n_heads = 4,
}
model.max_seq_len = 2 ^ 5
return {
  run = {name = "computed", tags = {"a", "b"}},
  model = model,
  data = {format = "text", train = {"none.txt"}, ["validation_fraction"] = 0.25},
  strategy = {name = "ddp", bucket_cap_mb = 4},
  optimizer = {
    lr = 1e-3 * 4,
    groups = {{pattern = "*.bias", lr = 0.5}},
  },
  train = {max_steps = 10 // 3, global_batch_size = 8},
}
