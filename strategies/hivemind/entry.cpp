// The strategy `hivemind`: peers that come and go.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "strategies/contract/entry.hpp"
#include "strategies/contract/gradient_buckets.hpp"
#include "strategies/contract/with_options.hpp"
#include "strategies/hivemind/options.hpp"
#include "strategies/reducers/built_in.hpp"

namespace runner {

namespace {

ParallelPlan hivemind_plan(const Job& job, const HivemindOptions&) {
  ParallelPlan plan = bucketed_plan(job);
  use_reducer(plan, hivemind_averages(), job.options, DType::float32);
  return plan;
}

std::optional<std::string> refuse_hivemind(const Job& job, const HivemindOptions& options) {
  if (job.world_size() > 1)
    return fmt::format(
        "a peer of hivemind is one rank, not {}: set devices.devices = 1 (on CPUs devices.cpu_processes = 1), and "
        "start `runner run` once for each peer",
        job.world_size());
  if (job.optimizer->averages)
    return fmt::format(
        "optimizer.name = \"{}\" evaluates an average that follows from its state, which peers do not "
        "exchange: take another optimizer",
        job.optimizer->name);
  const bool has_means = !job.optimizer->states_of;  // others keep codes of 8 bits, or parts of a matrix
  for (const auto& name : options.average_opt_statistics)
    if (!has_means || std::ranges::find(job.optimizer->states, name) == job.optimizer->states.end())
      return fmt::format(
          "strategy.average_opt_statistics: optimizer.name = \"{}\" has no state `{}` that can be averaged",
          job.optimizer->name, name);
  if (const auto why = refuse_together(options)) return why;
  return refuse_secret(options);
}

std::vector<std::string> notes_of_hivemind(const Job&, const HivemindOptions& options) {
  std::vector<std::string> notes = {
      "hivemind: a step is a batch of this peer, and an update is made when all peers together have "
      "target_batch_size samples; the schedule of the learning rate counts updates, and train.max_steps counts steps",
      "hivemind: run.seed decides the order of samples: give each peer another one; parameters are then those of the "
      "first peer",
      "hivemind: predicted step times are those of a peer alone, without communication: the number of peers and their "
      "network are not known"};
  if (options.initial_peers.empty() && std::getenv("PL_INITIAL_PEERS"))
    notes.push_back("hivemind: the variable PL_INITIAL_PEERS is not read: set strategy.initial_peers");
  if (secret_of(options).empty())
    notes.push_back(fmt::format("hivemind: there is no secret in {}, so every user of this machine can take part",
                                options.key_variable));
  return notes;
}

std::vector<StrategyOption> hivemind_strategy_options() {
  auto options = strategy_options(hivemind_options().options());
  const auto averages_gradients = [](const Job&, const HivemindOptions& given) { return !given.use_local_updates; };
  need(options, {"grad_compression"},
       {"use_local_updates = false", with_options(hivemind_options, averages_gradients)});
  const auto averages_state = [](const Job&, const HivemindOptions& given) { return given.average_state_every > 0; };
  need(options, {"average_opt_statistics", "state_averaging_compression"},
       {"average_state_every > 0", with_options(hivemind_options, averages_state)});
  return options;
}

}  // namespace

Entry hivemind_entry() {
  return {.name = "hivemind",
          .summary = "Peers that come and go collect gradients until they have target_batch_size samples together.",
          .aliases = {{"HivemindStrategy"}},
          .options = hivemind_strategy_options(),
          .distributed = false,
          .refuse = with_options(hivemind_options, refuse_hivemind),
          .notes = with_options(hivemind_options, notes_of_hivemind),
          .plan = with_options(hivemind_options, hivemind_plan)};
}

}  // namespace runner
