-- A data parallelism of one's own: gradients travel as they are, one bucket after the other.
return {
  about = "Sums each bucket of gradients when all of backward is done.",
  reduce = function(bucket, ctx) ctx.world:all_reduce(bucket.gradients) end,
}
