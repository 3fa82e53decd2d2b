-- Cross entropy with label smoothing (Szegedy et al., CVPR 2016) and optional z-loss, which keeps the logits'
-- normalizer near 1 (Chowdhery et al., PaLM, 2022, section 5). Validation uses plain cross entropy.
return {
  name = "label_smoothing",
  about = "Trains on smoothed targets, and on the square of the logits' log-sum-exp.",
  options = {
    smoothing = {type = "number", default = 0.1, min = 0, max = 1, help = "probability that all tokens share equally"},
    z_loss = {type = "number", default = 0, min = 0, help = "weight of log(Z)^2; PaLM uses 1e-4"},
  },

  loss = function(ctx, logits, targets, options)
    local log_z = logits:logsumexp()
    local log_probabilities = logits - log_z
    local hit, spread = log_probabilities:gather(targets), log_probabilities:mean()
    return options.z_loss * log_z ^ 2 - (1 - options.smoothing) * hit - options.smoothing * spread
  end,
}
