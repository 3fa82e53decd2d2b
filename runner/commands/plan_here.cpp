#include "runner/commands/plan_here.hpp"

#include <algorithm>
#include <cstdlib>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/step_clock.hpp"
#include "runner/config/config.hpp"
#include "runner/data/data.hpp"
#include "runner/devices/devices.hpp"
#include "runner/models/profiler.hpp"
#include "runner/plugins/ask_worker.hpp"
#include "runner/report/recommendation.hpp"
#include "runner/selection/candidate.hpp"
#include "strategies/program/parallel_plan.hpp"
#include "strategies/xla/entry.hpp"

namespace runner {

namespace {

/// " that stand for 2 nodes of 8 devices (simulated)"; "" without a simulation.
std::string simulation_text(const Recipe& recipe) {
  if (!recipe.devices.simulate) return "";
  return fmt::format(" that stand for {} of {} (simulated)", counted(recipe.devices.num_nodes, "node"),
                     counted(recipe.devices.devices.count, "device"));
}

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

Plan plan_on(const Recipe& given, const Topology& topology, bool several_supervisors) {
  const Recipe recipe = with_data_facts(given);
  Facts facts = read_facts();
  ClockSource source(topology, knowledge_here(facts, build_id()), shares_memory(recipe) && !several_supervisors);
  int threads = topology.threads_per_rank(recipe.devices.threads_per_rank);
  // The time of a simulation says nothing about the devices, and the time of devices nothing about a simulation.
  StepClock clock = topology.simulated ? StepClock() : source.clock(threads);
  keep_descriptions(data_cache(), facts.onednn_isa);
  struct Dismissal {
    ~Dismissal() { dismiss_profile_worker(); }  // its memory is the training's
  } dismissal;
  Plan plan = make_plan(recipe, topology, tokenizer_vocab_size(recipe.data, data_cache()), clock);
  if (!topology.simulated) plan.where = source.circumstances(plan.job, threads);
  return plan;
}

std::string describe(const Plan& plan) {
  const Job& job = plan.job;
  const int64_t all = plan.model->parameter_count();
  int64_t trained = 0;
  for (const auto* parameter : plan.model->parameters()) trained += parameter->trainable ? parameter->numel() : 0;
  return fmt::format("{} {} parameters{}, {} on {}, {}: {}", plan.recipe.model.name, format_parameters(all),
                     trained < all ? fmt::format(" ({} trained)", format_parameters(trained)) : "", plan.entry->name,
                     counted(job.world_size(), job.accelerator.is_cuda() ? "GPU" : job.accelerator.noun()) +
                         (job.mesh == data_mesh(job.world_size()) ? "" : fmt::format(" ({})", to_text(job.mesh))) +
                         simulation_text(plan.recipe),
                     plan.recipe.precision.mode, step_size_text(job));
}

std::string disk_space_note(const Plan& plan, int64_t free_bytes, int64_t existing) {
  const auto& settings = plan.recipe.checkpoint;
  if (plan.recipe.run.fast_dev_run > 0) return "";
  if (!settings.save_at_end && !settings.every_n_steps && !settings.every && settings.save_top_k.value_or(0) == 0)
    return "";
  const int64_t one = checkpoint_bytes_on_disk(plan.job, *plan.model);
  if (one > free_bytes)
    throw environment_error(
        "a checkpoint is predicted to take {}, and the disk of the run's folder has {} free: make room, {}, or train "
        "without checkpoints (checkpoint.save_at_end = false, and no other key of [checkpoint] that asks for one)",
        format_bytes(one), format_bytes(free_bytes),
        existing > 0 ? "delete checkpoints of other runs" : "set RUNNER_HOME to a folder on a larger disk");
  // While a checkpoint is written, the kept ones still exist, so space for one more is needed.
  const bool all = settings.keep_last == 0;
  const int64_t spaced =
      settings.keep_every_n_steps ? plan.recipe.train.max_steps.value_or(0) / *settings.keep_every_n_steps : 0;
  const int64_t kept = all ? 0 : settings.keep_last + settings.save_top_k.value_or(0) + spaced + 1;
  const int64_t more = std::max<int64_t>(1, kept - existing);
  int64_t needed = 0;
  const bool absurd = __builtin_mul_overflow(more, one, &needed);
  if (!all && !absurd && needed <= free_bytes) return "";
  if (all && free_bytes / one >= 100) return "";
  return fmt::format("the disk of the run's folder has {} free, room for {} of {} each; {} are kept",
                     format_bytes(free_bytes), counted(free_bytes / one, "more checkpoint"), format_bytes(one),
                     all ? "all" : std::to_string(kept - 1));
}

std::optional<int64_t> free_bytes(fs::path folder) {
  std::error_code failed;
  while (!fs::exists(folder, failed) && folder.has_parent_path() && folder != folder.parent_path())
    folder = folder.parent_path();
  auto space = fs::space(folder, failed);
  if (failed) return std::nullopt;
  return static_cast<int64_t>(std::min<uintmax_t>(space.available, INT64_MAX));
}

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
