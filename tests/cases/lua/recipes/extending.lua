local base = extend "base.toml"
local recipe = {model = {}, train = {}}
for _, key in ipairs {"dim", "max_seq_len"} do
  recipe.model[key] = base.model[key] * 4
end
recipe.train.max_steps = base.train.max_steps + 1
return recipe
