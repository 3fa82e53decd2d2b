-- Local SGD (Stich, ICLR 2019): each rank trains a replica, and every few steps all replicas are set to their mean. So
-- communication is less frequent. Checkpoints contain all replicas, rank 0's as the model. Between averages, each rank
-- validates its own replica. Make train.max_steps a multiple of `every`, otherwise the final model is rank 0's replica.
return {
  about = "Each rank trains a replica, and replicas are averaged every few steps.",
  options = {every = {type = "integer", default = 8, min = 1, help = "steps between two averages"}},
  replicas_differ = true,

  -- Gradients are scaled for the mean over the global batch. This scales them for the mean over this rank's part.
  reduce = function(bucket, ctx) bucket.gradients:scale_(ctx.world.size) end,

  after_update = function(ctx, state, options)
    state.since = (state.since or 0) + 1
    if state.since < options.every then return end
    state.since = 0
    local works = {}
    for i, bucket in ipairs(ctx.buckets) do works[i] = ctx.world:all_reduce_async(bucket.parameters) end
    for i, bucket in ipairs(ctx.buckets) do
      works[i]:wait()
      bucket.parameters:scale_(1 / ctx.world.size)
    end
  end,

  memory = function() return 0 end,
}
