extend "base.toml"

local function sized(width)
  local model = {name = "gpt"}
  model["d" .. "im"] = width
  model.n_heads = 4
  return model
end

local train = {}
for _, key in ipairs({"max_steps", "log_every_n_steps"}) do
  train[key] = 7
end

return {
  model = sized(32),
  ["train"] = train,
}
