#include "runner/selection/hook_memory.hpp"

#include <algorithm>
#include <memory>
#include <mutex>

#include "runner/config/diagnostics.hpp"
#include "runner/lua/hook_set.hpp"

namespace runner {

namespace {

struct HookClaims {
  explicit HookClaims(const Recipe& recipe) : hooks(recipe) {}
  std::mutex mutex;
  lua::HookSet hooks;
};

}  // namespace

void describe_hooks(const Recipe& recipe, Job& described) {
  if (lua::hook_sources(recipe).empty()) return;
  auto claims = std::make_shared<HookClaims>(recipe);
  described.own_loss = claims->hooks.has_loss();
  if (described.own_loss && recipe.train.loss.value_or("cross_entropy") != "cross_entropy") {
    Diagnostic diagnostic{
        recipe.origin("hooks.files"), "contradiction",
        fmt::format("the function `loss` of a hook replaces cross entropy, and the loss is {}", *recipe.train.loss)};
    diagnostic.section = "hooks";
    throw RecipeError({diagnostic});
  }
  described.hooks_in_backward =
      claims->hooks.wants(lua::Moment::on_before_backward) || claims->hooks.wants(lua::Moment::on_after_backward);
  if (!claims->hooks.says_memory()) return;
  described.hooks = [claims](const Job& job, const MemoryParts& parts) -> HookBytes {
    std::lock_guard lock(claims->mutex);
    auto kept = claims->hooks.memory({{"held", parts.stored},
                                      {"trained", parts.held},
                                      {"parameters", job.model->parameter_count()},
                                      {"world_size", job.world_size()},
                                      {"micro_batch_size", job.micro_batch_size},
                                      {"optimizer_states", job.optimizer_states},
                                      {"element_bytes", std::max<int64_t>(4, bytes_of(job.precision.parameter))}});
    return HookBytes{kept.device, kept.host};
  };
}

}  // namespace runner
