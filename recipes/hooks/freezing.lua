-- Freezes parameters for the complete training, or unfreezes (thaws) them one group after another (gradual unfreezing:
-- Howard and Ruder, ULMFiT, ACL 2018). Their gradients are set to zero, so they do not count in clipping. Weight decay
-- and momentum can still change them, so the hook restores them from a copy after each step.
--
-- Adam has one step count for all parameters. A group that thaws late starts with zero moments and no bias correction,
-- so its first steps would be several times larger than those at the beginning of a training. The hook therefore scales
-- its steps (with weight decay) as if Adam counted from the thaw on. It stops when this makes no difference, after a
-- few thousand steps, and needs a copy of the group until then. Adam and sgd add weight decay to the gradient, so
-- moments would accumulate it while a group is frozen: the hook rejects recipes that thaw groups with them.
local kept = {}

--- Calls body(name, step at which it thaws or nil) for each parameter that the options name.
local function each_frozen(ctx, options, body)
  local groups = options.parameters
  for _, name in ipairs(ctx:parameter_names()) do
    for i, beginning in ipairs(groups) do
      if name:sub(1, #beginning) == beginning then
        body(name, options.thaw_every > 0 and (#groups + 1 - i) * options.thaw_every or nil)
        break
      end
    end
  end
end

--- Factor that makes Adam's step number `step` equal to step number `own`, counted from the thaw of the group.
local function correction(ctx, own, step)
  local optimizer = ctx.recipe.optimizer
  if optimizer.name == "sgd" then return 1 end
  local first, second = table.unpack(optimizer.betas)
  return (1 - first ^ step) / (1 - first ^ own) * math.sqrt((1 - second ^ own) / (1 - second ^ step))
end

--- Factor for the step that ends as number `step`: 0 frozen, 1 unchanged.
local function share(ctx, thaws, step)
  if not thaws or step <= thaws then return 0 end
  local scaled = correction(ctx, step - thaws, step)
  return math.abs(scaled - 1) < 0.01 and 1 or scaled
end

local function beginnings(ctx)
  local list, seen = {}, {}
  for _, name in ipairs(ctx:parameter_names()) do
    local first = name:match("^blocks%.%d+%.") or name:match("^[^.]+%.?")
    if not seen[first] then list[#list + 1], seen[first] = first, true end
  end
  return table.concat(list, ", ")
end

local function check(ctx, options)
  if #options.parameters == 0 then error("`parameters` names nothing to freeze; names begin with " .. beginnings(ctx), 0) end
  local names = "\n" .. table.concat(ctx:parameter_names(), "\n")
  for _, beginning in ipairs(options.parameters) do
    if not names:find("\n" .. beginning, 1, true) then
      error(("no parameter's name begins with `%s`; they begin with %s"):format(beginning, beginnings(ctx)), 0)
    end
  end
  local optimizer = ctx.recipe.optimizer
  local gathers = optimizer.name == "adam" or (optimizer.name == "sgd" and (optimizer.momentum or 0) > 0)
  if options.thaw_every > 0 and gathers and optimizer.weight_decay > 0 then
    error(("%s would accumulate weight decay in the moments of frozen parameters until they thaw: use adamw, or "
      .. "optimizer.weight_decay = 0"):format(optimizer.name), 0)
  end
end

return {
  name = "freezing",
  about = "Freezes parameters by prefixes of their names, and thaws them one group after another.",
  options = {
    parameters = {type = "list", default = {}, help = "prefixes of names, such as \"blocks.0.\"; the last thaws first"},
    thaw_every = {type = "integer", default = 0, min = 0, help = "steps after which one more group thaws; 0: none does"},
  },

  -- An upper bound: the planner does not know which part of a rank's parameters is frozen.
  memory = function(job) return job.element_bytes * job.held end,

  on_train_start = function(ctx, state, options) check(ctx, options) end,
  on_train_batch_start = function(ctx, state, options)
    local still = {}
    each_frozen(ctx, options, function(name, thaws)
      local counts = share(ctx, thaws, ctx.step + 1)
      if counts == 0 then still[name] = kept[name] or ctx:parameter(name):clone() end
      if counts ~= 0 and counts ~= 1 then still[name] = ctx:parameter(name):clone() end
    end)
    kept = still
  end,
  on_before_optimizer_step = function(ctx, state, options)
    each_frozen(ctx, options, function(name, thaws)
      local gradient = ctx:gradient(name) -- nil if model.frozen matches the parameter
      if gradient and share(ctx, thaws, ctx.step + 1) == 0 then gradient:scale_(0) end
    end)
  end,
  on_train_batch_end = function(ctx, state, options)
    each_frozen(ctx, options, function(name, thaws)
      if not kept[name] then return end
      local counts, parameter = share(ctx, thaws, ctx.step), ctx:parameter(name)
      parameter:copy_(counts == 0 and kept[name] or kept[name]:lerp_(parameter, counts))
    end)
  end,
}
