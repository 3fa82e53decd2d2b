-- ZeRO stage 1 (Rajbhandari et al., SC 2020): the optimizer state of parameters that `shard` selects is sharded. Each
-- rank gets its part of the summed gradients and updates its part of the parameters. The program then gathers the
-- parts.
return {
  about = "ZeRO stage 1 in Lua: shards the optimizer state over ranks.",
  options = {
    min_numel = {type = "integer", default = 0, min = 0, help = "elements below which a parameter is not sharded"},
  },

  shard = function(parameter, options) return parameter.numel >= options.min_numel end,

  reduce = function(bucket, ctx)
    if bucket.sharded then return ctx.world:reduce_scatter_async(bucket.shard, bucket.gradients) end
    return ctx.world:all_reduce_async(bucket.gradients)
  end,

  memory = function() return 0 end,
  traffic = function(job)
    local reduced = {all_reduce = {0, 0}, reduce_scatter = {0, 0}}
    for _, bucket in ipairs(job.buckets) do
      local sum = reduced[bucket.sharded and "reduce_scatter" or "all_reduce"]
      sum[1], sum[2] = sum[1] + 1, sum[2] + bucket.numel * job.element_bytes
    end
    local list = {}
    for _, name in ipairs {"all_reduce", "reduce_scatter"} do
      if reduced[name][1] > 0 then
        list[#list + 1] = {collective = name, calls = reduced[name][1], bytes = reduced[name][2]}
      end
    end
    return list
  end,
}
