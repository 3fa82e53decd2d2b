-- Generates a text after each validation. It appears on the screen, as an event in the ledger, and in
-- artifacts/samples.txt of the run's folder. Each token is a forward, so use a small max_new_tokens for large models.
return {
  name = "sample_generation",
  about = "Generates a text after each validation.",
  options = {
    prompt = {type = "string", default = "The", help = "start of the text"},
    max_new_tokens = {type = "integer", default = 64, min = 1},
    temperature = {type = "number", default = 0.8, min = 0, help = "0: always the most likely token"},
    top_k = {type = "integer", default = 0, min = 0, help = "draws from this many most likely tokens; 0: from all"},
    seed = {type = "integer", help = "seed of the draws; unset: run.seed"},
  },

  on_validation_end = function(ctx, state, options)
    local text = ctx:generate {
      prompt = options.prompt,
      max_new_tokens = options.max_new_tokens,
      temperature = options.temperature,
      top_k = options.top_k,
      seed = options.seed,
    }
    ctx:artifact("samples.txt"):write("step ", ctx.step, "\n", text, "\n\n")
  end,
}
