-- Local SGD (Stich, ICLR 2019): each rank trains its own copy, and every few steps the copies become their mean. Sends
-- that much less. A checkpoint keeps every rank's copy, rank 0's as the model; validation in between is of each rank's
-- own. So let train.max_steps be a multiple of `every`: after another last step the model is rank 0's own copy.
return {
  about = "Ranks train copies of their own, and average them every few steps.",
  options = {every = {type = "integer", default = 8, min = 1, help = "steps between two averages"}},
  replicas_differ = true,

  -- Gradients come as shares of the mean over the global batch; this one is of the rank's own part of it.
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
