-- Keeps parameters as they are, for good or until they thaw one group after another (gradual unfreezing: Howard and
-- Ruder, ULMFiT, ACL 2018). Their gradients are zeroed, so clipping does not see them; what weight decay and momentum
-- would still change is put back after the step, from a copy of the frozen parameters.
local kept = {}

local function frozen_names(ctx, options, step)
  local groups = options.parameters
  local frozen = #groups
  if options.thaw_every > 0 then frozen = frozen - step // options.thaw_every end
  local names = {}
  for _, name in ipairs(ctx:parameter_names()) do
    for i = 1, frozen do
      if name:sub(1, #groups[i]) == groups[i] then
        names[#names + 1] = name
        break
      end
    end
  end
  return names
end

return {
  name = "freezing",
  about = "Freezes parameters whose names begin with given words, and thaws them one group after another.",
  options = {
    parameters = {type = "list", default = {}, help = "beginnings of names, such as \"blocks.0.\"; the last thaws first"},
    thaw_every = {type = "integer", default = 0, min = 0, help = "steps after which one more group thaws; 0: none does"},
  },

  on_train_batch_start = function(ctx, state, options)
    local still = {}
    for _, name in ipairs(frozen_names(ctx, options, ctx.step)) do
      still[name] = kept[name] or ctx:parameter(name):clone()
    end
    kept = still
  end,
  on_before_optimizer_step = function(ctx, state, options)
    for _, name in ipairs(frozen_names(ctx, options, ctx.step)) do ctx:gradient(name):scale_(0) end
  end,
  on_train_batch_end = function(ctx, state, options)
    for _, name in ipairs(frozen_names(ctx, options, ctx.step - 1)) do ctx:parameter(name):copy_(kept[name]) end
  end,
}
