-- Stops training when a validation metric has not improved for some validations. `train.early_stopping` in a recipe
-- adds this hook after the other hooks. Rank 0 decides, because it has all logged metrics.
return {
  name = "early_stopping",
  about = "Stops when a metric of validation has not improved for `patience` validations.",
  options = {
    monitor = {type = "string", default = "val_loss", help = "the metric"},
    patience = {type = "integer", default = 3, min = 1, help = "validations without an improvement"},
    min_delta = {type = "number", default = 0, min = 0, help = "smaller changes are not an improvement"},
    mode = {type = "string", default = "min", choices = {"min", "max"}, help = "min: lower is better"},
  },

  on_validation_end = function(ctx, state, options)
    if not ctx.is_global_zero then return end
    local value = ctx.metrics[options.monitor]
    if not value then
      error("there is no metric `" .. options.monitor .. "` after a validation", 0)
    end
    local gain = state.best and (options.mode == "min" and state.best - value or value - state.best)
    if value == value and (not state.best or gain > options.min_delta) then
      state.best, state.waited = value, 0
      return
    end
    state.waited = (state.waited or 0) + 1
    if state.waited >= options.patience then
      local text = state.best and "%s has not improved on %g for %d validations"
        or "%s was not a number (%g) in %d validations"
      ctx:stop(text:format(options.monitor, state.best or value, state.waited))
    end
  end,
}
