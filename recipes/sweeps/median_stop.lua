-- Random search, four trials at a time, that stops a trial whose loss is above the median of what the others had at the
-- same step: the rule of Golovin et al., Google Vizier (KDD 2017), section 3.2.
local at_once, in_all = 4, 24

local function median(list)
  table.sort(list)
  return list[(#list + 1) // 2]
end

local function run(sweep)
  local seen = {} -- by step, the losses there
  local started = 0
  local function start()
    if started == in_all then return end
    started = started + 1
    sweep:start(sweep:sample())
  end
  for _ = 1, at_once do start() end
  for event in function() return sweep:next_event() end do
    if event.kind == "end" then
      start()
    elseif event.value then
      local others = seen[event.step] or {}
      seen[event.step] = others
      if #others >= 3 and event.value > median(others) then sweep:trial(event.trial):stop() end
      others[#others + 1] = event.value
    end
  end
end

return {
  recipe = "../strategies/single.toml",
  set = {["train.max_steps"] = 40, ["train.val_check_interval"] = 8},
  metric = "val_loss",
  reports = true,
  seed = 1,
  space = {
    ["optimizer.lr"] = {log_uniform = {1e-4, 1e-1}},
    ["model.dropout"] = {uniform = {0.0, 0.3}},
  },
  run = run,
}
