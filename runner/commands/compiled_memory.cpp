#include "runner/commands/compiled_memory.hpp"

#include <algorithm>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/config/config.hpp"
#include "runner/plugins/ask_worker.hpp"
#include "runner/report/recommendation.hpp"
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

/// The host has a copy of parameters and optimizer state beside those on the devices (add_host_copy() in the catalog). All else that
/// the compiler claims is listed as activations.
void set_memory(Candidate& candidate, int64_t on_device, const MemoryLimit& limit) {
  auto& memory = candidate.memory;
  const int64_t copied = (memory.parameters + memory.optimizer) / 2, before = memory.total();
  memory.gathered = memory.gradients = memory.communication = memory.workspaces = 0;
  memory.activations = std::max<int64_t>(0, on_device - copied);
  candidate.bytes += memory.total() - before;
  candidate.fits = limit.device == 0 || candidate.bytes <= limit.device;
}

}  // namespace

bool has_compiled_candidate(const Plan& plan) {
  auto candidates = plan.choice.candidates;
  return compiled_candidate(candidates) != nullptr;
}

void ask_compiler(Plan& plan, const Plan& own) {
  Candidate* candidate = compiled_candidate(plan.choice.candidates);
  if (!candidate || candidate->job.micro_batch_size != own.job.micro_batch_size) return;
  const auto options = candidate->job.options;
  const auto plugin = options.value("plugin", nlohmann::json());
  log::info("XLA compiles the step of {}, to learn what memory it needs", candidate->entry->name);
  try {
    const auto answer = ask_worker("--compiled-memory",
                                   {{"plugin", plugin.is_string() ? plugin : nlohmann::json("XLA")},
                                    {"recipe", print_recipe(own.recipe)},
                                    {"devices", own.job.local_size},
                                    {"cache_dir", data_cache()}},
                                   "strategy.name");
    set_memory(*candidate, answer.at("bytes"), plan.choice.limit);
  } catch (const Error& error) {
    candidate->refused = error.what();
    candidate->fits = false;
  }
}

}  // namespace runner
