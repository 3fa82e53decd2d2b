#include "strategies/pipeline/transfers.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <mutex>
#include <tuple>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "strategies/pipeline/simulation.hpp"

namespace runner {

namespace {

using Actions = std::vector<PipelineAction>;

/// The transfer before a computation, and the one after it, if its neighbour is on another rank.
std::optional<PipelineAction> transfer_before(const PipelineShape& shape, PipelineAction action) {
  const bool forward = action.kind == ActionKind::forward;
  const bool at_end = action.stage == (forward ? 0 : shape.stages() - 1);
  if (shape.ranks == 1 || at_end || action.kind == ActionKind::backward_weight) return std::nullopt;
  action.kind = forward ? ActionKind::receive_activation : ActionKind::receive_gradient;
  return action;
}
std::optional<PipelineAction> transfer_after(const PipelineShape& shape, PipelineAction action) {
  const bool forward = action.kind == ActionKind::forward;
  const bool at_end = action.stage == (forward ? shape.stages() - 1 : 0);
  if (shape.ranks == 1 || at_end || action.kind == ActionKind::backward_weight) return std::nullopt;
  action.kind = forward ? ActionKind::send_activation : ActionKind::send_gradient;
  return action;
}

Actions receive_at_use(const PipelineShape& shape, const Actions& computations) {
  Actions order;
  for (const auto& action : computations) {
    if (const auto receive = transfer_before(shape, action)) order.push_back(*receive);
    order.push_back(action);
    if (const auto send = transfer_after(shape, action)) order.push_back(*send);
  }
  return order;
}

/// Times at which a rank sends its messages of one kind, in order.
std::vector<double> times_of(ActionKind kind, const std::vector<PlayedAction>& played) {
  std::vector<double> times;
  for (const auto& [action, start, end] : played)
    if (action.kind == kind) times.push_back(end);
  return times;
}

struct Arrival {
  PipelineAction receive;
  double sent = 0, next = HUGE_VAL;  ///< when the sender has this message, and the next one
};

/// Receives as late as possible, but before the sender has the next message. In a play with buffers without limit, every message has then
/// left its channel when the next one comes, so this play is possible with buffers of one message, too, and there is no deadlock.
Actions receive_in_time(const PipelineShape& shape, const std::vector<PlayedAction>& played,
                        const std::vector<double>& activations, const std::vector<double>& gradients) {
  std::vector<PlayedAction> computations;
  std::ranges::copy_if(played, std::back_inserter(computations),
                       [](const PlayedAction& one) { return !is_transfer(one.action.kind); });
  std::vector<std::vector<Arrival>> before(computations.size() + 1);
  size_t next_activation = 0, next_gradient = 0;
  for (size_t i = 0; i < computations.size(); ++i)
    if (const auto receive = transfer_before(shape, computations[i].action)) {
      const bool activation = receive->kind == ActionKind::receive_activation;
      const auto& sent = activation ? activations : gradients;
      const size_t n = (activation ? next_activation : next_gradient)++;
      Arrival arrival{.receive = *receive, .sent = sent[n]};
      if (n + 1 < sent.size()) arrival.next = sent[n + 1];
      size_t place = i;
      while (place > 0 && computations[place - 1].end > arrival.next) --place;
      before[place].push_back(arrival);
    }

  Actions order;
  for (size_t i = 0; i < computations.size(); ++i) {
    const auto& [action, start, end] = computations[i];
    const auto add = [&](std::vector<Arrival>& arrivals, auto&& which) {
      std::ranges::stable_sort(arrivals, {}, &Arrival::sent);
      for (const auto& arrival : arrivals)
        if (which(arrival)) order.push_back(arrival.receive);
    };
    const double previous_end = i > 0 ? computations[i - 1].end : -1;
    add(before[i], [&](const Arrival& arrival) { return arrival.next > previous_end; });
    order.push_back(action);
    // Where both neighbours send at the same time, both would wait if they did not receive first.
    add(before[i + 1], [&](const Arrival& arrival) { return arrival.next <= end; });
    if (const auto send = transfer_after(shape, action)) order.push_back(*send);
  }
  return order;
}

}  // namespace

PipelineOrder with_transfers(const PipelineShape& shape, const PipelineOrder& computations) {
  PipelineOrder order;
  for (const auto& actions : computations) order.push_back(receive_at_use(shape, actions));
  const auto played = simulate(shape, order, {.buffer = unlimited_buffer});
  RUNNER_CHECK(played.problems.empty(), "{}", join(played.problems, "; "));
  const auto& ranks = played.ranks;
  for (int rank = 0; rank < shape.ranks; ++rank)
    order[rank] = receive_in_time(shape, ranks[rank],
                                  times_of(ActionKind::send_activation, ranks[(rank + shape.ranks - 1) % shape.ranks]),
                                  times_of(ActionKind::send_gradient, ranks[(rank + 1) % shape.ranks]));
  return order;
}

std::shared_ptr<const PipelineOrder> training_order_with_transfers(const PipelineShape& shape) {
  constexpr size_t most = 8;
  using Key = std::tuple<PipelineSchedule, int, int, int, int>;
  static std::mutex mutex;
  static std::deque<std::pair<Key, std::shared_ptr<const PipelineOrder>>> known;
  const Key key(shape.schedule, shape.ranks, shape.virtual_stages, shape.micro_batches, shape.group);
  const std::lock_guard lock(mutex);
  for (const auto& [of, order] : known)
    if (of == key) return order;
  if (known.size() == most) known.pop_front();
  return known.emplace_back(key, std::make_shared<PipelineOrder>(with_transfers(shape, training_order(shape)))).second;
}

}  // namespace runner
