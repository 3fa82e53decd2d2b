// Plans, starts and supervises one attempt after another.
#include "runner/commands/attempts.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/hang_limit.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/plan_here.hpp"
#include "runner/commands/step_clock.hpp"
#include "runner/selection/batch.hpp"
#include "strategies/collective/shm_layout.hpp"

namespace runner {

namespace {

/// Why CPU ranks of several supervisors cannot communicate through shared memory; empty if no note is needed.
std::string transport_note(const Place& place) {
  const auto& placement = place.placement;
  const auto& accelerator = place.topology.accelerator;
  if (!accelerator.collectives.empty() || placement.local_size == 1) return "";
  if (placement.num_nodes > 1)
    return fmt::format("{}s on several nodes communicate over Gloo, also within a node", accelerator.noun());
  return fmt::format(
      "{} started one supervisor for each rank of this node, so the ranks communicate over Gloo; a single `runner run` "
      "that starts all ranks lets them use shared memory",
      placement.cluster);
}

WorkerGroup make_group(const Plan& plan, const Place& place, const CommandAttempts& run) {
  const auto& recipe = plan.recipe;
  const fs::path run_dir = run.record.run_dir();
  WorkerGroup group;
  group.worker = run.worker;
  group.arguments = {"--run-dir", run_dir.string(), "--cache-dir", run.cache_dir};
  if (run.accept_changed_data) group.arguments.push_back("--accept-changed-data");
  runner::place(group, place.placement);
  if (plan.entry->ranks_are_threads) group.ranks_of_worker = group.local_world_size;
  group.master_port = 0;  // the supervisor chooses a free port for all ranks
  group.device_indices = place.device_indices;
  auto threads = std::to_string(recipe.devices.threads_per_rank.value_or(1));
  group.environment = {{"OMP_NUM_THREADS", threads}, {"MKL_NUM_THREADS", threads}, {"OMP_WAIT_POLICY", "passive"}};
  group.environment.merge(xla_threads(plan));
  group.log_dir = (run_dir / "logs").string();
  const auto& accelerator = place.topology.accelerator;
  // CPU ranks always communicate through host memory.
  const bool through_host = accelerator.collectives.empty() || recipe.devices.process_group_backend == "shm";
  bool shared_memory = through_host && !place.several_supervisors() && group.world_size > 1 && shares_memory(recipe);
  if (shared_memory) group.shm_bytes = static_cast<int64_t>(shm_segment_bytes(group.local_size));
  group.grace_time = recipe.train.grace_time;
  group.max_restarts = recipe.train.max_restarts;
  group.stopped_limit = hang_limit(recipe.train.timeout);
  return group;
}

/// Sets the worker arguments of an attempt: --attempt, and --resume if it starts from a checkpoint.
void set_attempt(WorkerGroup& group, int64_t attempt, const StartPoint& start) {
  auto& arguments = group.arguments;
  for (const char* option : {"--attempt", "--resume"})
    if (auto found = std::find(arguments.begin(), arguments.end(), option); found != arguments.end())
      arguments.erase(found, found + 2);
  arguments.insert(arguments.end(), {"--attempt", std::to_string(attempt)});
  if (!start.checkpoint.empty()) arguments.insert(arguments.end(), {"--resume", start.checkpoint});
}

/// Where an attempt continues: at the newest checkpoint of this command's attempts (numbers from `first` on), otherwise where the command
/// began. The store is asked only if the folder has none: a checkpoint may be on its way to the store, which takes its time.
StartPoint newest_of_command(const CommandAttempts& run, int64_t first) {
  const StartPoint here = newest_start(run.record.run_dir(), run.record.attempts(), nullptr);
  if (here.attempt >= first) return here;
  try {
    const StartPoint stored = newest_start(run.record.run_dir(), run.record.attempts(), run.checkpoints.store());
    return stored.attempt >= first ? stored : run.start;
  } catch (const Error& error) {
    log::warning("{}", error.what());
    return run.start;
  }
}

/// Runs the workers and records their events, again after failures if train.max_restarts allows it.
Outcome supervise_recorded(const WorkerGroup& group, const CommandAttempts& run, int64_t first) {
  SupervisorHooks hooks;
  hooks.signals = &run.signals;
  hooks.on_event = [&](const nlohmann::json& event) {
    run.record.on_event(event);
    run.checkpoints.on_event(event);
  };
  hooks.on_settle = [&](std::function<void()> answer) {
    run.checkpoints.on_settle(
        [&record = run.record, answer = std::move(answer)]() mutable { record.on_settle(std::move(answer)); });
  };
  hooks.on_tick = [&] {
    run.record.on_tick();
    run.checkpoints.on_tick();
  };
  if (run.elastic) {
    hooks.nodes_changed = [&] { return run.elastic->change(); };
    hooks.end_newcomer = [&](int rank, const Outcome& failure) { return run.elastic->end_newcomer(rank, failure); };
  }
  hooks.on_restart = [&](WorkerGroup& again, int restart, const std::string& why) {
    const StartPoint from = newest_of_command(run, first);
    set_attempt(again, run.record.on_restart(restart, why, from), from);
  };
  return supervise(group, hooks, run.members);
}

/// The next smaller micro-batch to try if micro_batch_size is "auto" and the first step ran out of memory. Empty
/// otherwise, or if there is no smaller size.
std::optional<int64_t> smaller_micro_batch(const Recipe& recipe, const Plan& plan, const Outcome& outcome,
                                           const RunRecord& record) {
  if (outcome.kind != "oom" || record.made_step() || recipe.train.micro_batch_size != Recipe::automatic) return {};
  for (const auto& choice : batch_choices(recipe, {.data = plan.job.data_ranks(), .pipeline = plan.job.pipeline.ranks}))
    if (choice.micro_batch_size < plan.job.micro_batch_size) return choice.micro_batch_size;
  return {};
}

/// The recipe with the next smaller micro-batch.
Recipe with_micro_batch(const Recipe& recipe, const Plan& plan, int64_t size) {
  log::warning("the first step ran out of memory with micro-batches of {}; trying the next smaller size, {}",
               plan.job.micro_batch_size, size);
  Recipe smaller = recipe;
  smaller.train.micro_batch_size = size;
  smaller.origins["train.micro_batch_size"] = decided("larger ones ran out of memory in their first step");
  return smaller;
}

/// The text of the record when an elastic run goes on with other nodes.
std::string going_on(const ElasticNodes& nodes, const StartPoint& start, const Plan& before, const Plan& now) {
  const int count = nodes.place().placement.num_nodes;
  const auto rows = [](const Plan& plan) { return global_batch_size(plan.recipe, plan.job.data_ranks(), 0); };
  return fmt::format("{}: going on with {} ({}) from {}{}",
                     nodes.changes().empty() ? "the same nodes" : nodes.changes(), counted(count, "node"),
                     counted(now.job.world_size(), "rank"),
                     start.checkpoint.empty() ? "the beginning" : fmt::format("step {}", start.step),
                     rows(before) == rows(now) ? ""
                                               : fmt::format("; a step now takes {} sequences instead of {}; the data "
                                                             "continue at the same position",
                                                             rows(now), rows(before)));
}

}  // namespace

Plan plan_run(const Recipe& recipe, const Place& place) {
  Plan plan = plan_on(recipe, place.topology, place.several_supervisors());
  if (plan.entry->ranks_are_threads && place.placement.launched)
    throw usage_error(
        "strategy `{}` has one process for all devices of a node, and {} starts one for each device: {} and start "
        "`runner run` once on each node, or use ddp",
        plan.entry->name, place.placement.cluster,
        place.placement.plugin ? "remove plugins.cluster_environment" : "set devices.cluster = \"local\"");
  if (auto text = place.several_supervisors() ? transport_note(place) : ""; !text.empty()) plan.notes.push_back(text);
  for (const auto& note : plan.notes) log::info("note: {}", note);
  log::info("{}", describe(plan));
  if (plan.rule != "named") log::info("strategy {}: {}", plan.entry->name, plan.reason);
  return plan;
}

Outcome supervise_attempts(const CommandAttempts& run, int64_t attempt, Plan plan) {
  const int64_t first = attempt;
  Recipe recipe = run.elastic ? run.elastic->recipe() : run.recipe;
  Place place = run.place;
  StartPoint start = run.start;
  int restarts = 0;
  while (true) {
    WorkerGroup group = make_group(plan, place, run);
    group.max_restarts -= restarts;
    set_attempt(group, attempt, start);
    auto outcome = supervise_recorded(group, run, first);
    outcome.restarts = restarts += outcome.restarts;
    std::string why, note;
    if (outcome.regroup) {
      auto ended = run.elastic->regroup(outcome.first_cause, run.signals, [&] { run.record.on_tick(); });
      if (ended) {
        ended->restarts = restarts;
        return *ended;
      }
      recipe = run.elastic->recipe();
      place = run.elastic->place();
      start = newest_of_command(run, first);
      const Plan before = std::exchange(plan, plan_run(recipe, place));
      note = going_on(*run.elastic, start, before, plan);
      why = outcome.first_cause;
    } else if (const auto size = smaller_micro_batch(recipe, plan, outcome, run.record)) {
      const Recipe smaller = with_micro_batch(recipe, plan, *size);
      if (run.elastic) run.elastic->limit_micro_batch(smaller);
      plan = plan_run(run.elastic ? run.elastic->recipe() : smaller, place);
    } else {
      return outcome;
    }
    run.folder.write(run.recipe, plan);
    fault_point("replanned");
    run.record.replan(run.recipe, plan, outcome);
    attempt = run.record.begin(start, why);
    if (!note.empty()) run.record.on_event({{"event", "note"}, {"message", note}});
  }
}

}  // namespace runner
