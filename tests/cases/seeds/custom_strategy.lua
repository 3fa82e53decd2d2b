-- fabric-strategies-962: a custom strategy, registered under a name.
strategies.register("custom", {
  about = "Sums the gradients of a bucket over all ranks.",
  reduce = function(bucket, ctx) return ctx.world:all_reduce_async(bucket.gradients) end,
})
