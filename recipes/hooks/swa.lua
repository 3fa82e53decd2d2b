-- Stochastic weight averaging (Izmailov et al., UAI 2018): from a given step on, trains at a constant rate and averages
-- the weights of the steps. Validation uses the mean. After the last planned step, the mean replaces the weights, so
-- the last checkpoint contains it. If a hook stops training earlier, the weights are not replaced.
local function start_step(ctx, options)
  if options.start >= 1 then return math.floor(options.start) end
  if not ctx.max_steps then error("`start` is a fraction of train.max_steps, which this recipe does not set", 0) end
  return math.floor(options.start * ctx.max_steps)
end

local function become_mean(ctx, state)
  for name, mean in pairs(state.mean or {}) do ctx:parameter(name):copy_(mean) end
end

return {
  name = "swa",
  about = "Trains the last part at a constant rate and takes the mean of its weights.",
  options = {
    start = {type = "number", default = 0.75, min = 0, help = "below 1: a fraction of train.max_steps; otherwise a step"},
    lr = {type = "number", min = 0, help = "learning rate from there on; unset: the schedule's"},
    every = {type = "integer", default = 1, min = 1, help = "steps between averaged weights"},
  },

  memory = function(job) return job.element_bytes * job.held end,

  on_train_start = function(ctx, state, options)
    local last = ctx.recipe.run.fast_dev_run == 0 and ctx.max_steps
    if last and start_step(ctx, options) + options.every > last then
      error(("averaging would begin at step %d, and training ends at step %d: there would be no mean")
        :format(start_step(ctx, options) + options.every, last), 0)
    end
  end,
  on_train_batch_start = function(ctx, state, options)
    if options.lr and ctx.step >= start_step(ctx, options) then ctx:set_lr(options.lr) end
  end,
  on_train_batch_end = function(ctx, state, options)
    local since = ctx.step - start_step(ctx, options)
    if since > 0 and since % options.every == 0 then
      state.count = (state.count or 0) + 1
      state.mean = state.mean or {}
      for _, name in ipairs(ctx:parameter_names()) do
        local weight, mean = ctx:parameter(name), state.mean[name]
        state.mean[name] = mean and mean:lerp_(weight, 1 / state.count) or weight:clone()
      end
    end
    if ctx.is_last_step then become_mean(ctx, state) end
  end,
  on_validation_start = become_mean,
}
