#include "strategies/pipeline/simulation.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "strategies/pipeline/transfers.hpp"

namespace runner {

namespace {

/// The progress of a micro-batch on one of a rank's stages: what the rank has done, and has received.
enum Progress : uint8_t {
  has_input = 1,
  forward_done = 2,
  has_gradient = 4,
  input_done = 8,
  weight_done = 16,
  activation_sent = 32,
  gradient_sent = 64,
};

/// The progress that an action needs before, and that it adds. `time`: how long it takes; null for transfers.
struct Rule {
  uint8_t needs, adds;
  double StageTime::*time = nullptr;
};
constexpr Rule rules[] = {
    {.needs = has_input, .adds = forward_done, .time = &StageTime::forward},
    {.needs = forward_done | has_gradient, .adds = input_done | weight_done, .time = &StageTime::backward},
    {.needs = forward_done | has_gradient, .adds = input_done, .time = &StageTime::backward_input},
    {.needs = input_done, .adds = weight_done, .time = &StageTime::backward_weight},
    {.needs = 0, .adds = has_input},                   // receive_activation
    {.needs = forward_done, .adds = activation_sent},  // send_activation
    {.needs = 0, .adds = has_gradient},                // receive_gradient
    {.needs = input_done, .adds = gradient_sent},      // send_gradient
};

const char* missing_text(uint8_t missing) {
  if (missing & has_input) return "its input";
  if (missing & forward_done) return "its forward";
  if (missing & has_gradient) return "the gradient of its output";
  return "the gradient of its input";
}

bool sends(ActionKind kind) { return kind == ActionKind::send_activation || kind == ActionKind::send_gradient; }

bool of_activation(ActionKind kind) {
  return kind == ActionKind::receive_activation || kind == ActionKind::send_activation;
}

/// "forward of micro-batch 2", "receive the activation of micro-batch 2 from stage 0".
std::string describe(const PipelineAction& action) {
  if (!is_transfer(action.kind)) return fmt::format("{} of micro-batch {}", name_of(action.kind), action.micro_batch);
  return fmt::format("{} the {} of micro-batch {} {} stage {}", sends(action.kind) ? "send" : "receive",
                     of_activation(action.kind) ? "activation" : "gradient", action.micro_batch,
                     sends(action.kind) ? "to" : "from", peer_stage(action));
}

/// The messages from a rank to a neighbour, of one kind.
struct Channel {
  struct Message {
    PipelineAction sent;
    double time;
  };
  std::vector<Message> messages;
  std::vector<double> received;  ///< when the messages left the buffer
};

/// Counts micro-batches whose activations are held.
struct Held {
  int now = 0, peak = 0;
  void add(int change) { peak = std::max(peak, now += change); }
};
int change_of_held(ActionKind kind) {
  if (kind == ActionKind::forward) return 1;
  return kind == ActionKind::backward || kind == ActionKind::backward_weight ? -1 : 0;
}

/// An action waits only for messages, and channels keep the order of messages. So the result does not depend on the order in which ranks
/// are visited (Kahn 1974), and each rank is played as far as it comes.
class Player {
 public:
  Player(const PipelineShape& shape, const PipelineOrder& order, const PipelineTiming& timing)
      : shape_(shape), order_(order), timing_(timing) {
    RUNNER_CHECK(ssize(order) == shape.ranks && (timing.stages.empty() || ssize(timing.stages) == shape.stages()) &&
                     timing.buffer >= 1,
                 "{} ranks with orders, {} stages with times, buffer {}", order.size(), timing.stages.size(),
                 timing.buffer);
    done_.resize(static_cast<size_t>(shape.stages()) * shape.micro_batches);
    for (int k = 0; k < shape.micro_batches; ++k) done(0, k) = has_input;
    channels_.resize(2 * static_cast<size_t>(shape.ranks));
    stage_held_.resize(shape.stages());
    rank_held_.resize(shape.ranks);
    time_.resize(shape.ranks);
    result_.ranks.resize(shape.ranks);
    for (int rank = 0; rank < shape.ranks; ++rank) result_.ranks[rank].reserve(order[rank].size());
  }

