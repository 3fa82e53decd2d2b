-- Golden-section search for the learning rate, on a logarithmic scale: each trial makes the interval 38 % smaller.
-- runner sweep run recipes/sweeps/golden_section.lua
local ratio = (math.sqrt(5) - 1) / 2

local function run(sweep)
  local function loss_at(exponent)
    local result = sweep:try{["optimizer.lr"] = 10 ^ exponent}
    return result.value or math.huge -- a trial that failed is worse than any other
  end
  local low, high = -4.0, -1.0
  local left, right = high - ratio * (high - low), low + ratio * (high - low)
  local at_left, at_right = loss_at(left), loss_at(right)
  while high - low > 0.3 do -- a factor of two
    if at_left < at_right then
      high, right, at_right = right, left, at_left
      left = high - ratio * (high - low)
      at_left = loss_at(left)
    else
      low, left, at_left = left, right, at_right
      right = low + ratio * (high - low)
      at_right = loss_at(right)
    end
  end
  print(("between %.2g and %.2g"):format(10 ^ low, 10 ^ high))
end

return {
  recipe = "../strategies/single.toml",
  metric = "val_loss",
  budget = {trials = 20},
  run = run,
}
