return {
  name = "good",
  options = {
    every = {type = "integer", default = 10, min = 1, help = "steps"},
    rate = {type = "number", default = 0.5, min = 0, max = 1},
    mode = {type = "string", default = "mean", choices = {"mean", "max"}},
    names = {type = "list", default = {"a"}},
    loud = {type = "boolean", default = false},
    note = {type = "string"},
  },
  on_train_batch_end = function(ctx) end,
}
