-- Code for one rank only, and the rank and world size on each rank.
return {
  on_train_batch_end = function(ctx)
    if ctx.is_global_zero then print("This only prints once across all processes") end
    assert(ctx.world.rank < ctx.world.size)
  end,
}
