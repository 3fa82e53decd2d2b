#include "strategies/hivemind/entry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

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
        "start "
        "`runner run` once for each peer",
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

/// "/ip4/0.0.0.0/tcp/1440", or a list that begins with one.
std::optional<ForeignName::Values> from_host_maddrs(const nlohmann::json& value) {
  const auto& first = value.is_array() && !value.empty() ? value.front() : value;
  if (!first.is_string()) return std::nullopt;
  const auto text = first.get<std::string>();
  const std::string start = "/ip4/", middle = "/tcp/";
  const size_t at = text.find(middle);
  if (!text.starts_with(start) || at == std::string::npos) return std::nullopt;
  const auto port = text.substr(at + middle.size());
  if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != std::string::npos) return std::nullopt;
  return ForeignName::Values{{"strategy.host", text.substr(start.size(), at - start.size())},
                             {"strategy.port", std::stoi(port)}};
}

std::optional<ForeignName::Values> from_averager_opts(const nlohmann::json& value) {
  if (value.is_null() || (value.is_object() && value.empty())) return ForeignName::Values{};
  if (!value.is_object() || value.size() != 1 || !value.contains("request_timeout")) return std::nullopt;
  return ForeignName::Values{{"strategy.request_timeout", value.at("request_timeout")}};
}

std::vector<ForeignName> hivemind_foreign_names() {
  const std::string side_server = "Lightning 1.7 removed it: peers find each other by strategy.initial_peers";
  std::vector<ForeignName> names = {
      {.name = "strategy.batch_size",
       .key = "train.global_batch_size",
       .meaning = ForeignName::same_value_of("train.global_batch_size"),
       .note = "the samples that this peer computes in a step"},
      {.name = "host_maddrs",
       .key = "strategy.host",
       .meaning = from_host_maddrs,
       .note = "the first address is used, over TCP",
       .refusal = "give strategy.host and strategy.port, or an address such as \"/ip4/0.0.0.0/tcp/1440\""},
      {.name = "averager_opts",
       .key = "strategy.request_timeout",
       .meaning = from_averager_opts,
       .note = "request_timeout is an option of its own",
       .refusal = "only request_timeout is known, as strategy.request_timeout"},
      ForeignName::accepted("scheduler_fn", "nothing to do: the schedule of [lr_scheduler] follows the updates"),
      ForeignName::renamed("gradient_compression", "strategy.grad_compression"),
      ForeignName::refused("tracker_opts", "progress has no options: records are exchanged at each change"),
      ForeignName::refused("extra_tensors", "peers average parameters and strategy.average_opt_statistics"),
      ForeignName::refused("load_state_compression", "the state for late joiners is sent as it is")};
  for (const char* name :
       {"endpoint", "peer_endpoint", "persistent", "retry_endpoint_attempts", "retry_endpoint_sleep_duration"})
    names.push_back(ForeignName::refused(name, side_server));
  for (auto& name : names) name.sections = {"strategy"};
  return names;
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
  Entry entry;
  entry.name = "hivemind";
  entry.summary = "Peers that come and go collect gradients until they have target_batch_size samples together.";
  entry.aliases = {{"HivemindStrategy"}};
  entry.options = hivemind_strategy_options();
  entry.foreign_names = hivemind_foreign_names();
  entry.distributed = false;
  entry.refuse = with_options(hivemind_options, refuse_hivemind);
  entry.notes = with_options(hivemind_options, notes_of_hivemind);
  entry.plan = with_options(hivemind_options, hivemind_plan);
  return entry;
}

}  // namespace runner