  PipelineSimulation play() {
    for (int rank = 0; rank < shape_.ranks; ++rank) ready_.push_back(rank);
    while (!ready_.empty() && result_.problems.empty()) {
      const int rank = ready_.back();
      ready_.pop_back();
      while (next(rank) && step(rank, *next(rank))) continue;
    }
    if (result_.problems.empty()) report_waits();
    if (result_.problems.empty()) report_unreceived();
    summarise();
    return std::move(result_);
  }

 private:
  uint8_t& done(int stage, int micro_batch) {
    return done_[static_cast<size_t>(stage) * shape_.micro_batches + micro_batch];
  }
  /// The next action of a rank; null if it has finished.
  const PipelineAction* next(int rank) const {
    const auto played = result_.ranks[rank].size();
    return played < order_[rank].size() ? &order_[rank][played] : nullptr;
  }
  Channel& channel(int sender, bool activation) { return channels_[2 * static_cast<size_t>(sender) + activation]; }
  bool stop(std::string problem) {
    result_.problems.push_back(std::move(problem));
    return false;
  }

  /// Plays an action; false if the rank must wait, or may not do this.
  bool step(int rank, const PipelineAction& action) {
    const int other = is_transfer(action.kind) ? peer_stage(action) : action.stage;
    if (action.micro_batch < 0 || action.micro_batch >= shape_.micro_batches || std::min(action.stage, other) < 0 ||
        std::max(action.stage, other) >= shape_.stages() || shape_.rank_of(action.stage) != rank)
      return stop(fmt::format("rank {} cannot do this on stage {}: {}", rank, action.stage, describe(action)));
    const auto rule = rules[static_cast<size_t>(action.kind)];
    auto& now = done(action.stage, action.micro_batch);
    if (const auto missing = static_cast<uint8_t>(rule.needs & ~now))
      return stop(fmt::format("stage {}: {} comes before {}", action.stage, describe(action), missing_text(missing)));
    if (now & rule.adds) return stop(fmt::format("stage {}: {} comes twice", action.stage, describe(action)));

    const double start = time_[rank];
    if (is_transfer(action.kind)) {
      if (!(sends(action.kind) ? send(rank, action) : receive(rank, action))) return false;
    } else {
      compute(rank, action);
    }
    now |= rule.adds;
    result_.ranks[rank].push_back({.action = action, .start = start, .end = time_[rank]});
    return true;
  }

  void compute(int rank, const PipelineAction& action) {
    const auto time = timing_.stages.empty() ? StageTime{} : timing_.stages[action.stage];
    time_[rank] += time.*rules[static_cast<size_t>(action.kind)].time;
    stage_held_[action.stage].add(change_of_held(action.kind));
    rank_held_[rank].add(change_of_held(action.kind));
    // The neighbouring stages of this rank, and the loss at the end, need no message.
    const auto has = [&](int stage, Progress what) {
      if (shape_.rank_of(stage) == rank) done(stage, action.micro_batch) |= what;
    };
    const bool last = action.stage + 1 == shape_.stages();
    if (action.kind == ActionKind::forward)
      has(last ? action.stage : action.stage + 1, last ? has_gradient : has_input);
    if (action.kind == ActionKind::backward || action.kind == ActionKind::backward_input)
      if (action.stage > 0) has(action.stage - 1, has_gradient);
  }

  bool send(int rank, const PipelineAction& action) {
    auto& [messages, received] = channel(rank, of_activation(action.kind));
    const auto held = messages.size() - received.size();
    if (held >= static_cast<size_t>(timing_.buffer)) return false;
    if (messages.size() >= static_cast<size_t>(timing_.buffer))
      time_[rank] = std::max(time_[rank], received[messages.size() - timing_.buffer]);
    messages.push_back({.sent = action, .time = time_[rank]});
    ready_.push_back(shape_.rank_of(peer_stage(action)));
    return true;
  }

