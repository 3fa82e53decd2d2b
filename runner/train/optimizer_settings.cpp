#include "runner/train/optimizer_settings.hpp"

#include "runner/base/text.hpp"
#include "runner/config/group_optimizer.hpp"

namespace runner {

namespace {

/// The settings of one optimizer, without groups.
OptimizerConfig own_config(const Recipe::Optimizer& optimizer) {
  return {.kind = find_optimizer(optimizer.name)->kind,
          .lr = optimizer.lr,
          .weight_decay = optimizer.weight_decay,
          .beta1 = optimizer.betas.at(0),
          .beta2 = optimizer.betas.at(1),
          .eps = optimizer.eps,
          .momentum = optimizer.momentum,
          .nesterov = optimizer.nesterov,
          .decay_rate = optimizer.decay_rate,
          .clip_threshold = optimizer.clip_threshold,
          .scale_parameter = optimizer.scale_parameter,
          .match_rms = optimizer.adjust_lr == "match_rms_adamw",
          .ns_steps = optimizer.ns_steps};
}

}  // namespace

OptimizerConfig optimizer_config(const Recipe& recipe) {
  const auto& optimizer = recipe.optimizer;
  auto config = own_config(optimizer);
  if (optimizer.adascale)
    config.adascale = {.scale = optimizer.adascale_scale, .smoothing = optimizer.adascale_smoothing};
  config.decay_norms_and_biases = optimizer.decay_norms_and_biases;
  config.layer_decay = optimizer.layer_decay;
  for (const auto& group : optimizer.groups) {
    if (!group.own.empty()) config.others.push_back(own_config(optimizer_of(optimizer, group)));
    for (const auto& pattern : group.patterns())
      config.groups.push_back({.pattern = pattern,
                               .lr = group.lr,
                               .weight_decay = group.weight_decay,
                               .lr_factor = group.lr_factor.value_or(1),
                               .label = join(group.patterns(), " "),
                               .optimizer = group.own.empty() ? 0 : config.others.size()});
  }
  // LoRA+ (Hayou et al. 2024, arXiv:2402.12354). A group of the recipe comes first.
  if (const auto ratio = recipe.fine_tune.lora_plus_ratio; ratio && recipe.fine_tune.adapts())
    config.groups.push_back(
        {.pattern = "*.lora_b", .lr = {}, .weight_decay = {}, .lr_factor = *ratio, .label = "lora_b"});
  return config;
}

}  // namespace runner
