-- Gossip averaging (Lian et al., D-PSGD, NeurIPS 2017) on the exponential graph of Assran et al. (SGP, ICML 2019):
-- after each update, a rank averages its parameters with those of one other rank, which is 1, 2, 4 ... ranks behind it
-- in the ring. A step waits for one message, for any number of ranks.
return {
  about = "Each rank averages its parameters with one other's after each step.",
  replicas_differ = true,

  -- Gradients are scaled for the mean over the global batch. This scales them for the mean over this rank's part.
  reduce = function(bucket, ctx) bucket.gradients:scale_(ctx.world.size) end,

  after_update = function(ctx, state)
    local world = ctx.world
    if world.size == 1 then return end
    local distance = state.distance or 1
    local received, works = {}, {}
    for i, bucket in ipairs(ctx.buckets) do
      received[i] = bucket.parameters:clone()
      works[i] = world:shift_async(received[i], bucket.parameters, distance)
    end
    for i, bucket in ipairs(ctx.buckets) do
      works[i]:wait()
      bucket.parameters:add_(received[i]):scale_(0.5)
    end
    state.distance = distance * 2 < world.size and distance * 2 or 1
  end,
}
