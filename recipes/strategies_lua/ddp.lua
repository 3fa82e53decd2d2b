-- Data parallelism: gradients are summed over ranks, bucket by bucket, while backward goes on. Bit for bit what the
-- built-in `ddp` computes.
return {
  about = "Data parallelism in Lua: each bucket of gradients is all-reduced while backward goes on.",

  reduce = function(bucket, ctx) return ctx.world:all_reduce_async(bucket.gradients) end,

  memory = function() return 0 end,
  traffic = function(job)
    local bytes = 0
    for _, bucket in ipairs(job.buckets) do bytes = bytes + bucket.numel * job.element_bytes end
    return {{collective = "all_reduce", calls = #job.buckets, bytes = bytes}}
  end,
}
