// Waits for nodes, and finds the largest number of them for which there is a plan.
#include "runner/commands/elastic_nodes.hpp"

#include <signal.h>

#include <algorithm>

#include "runner/base/clock.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/plan_here.hpp"
#include "runner/launch/first_cause.hpp"
#include "runner/selection/batch.hpp"

namespace runner {

namespace {

constexpr double last_call_seconds = 30;
/// A node that has joined interrupts the training after this time, so that several that come together interrupt it once.
constexpr double join_pause_seconds = 1;
constexpr double wait_seconds = 0.1;

double as_seconds(std::chrono::seconds duration) { return static_cast<double>(duration.count()); }

/// The text of the error that `action` throws.
std::string text_of(const std::exception_ptr& problem) {
  try {
    std::rethrow_exception(problem);
  } catch (const std::exception& error) {
    return error.what();
  }
}

/// The number of sequences of each step of the plan; 0 if the recipe sets it, or if it differs between epochs.
int64_t rows_to_keep(const Recipe& recipe, const Plan& plan) {
  const auto& train = recipe.train;
  const bool differ = train.accumulate_grad_batches && train.accumulate_grad_batches->size() > 1;
  return train.global_batch_size || differ ? 0 : global_batch_size(plan.recipe, plan.job.data_ranks(), 0);
}

/// The recipe with steps of `rows` sequences.
Recipe with_rows(Recipe recipe, int64_t rows) {
  recipe.train.global_batch_size = rows;
  recipe.train.accumulate_grad_batches.reset();
  recipe.origins.erase("train.accumulate_grad_batches");
  recipe.origins["train.global_batch_size"] =
      decided("the sequences of a step with devices.num_nodes, so that a step keeps them when nodes leave or join");
  return recipe;
}

Plan plan_at(const Recipe& recipe, const Place& place) {
  return plan_on(recipe, place.topology, place.several_supervisors());
}

}  // namespace

ElasticNodes::ElasticNodes(ElasticMembers& members, const Recipe& recipe, const Place& place)
    : members_(members), recipe_(recipe), place_(place) {
  measure_step();
}

/// Sets step_rows_.
void ElasticNodes::measure_step() {
  step_rows_ = 0;
  try {
    step_rows_ =
        rows_to_keep(recipe_, plan_at(recipe_, with_nodes(place_, static_cast<int>(recipe_.devices.num_nodes))));
  } catch (const Error& error) {
    if (error.code() == ExitCode::environment) throw;
    // There is no plan for num_nodes. gather() reports it, if the run is to start with them.
  }
}

ElasticNodes::Choice ElasticNodes::choose(int nodes) const {
  const Place place = with_nodes(place_, nodes);
  if (step_rows_ > 0 && nodes != recipe_.devices.num_nodes) {
    Recipe same_steps = with_rows(recipe_, step_rows_);
    try {
      plan_at(same_steps, place);
      return {std::move(same_steps), nullptr};
    } catch (const Error& error) {
      if (error.code() == ExitCode::environment)
        return {.recipe = recipe_, .problem = std::current_exception(), .may_pass = true};
      // These ranks cannot share a step of that size.
    }
  }
  try {
    plan_at(recipe_, place);
  } catch (const Error& error) {
    return {.recipe = recipe_, .problem = std::current_exception(), .may_pass = error.code() == ExitCode::environment};
  }
  return {recipe_, nullptr};
}

const ElasticNodes::Choice& ElasticNodes::choice(int nodes) {
  const auto found = known_.find(nodes);
  if (found != known_.end() && !found->second.may_pass) return found->second;
  return known_.insert_or_assign(nodes, choose(nodes)).first->second;
}

/// The largest number of nodes, up to `there`, with which the run can go on; 0 if there is none.
int ElasticNodes::usable(int there) {
  const auto& devices = recipe_.devices;
  for (int64_t nodes = std::min<int64_t>(there, devices.most_nodes()); nodes >= devices.least_nodes(); --nodes)
    if (!choice(static_cast<int>(nodes)).problem) return static_cast<int>(nodes);
  return 0;
}

/// Why more than `nodes` nodes are not used.
std::string ElasticNodes::reason_to_wait(int nodes) {
  if (nodes >= recipe_.devices.most_nodes()) return fmt::format(" (devices.max_nodes = {})", nodes);
  return fmt::format(", because there is no plan for {} ({})", nodes + 1, text_of(choice(nodes + 1).problem));
}

void ElasticNodes::settle(int nodes) {
  changes_ = join(members_.take_part(nodes), ", ");
  place_ = with_nodes(place_, nodes);
}

/// Why `there` nodes are not enough.
std::string ElasticNodes::shortage(int there) {
  const auto& devices = recipe_.devices;
  if (there < devices.least_nodes())
    return fmt::format("{} there, and devices.min_nodes = {}",
                       there == 1 ? "1 node is" : counted(there, "node") + " are", devices.least_nodes());
  const auto most = static_cast<int>(std::min<int64_t>(there, devices.most_nodes()));
  return fmt::format("there is no plan for {}: {}", counted(most, "node"), text_of(choice(most).problem));
}

void ElasticNodes::gather() {
  const auto& devices = recipe_.devices;
  const auto& here = place_.placement;
  const double until = steady_seconds() + as_seconds(devices.rendezvous_timeout);
  while (true) {
    members_.look();
    const int there = members_.there(), nodes = usable(there);
    if (there >= devices.num_nodes)
      if (const auto& problem = choice(static_cast<int>(devices.num_nodes)).problem) std::rethrow_exception(problem);
    const double now = steady_seconds();
    const bool last_call = now - members_.last_arrival() >= last_call_seconds || now >= until;
    if (nodes > 0 && (there >= devices.num_nodes || last_call)) return settle(nodes);
    if (now >= until)
      throw environment_error(
          "rendezvous at {}:{}: {} after {}: start the same command on other nodes with --master-addr {} "
          "--master-port {}, without --node-rank, or allow more time (devices.rendezvous_timeout)",
          here.master_addr, here.master_port, shortage(there), write_duration(devices.rendezvous_timeout),
          here.master_addr, here.master_port);
    members_.wait(std::min(until - now, wait_seconds));
  }
}

NodeChange ElasticNodes::change() {
  members_.look();
  if (auto leaving = members_.leaving(); !leaving.empty()) return {.why = std::move(leaving), .leaving = true};
  const int now = place_.placement.num_nodes, there = members_.there();
  if (there <= now || steady_seconds() - members_.last_arrival() < join_pause_seconds) return {};
  const int nodes = usable(there);
  if (nodes > now) return {.why = fmt::format("{} joined", counted(nodes - now, "node"))};
  members_.tell_waiting(fmt::format("the run goes on with its {}{}: this node waits until one leaves",
                                    counted(now, "node"), reason_to_wait(now)));
  return {};
}

std::optional<Outcome> ElasticNodes::regroup(const std::string& why, StopSignals& signals,
                                             const std::function<void()>& tick) {
  const auto& devices = recipe_.devices;
  const double until = steady_seconds() + as_seconds(devices.rendezvous_timeout);
  for (bool told = false;;) {
    members_.look();
    members_.part_with_leaving();
    for (const int signal : signals.take()) {
      if (signal == SIGTSTP) {
        ::raise(SIGSTOP);
        continue;
      }
      const bool interrupted = signal == SIGINT;
      return Outcome{interrupted ? ExitCode::interrupted : ExitCode::preempted,
                     interrupted ? "interrupted" : "preempted",
                     fmt::format("stopped by {}{}", signal_name(signal), interrupted ? " (Ctrl-C)" : "")};
    }
    const int there = members_.there();
    if (const int nodes = usable(there); nodes > 0) {
      settle(nodes);
      return std::nullopt;
    }
    if (steady_seconds() >= until)
      return Outcome{ExitCode::environment, "failed",
                     fmt::format("{}; the run cannot go on: {}, and no other joined within {} "
                                 "(devices.rendezvous_timeout)",
                                 why, shortage(there), write_duration(devices.rendezvous_timeout)),
                     "environment"};
    if (!std::exchange(told, true))
      log::warning("{}; {}: waiting up to {} for other nodes", why, shortage(there),
                   write_duration(devices.rendezvous_timeout));
    members_.wait(wait_seconds, signals.fd());
    tick();
  }
}

void ElasticNodes::limit_micro_batch(const Recipe& smaller) {
  recipe_.train.micro_batch_size = smaller.train.micro_batch_size;
  recipe_.origins["train.micro_batch_size"] = smaller.origin("train.micro_batch_size");
  known_.clear();
  measure_step();
}

}  // namespace runner
