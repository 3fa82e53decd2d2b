-- Logs the norm of each block's gradient before clipping. It shows which part of a model learns, and which one
-- diverges.
return {
  name = "gradient_norms",
  about = "Logs gradient_norm/BLOCK every few steps.",
  options = {every = {type = "integer", default = 10, min = 1, help = "steps between records"}},

  on_before_optimizer_step = function(ctx, state, options)
    if ctx.step % options.every ~= 0 then return end
    local blocks, squares = {}, {}
    for _, name in ipairs(ctx:parameter_names()) do
      local block = name:match("^blocks%.%d+") or name:match("^[^.]+")
      if not squares[block] then
        blocks[#blocks + 1], squares[block] = block, 0
      end
      local gradient = ctx:gradient(name)  -- nil if the parameter is frozen
      if gradient then squares[block] = squares[block] + gradient:norm() ^ 2 end
    end
    for _, block in ipairs(blocks) do ctx:log("gradient_norm/" .. block, math.sqrt(squares[block])) end
  end,
}
