-- Rewinds when the loss jumps: restores parameters and optimizer state from a snapshot, and continues with the next
-- data. So training skips the data that led to the spike (as done by hand in Chowdhery et al., PaLM, 2022, section
-- 5.1). The step count and the schedule are not rewound. A loss is computed before the update of its step, so the
-- newest snapshot may already contain the update that caused the spike. The hook keeps two snapshots and restores the
-- older one. They need two more copies of parameters and optimizer state in host memory. They are not in checkpoints: a
-- resumed run takes its first snapshot when it starts.
local older, newer -- newer: nil before the first regular snapshot
local newer_counts = false -- false after a rewind: `newer` may contain the update that caused the spike

return {
  name = "loss_spike_rewind",
  about = "Returns to a snapshot when the loss exceeds a multiple of its running mean.",
  options = {
    factor = {type = "number", default = 2, min = 1, help = "a loss above this multiple of the running mean is a spike"},
    window = {type = "integer", default = 50, min = 1, help = "number of steps in the running mean"},
    warm_up = {type = "integer", default = 10, min = 1, help = "steps before the first loss that can be a spike"},
    every = {type = "integer", default = 100, min = 1, help = "steps between snapshots"},
    max_nan = {type = "integer", default = 3, min = 1, help = "this many NaN losses in a row are also a spike"},
    max_rewinds = {type = "integer", default = 10, min = 1, help = "the next spike after this many rewinds stops training"},
  },

  memory = function(job) return {host = 2 * job.element_bytes * (job.held + job.trained * job.optimizer_states)} end,

  on_train_start = function(ctx) older = ctx:snapshot() end,
  on_train_batch_end = function(ctx, state, options)
    local loss = ctx.loss
    local seen, mean = state.seen or 0, state.mean or loss
    state.nan = loss ~= loss and (state.nan or 0) + 1 or 0
    if state.nan >= options.max_nan or (seen >= options.warm_up and loss > options.factor * mean) then
      state.rewinds, state.nan = (state.rewinds or 0) + 1, 0
      if state.rewinds > options.max_rewinds then
        return ctx:stop(("a loss of %g after %d rewinds"):format(loss, options.max_rewinds))
      end
      ctx:log("rewound_steps", ctx.step - older.step)
      older:restore()
      newer_counts = false
      return
    end
    if loss ~= loss then return end -- train.on_nonfinite = "skip" has skipped this step
    state.seen = seen + 1
    state.mean = mean + (loss - mean) / math.min(state.seen, options.window)
    if ctx.step % options.every ~= 0 then return end
    if newer_counts then older, newer = newer, older end
    newer, newer_counts = newer and newer:take() or ctx:snapshot(), true
  end,
}
