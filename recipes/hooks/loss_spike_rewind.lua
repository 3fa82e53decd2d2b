-- Goes back when the loss jumps: parameters and the optimizer's state become those of a snapshot in memory, and training
-- goes on with the data that comes next, so what led to the spike is skipped (as by hand in Chowdhery et al., PaLM, 2022,
-- section 5.1). The count of steps, and with it the schedule, goes on. A loss is from before its step's update, so what
-- the newest snapshot holds may be what the spike comes from: two are kept, and the older one is gone back to. Two more
-- copies of parameters and optimizer state in host memory; they are not in checkpoints: a resumed run takes its first
-- snapshot where it begins.
local older, newer -- newer: nil until it is due
local newer_counts = false -- not after a rewind: it may hold what led there

return {
  name = "loss_spike_rewind",
  about = "Returns to a snapshot when the loss exceeds a multiple of its running mean.",
  options = {
    factor = {type = "number", default = 2, min = 1, help = "a loss above so many times the running mean is a spike"},
    window = {type = "integer", default = 50, min = 1, help = "steps that the running mean looks back"},
    warm_up = {type = "integer", default = 10, min = 1, help = "steps before the first loss that can be a spike"},
    every = {type = "integer", default = 100, min = 1, help = "steps between snapshots"},
    max_nan = {type = "integer", default = 3, min = 1, help = "so many NaN losses in a row are a spike, too"},
    max_rewinds = {type = "integer", default = 10, min = 1, help = "the next one after so many stops training"},
  },

  memory = function(job) return {host = 2 * job.element_bytes * job.held * (1 + job.optimizer_states)} end,

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
    if loss ~= loss then return end -- left out by train.on_nonfinite = "skip"
    state.seen = seen + 1
    state.mean = mean + (loss - mean) / math.min(state.seen, options.window)
    if ctx.step % options.every ~= 0 then return end
    if newer_counts then older, newer = newer, older end
    newer, newer_counts = newer and newer:take() or ctx:snapshot(), true
  end,
}
