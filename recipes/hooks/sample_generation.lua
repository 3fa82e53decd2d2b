-- What the model says so far: after each validation a text from it, in the ledger as an event, on the screen, and in
-- artifacts/samples.txt of the run's folder. Each token is a forward, so keep max_new_tokens small for large models.
return {
  name = "sample_generation",
  about = "Generates a text after each validation.",
  options = {
    prompt = {type = "string", default = "The", help = "what the text begins with"},
    max_new_tokens = {type = "integer", default = 64, min = 1},
    temperature = {type = "number", default = 0.8, min = 0, help = "0: always the likeliest token"},
    top_k = {type = "integer", default = 0, min = 0, help = "among so many likeliest tokens; 0: among all"},
    seed = {type = "integer", help = "of the draws; unset: run.seed"},
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