  bool receive(int rank, const PipelineAction& action) {
    const int sender = shape_.rank_of(peer_stage(action));
    auto& [messages, received] = channel(sender, of_activation(action.kind));
    if (received.size() == messages.size()) return false;
    const auto& message = messages[received.size()];
    if (message.sent.stage != peer_stage(action) || message.sent.micro_batch != action.micro_batch)
      return stop(fmt::format("stage {} waits to {}, but the next message is of micro-batch {} and from stage {}",
                              action.stage, describe(action), message.sent.micro_batch, message.sent.stage));
    time_[rank] = std::max(time_[rank], message.time + timing_.latency);
    received.push_back(time_[rank]);
    ready_.push_back(sender);
    return true;
  }

  /// "stage 1 waits to receive the activation of micro-batch 2 from stage 0, which waits to send ...".
  void report_waits() {
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      const auto* action = next(rank);
      if (!action) continue;
      const int stage = peer_stage(*action);
      const auto* other = next(shape_.rank_of(stage));
      stop(fmt::format("stage {} waits to {}, {}", action->stage, describe(*action),
                       !other ? std::string("which has finished")
                       : other->stage == stage
                           ? fmt::format("which waits to {}", describe(*other))
                           : fmt::format("whose rank waits, on stage {}, to {}", other->stage, describe(*other))));
    }
  }

  void report_unreceived() {
    for (const auto& [messages, received] : channels_)
      for (size_t i = received.size(); i < messages.size(); ++i) {
        const auto& sent = messages[i].sent;
        stop(fmt::format("stage {} does not receive the {} of micro-batch {} from stage {}", peer_stage(sent),
                         of_activation(sent.kind) ? "activation" : "gradient", sent.micro_batch, sent.stage));
      }
  }

  void summarise() {
    result_.end = *std::ranges::max_element(time_);
    for (const auto& actions : result_.ranks) {
      double busy = 0;
      for (const auto& [action, start, end] : actions) busy += is_transfer(action.kind) ? 0 : end - start;
      result_.idle.push_back(result_.end > 0 ? 1 - busy / result_.end : 0);
    }
    for (const auto& held : stage_held_) result_.stage_peak.push_back(held.peak);
    for (const auto& held : rank_held_) result_.rank_peak.push_back(held.peak);
  }

  const PipelineShape& shape_;
  const PipelineOrder& order_;
  const PipelineTiming& timing_;
  std::vector<uint8_t> done_;      ///< Progress, of each stage and micro-batch
  std::vector<Channel> channels_;  ///< of each sender: gradients, activations
  std::vector<Held> stage_held_, rank_held_;
  std::vector<double> time_;  ///< at which each rank has finished what was played
  std::vector<int> ready_;    ///< ranks that may be able to go on
  PipelineSimulation result_;
};

}  // namespace

PipelineSimulation simulate(const PipelineShape& shape, const PipelineOrder& order, const PipelineTiming& timing) {
  return Player(shape, order, timing).play();
}

PipelineShape settled(PipelineShape shape) {
  shape.micro_batches = std::min(shape.micro_batches, settled_micro_batches(shape));
  return shape;
}

bool repeats(const PipelineShape& shape) {
  return shape.schedule != PipelineSchedule::interleaved_1f1b ||
         (shape.group == 0 && shape.micro_batches % shape.ranks == 0);
}

double step_length(const PipelineShape& shape, const PipelineTiming& timing) {
  const auto end = [&](int micro_batches) {
    PipelineShape played = shape;
    played.micro_batches = micro_batches;
    return simulate(played, *training_order_with_transfers(played), timing).end;
  };
  const int shorter = settled_micro_batches(shape) + shape.micro_batches % shape.ranks;
  const int longer = shorter + shape.ranks;
  if (!repeats(shape) || shape.micro_batches <= longer) return end(shape.micro_batches);
  const double at_longer = end(longer), of_each = (at_longer - end(shorter)) / shape.ranks;
  return at_longer + of_each * (shape.micro_batches - longer);
}

}  // namespace runner
