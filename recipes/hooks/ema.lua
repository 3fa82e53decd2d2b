-- Exponential moving average of the weights (Polyak and Juditsky, SIAM J. Control Optim. 1992). Validation uses the
-- average, training continues with the weights. It needs one more copy of the parameters, also in checkpoints, and a
-- second one during a validation.
return {
  name = "ema",
  about = "Averages the weights exponentially, and validates with the average.",
  options = {
    decay = {type = "number", default = 0.999, min = 0, max = 1, help = "share of the average that an update keeps"},
    every = {type = "integer", default = 1, min = 1, help = "steps between updates of the average"},
    start_step = {type = "integer", default = 1, min = 1, help = "the step whose weights are the first average"},
    warm_up = {type = "boolean", default = true, help = "update n keeps at most (1 + n) / (10 + n)"},
  },

  memory = function(job) return job.element_bytes * job.held end,

  on_train_start = function(ctx, state, options)
    local last = ctx.recipe.run.fast_dev_run == 0 and ctx.max_steps
    if last and options.start_step > last then
      error(("`start_step` is %d, and training ends at step %d: there would be no average")
        :format(options.start_step, last), 0)
    end
  end,
  on_train_batch_end = function(ctx, state, options)
    if ctx.step < options.start_step or (ctx.step - options.start_step) % options.every ~= 0 then return end
    state.updates = (state.updates or -1) + 1
    local decay = options.decay
    if options.warm_up then decay = math.min(decay, (1 + state.updates) / (10 + state.updates)) end
    state.average = state.average or {}
    for _, name in ipairs(ctx:parameter_names()) do
      local weight, average = ctx:parameter(name), state.average[name]
      if average then
        average:lerp_(weight, 1 - decay)
      else
        state.average[name] = weight:clone()
      end
    end
  end,

  -- Changes of parameters in this function are undone after the validation.
  on_validation_start = function(ctx, state)
    for name, average in pairs(state.average or {}) do ctx:parameter(name):copy_(average) end
  end,
}
