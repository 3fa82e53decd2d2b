-- FSDP with larger units: `layers` transformer layers are gathered and reduced together, and the embedding and the head with the
-- layers next to them. Fewer and larger collectives take less time on links with a high latency; more parameters are gathered at a time.
-- Every few steps it prints the norm of one parameter, as an example of a function that is called after the update.
return {
  about = "FSDP whose units have several transformer layers.",
  base = "fsdp",
  options = {
    layers = {type = "integer", default = 2, min = 1, help = "transformer layers in a unit"},
    norm_of = {type = "string", default = "embedding.tokens.weight", help = "the parameter whose norm is printed"},
    every = {type = "integer", default = 10, min = 1, help = "steps between two prints"},
  },

  units = function(blocks, options)
    local units, unit, layers, last = {}, {}, 0, nil
    for _, block in ipairs(blocks) do
      local in_layer = block.name ~= block.layer  -- a layer is two blocks
      if in_layer and block.layer ~= last then
        if layers == options.layers then
          units[#units + 1] = unit
          unit, layers = {}, 0
        end
        layers, last = layers + 1, block.layer
      end
      if #block.parameters > 0 then unit[#unit + 1] = block.name end
    end
    if #unit > 0 then units[#units + 1] = unit end
    return units
  end,

  after_update = function(ctx, state, options)
    if ctx.step % options.every ~= 0 then return end
    local norm = ctx.model:parameter(options.norm_of):norm()  -- over all ranks
    state.largest = math.max(state.largest or 0, norm)
    if ctx.world.rank == 0 then
      print(("step %d: the norm of %s is %.6g, the largest so far %.6g"):format(ctx.step, options.norm_of, norm, state.largest))
    end
  end,

  traffic = function() return {} end,  -- a norm is a few bytes
}
