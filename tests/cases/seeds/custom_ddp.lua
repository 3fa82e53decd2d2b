-- Custom data parallelism: sums the uncompressed gradients, one bucket after the other.
return {
  about = "Sums each bucket of gradients when all of backward is done.",
  reduce = function(bucket, ctx) ctx.world:all_reduce(bucket.gradients) end,
}
