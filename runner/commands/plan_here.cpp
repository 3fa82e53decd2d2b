#include "runner/commands/plan_here.hpp"

#include "runner/base/text.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/step_clock.hpp"
#include "runner/data/data.hpp"
#include "runner/devices/devices.hpp"
#include "runner/models/profiler.hpp"
#include "runner/report/recommendation.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

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

namespace {

/// " that stand for 2 nodes of 8 devices (simulated)"; "" without a simulation.
std::string simulation_text(const Recipe& recipe) {
  if (!recipe.devices.simulate) return "";
  return fmt::format(" that stand for {} of {} (simulated)", counted(recipe.devices.num_nodes, "node"),
                     counted(recipe.devices.devices.count, "device"));
}

}  // namespace

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

}  // namespace runner
