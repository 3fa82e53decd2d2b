-- Data parallelism: all-reduces gradients bucket by bucket while backward continues. The results are bit-identical to
-- those of the built-in `ddp`.
return {
  about = "Data parallelism in Lua: each bucket of gradients is all-reduced while backward continues.",

  reduce = function(bucket, ctx) return ctx.world:all_reduce_async(bucket.gradients) end,

  memory = function() return 0 end,
  traffic = function(job)
    local bytes = 0
    for _, bucket in ipairs(job.buckets) do bytes = bytes + bucket.numel * job.element_bytes end
    return {{collective = "all_reduce", calls = #job.buckets, bytes = bytes}}
  end,
}
