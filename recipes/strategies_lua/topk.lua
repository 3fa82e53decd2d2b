-- Top-k compression with error feedback (Stich et al., Sparsified SGD with Memory, NeurIPS 2018; Lin et al., Deep
-- Gradient Compression, ICLR 2018). Each rank sends only the largest elements of a bucket, and adds the others (the
-- residual) to the gradients of the next step. It works as a strategy, and as a comm hook of ddp:
-- strategy.ddp_comm_hook = "lua:topk". A step may be skipped after `reduce`, so the previous residual is saved too, and
-- the next step restores it. Both are fp32 copies of the gradients, in memory and in checkpoints.
return {
  about = "Sends the largest gradients only, and adds the others in the next step.",
  options = {density = {type = "number", default = 0.01, min = 1e-6, max = 1, help = "part of a bucket that is sent"}},

  setup = function(ctx)
    for _, bucket in ipairs(ctx.buckets) do
      ctx:kept("residual" .. bucket.index, bucket.numel)
      ctx:kept("saved" .. bucket.index, bucket.numel)
    end
  end,

  reduce = function(bucket, ctx, state, options)
    local gradients, world = bucket.gradients, ctx.world
    local count = math.max(1, math.floor(options.density * bucket.numel))
    local residual, saved = ctx:kept("residual" .. bucket.index), ctx:kept("saved" .. bucket.index)
    if state[bucket.index] == ctx.step then -- the last step was skipped
      residual:copy_(saved)
    else
      saved:copy_(residual)
    end
    state[bucket.index] = ctx.step
    residual:add_(gradients, 1 / ctx.loss_scale)
    local indices = residual:largest(count)
    local values = residual:take(indices)
    residual:put_(indices, 0)
    local all_indices, all_values = ctx:zeros(count * world.size, "int64"), ctx:zeros(count * world.size)
    local first = world:all_gather_async(all_indices, indices)
    local second = world:all_gather_async(all_values, values)
    return function()
      first:wait()
      second:wait()
      gradients:zero_()
      -- One rank after another: the indices of one rank are unique, so all ranks sum in the same order.
      for rank = 0, world.size - 1 do
        gradients:index_add_(all_indices:narrow(rank * count, count), all_values:narrow(rank * count, count))
      end
      gradients:scale_(ctx.loss_scale)
    end
  end,
}
