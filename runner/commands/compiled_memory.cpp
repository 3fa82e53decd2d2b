#include "runner/commands/compiled_memory.hpp"

#include <algorithm>

#include "runner/base/log.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/config/config.hpp"
#include "runner/plugins/ask_worker.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

namespace {

Candidate* compiled_candidate(std::vector<Candidate>& candidates) {
  const auto found = std::ranges::find_if(candidates, [](const Candidate& candidate) {
    return candidate.named && candidate.refused.empty() && !candidate.job.accelerator.own_memory &&
           candidate.entry->plan && candidate.entry->plan(candidate.job).compiled;
  });
  return found == candidates.end() ? nullptr : &*found;
}

/// `on_device`: what the compiler claims. Host memory has another copy of parameters and optimizer state, so the estimate counts these twice
/// (add_host_copy() in the catalog). Everything else that the compiler claims is listed as activations.
void set_memory(Candidate& candidate, int64_t on_device, const MemoryLimit& limit) {
  auto& memory = candidate.memory;
  const int64_t copied = (memory.parameters + memory.optimizer) / 2, before = memory.total();
  memory.gathered = memory.gradients = memory.communication = memory.workspaces = 0;
  memory.activations = std::max<int64_t>(0, on_device - copied);
  candidate.bytes += memory.total() - before;
  candidate.fits = limit.device == 0 || candidate.bytes <= limit.device;
}

}  // namespace

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
                                   "strategy.name");
    set_memory(*candidate, answer.at("bytes"), plan.choice.limit);
  } catch (const Error& error) {
    log::warning("the memory of {} is an estimate, because its step was not compiled: {}", candidate->entry->name,
                 error.what());
  }
}

}  // namespace runner
