#include "runner/commands/compiled_memory.hpp"

#include <algorithm>
#include <cstdlib>

#include "runner/base/log.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/config/config.hpp"
#include "runner/plugins/ask_worker.hpp"
#include "strategies/program/parallel_plan.hpp"
#include "strategies/xla/entry.hpp"

namespace runner {

namespace {

Candidate* compiled_candidate(std::vector<Candidate>& candidates) {
  const auto found = std::ranges::find_if(candidates, [](const Candidate& candidate) {
    return candidate.named && candidate.refused.empty() && candidate.entry->plan &&
           candidate.entry->plan(candidate.job).compiled;
  });
  return found == candidates.end() ? nullptr : &*found;
}

/// `on_device`: what the compiler claims. On CPU, memory has another copy of parameters and optimizer state, so the estimate counts these
/// twice (add_host_copy() in the catalog). Everything else that the compiler claims is listed as activations.
void set_memory(Candidate& candidate, int64_t on_device, const MemoryLimit& limit) {
  auto& memory = candidate.memory;
  const int64_t state = memory.parameters + memory.optimizer, before = memory.total();
  const int64_t claimed = candidate.job.accelerator.own_memory ? state : state / 2;
  memory.gathered = memory.gradients = memory.communication = memory.workspaces = 0;
  memory.activations = std::max<int64_t>(0, on_device - claimed);
  candidate.bytes += memory.total() - before;
  candidate.fits = limit.device == 0 || candidate.bytes <= limit.device;
}

}  // namespace

std::map<std::string, std::string> xla_threads(const Plan& plan) {
  constexpr const char* variable = "PJRT_NPROC";
  const auto compiled = plan.entry->plan ? plan.entry->plan(plan.job).compiled : std::nullopt;
  if (!compiled || !computes_on_host(compiled->plugin) || std::getenv(variable)) return {};
  return {{variable, std::to_string(plan.job.local_size * plan.recipe.devices.threads_per_rank.value_or(1))}};
}

void ask_compiler(Plan& plan, const std::function<Plan()>& own) {
  Candidate* const candidate = compiled_candidate(plan.choice.candidates);
  if (!candidate) return;
  const Plan named = own();
  if (candidate->job.micro_batch_size != named.job.micro_batch_size) return;
  log::info("XLA compiles the step of {}, to learn what memory it needs", candidate->entry->name);
  try {
    const auto plugin = candidate->job.options.value("plugin", nlohmann::json());
    const auto answer = ask_worker("--compiled-memory",
                                   {{"plugin", plugin.is_string() ? plugin : nlohmann::json("XLA")},
                                    {"recipe", print_recipe(named.recipe)},
                                    {"devices", named.job.local_size},
                                    {"cache_dir", data_cache()}},
                                   "strategy.name", xla_threads(named));
    set_memory(*candidate, answer.at("bytes"), plan.choice.limit);
  } catch (const Error& error) {
    log::warning("the memory of {} is an estimate, because its step was not compiled: {}", candidate->entry->name,
                 error.what());
  }
}

}  // namespace runner
