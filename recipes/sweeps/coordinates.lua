-- Coordinate search: changes one key at a time. It tries both neighbouring values in parallel, keeps the better one, and
-- ends when no change helps.
local keys = {
  {name = "optimizer.lr", values = {1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2}},
  {name = "lr_scheduler.warmup_steps", values = {0, 5, 10, 20}},
  {name = "optimizer.weight_decay", values = {0.0, 0.01, 0.1}},
}

local function run(sweep)
  local at, best = {2, 1, 2}, math.huge
  local function point(changed, index)
    local parameters = {}
    for i, key in ipairs(keys) do parameters[key.name] = key.values[i == changed and index or at[i]] end
    return parameters
  end
  best = sweep:try(point()).value or best
  local improved = true
  while improved do
    improved = false
    for i, key in ipairs(keys) do
      local from, tried = at[i], {}
      for _, index in ipairs{from - 1, from + 1} do
        if key.values[index] then tried[index] = sweep:start(point(i, index)) end
      end
      for _, index in ipairs{from - 1, from + 1} do
        local value = tried[index] and sweep:wait(tried[index]).value
        if value and value < best then best, at[i], improved = value, index, true end
      end
    end
  end
end

return {recipe = "../strategies/single.toml", metric = "val_loss", budget = {trials = 60}, run = run}
