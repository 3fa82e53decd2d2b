#include "strategies/pipeline/schedule.hpp"

#include <algorithm>
#include <utility>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

constexpr std::pair<PipelineSchedule, const char*> schedule_names[] = {
    {PipelineSchedule::gpipe, "gpipe"},
    {PipelineSchedule::one_f_one_b, "1f1b"},
    {PipelineSchedule::interleaved_1f1b, "interleaved_1f1b"},
    {PipelineSchedule::zb_h1, "zb_h1"},
};

struct ActionName {
  ActionKind kind;
  const char* name;
  char letter;
};
constexpr ActionName action_names[] = {
    {ActionKind::forward, "forward", 'F'},
    {ActionKind::backward, "backward", 'B'},
    {ActionKind::backward_input, "backward_input", 'I'},
    {ActionKind::backward_weight, "backward_weight", 'W'},
    {ActionKind::receive_activation, "receive_activation", 'a'},
    {ActionKind::send_activation, "send_activation", 'A'},
    {ActionKind::receive_gradient, "receive_gradient", 'g'},
    {ActionKind::send_gradient, "send_gradient", 'G'},
};

const ActionName& named(ActionKind kind) { return action_names[static_cast<size_t>(kind)]; }

/// One computation of each micro-batch on each stage of the rank: a group of micro-batches goes through one stage after the other.
/// Backwards go through the last stage first.
std::vector<PipelineAction> all_of(ActionKind kind, const PipelineShape& shape, int rank) {
  std::vector<PipelineAction> list;
  int first = 0;
  for (const int size : shape.groups()) {
    for (int i = 0; i < shape.virtual_stages; ++i) {
      const int chunk = kind == ActionKind::forward ? i : shape.virtual_stages - 1 - i;
      for (int k = first; k < first + size; ++k)
        list.push_back({.kind = kind, .stage = chunk * shape.ranks + rank, .micro_batch = k});
    }
    first += size;
  }
  return list;
}

/// Number of forwards that a rank computes before it begins to compute a forward and a backward in turn.
int warm_up(const PipelineShape& shape, int rank) {
  const int after = shape.ranks - 1 - rank, all = shape.micro_batches * shape.virtual_stages;
  switch (shape.schedule) {
    case PipelineSchedule::gpipe:
      return all;
    case PipelineSchedule::interleaved_1f1b:
      return std::min(2 * after + (shape.virtual_stages - 1) * shape.groups().front(), all);
    case PipelineSchedule::one_f_one_b:
    case PipelineSchedule::zb_h1:
      break;
  }
  return std::min(after, all);
}

std::vector<PipelineAction> training_order_of(const PipelineShape& shape, int rank) {
  const bool splits = splits_backward(shape.schedule);
  const auto forwards = all_of(ActionKind::forward, shape, rank);
  const auto backwards = all_of(splits ? ActionKind::backward_input : ActionKind::backward, shape, rank);
  std::vector<PipelineAction> order;
  size_t next_forward = 0, next_weight = 0;
  const auto forward = [&] {
    if (next_forward < forwards.size()) order.push_back(forwards[next_forward++]);
  };
  const auto weight = [&] {
    order.push_back(backwards[next_weight++]);
    order.back().kind = ActionKind::backward_weight;
  };
  for (int i = warm_up(shape, rank); i > 0; --i) forward();
  for (size_t k = 0; k < backwards.size(); ++k) {
    forward();
    order.push_back(backwards[k]);
    // Rank i is i slots late with its first gradient, so its weights may be i micro-batches late without a gap.
    if (splits && k >= static_cast<size_t>(rank)) weight();
  }
  while (splits && next_weight < backwards.size()) weight();
  return order;
}

template <typename F>
PipelineOrder for_each_rank(const PipelineShape& shape, F&& order) {
  if (const auto why = refuse_pipeline(shape)) throw usage_error("{}", *why);
  PipelineOrder all;
  for (int rank = 0; rank < shape.ranks; ++rank) all.push_back(order(rank));
  return all;
}

}  // namespace

const char* name_of(PipelineSchedule schedule) { return schedule_names[static_cast<size_t>(schedule)].second; }

const std::vector<std::string>& pipeline_schedule_names() {
  static const auto names = [] {
    std::vector<std::string> list;
    for (const auto& [schedule, text] : schedule_names) list.emplace_back(text);
    return list;
  }();
  return names;
}

PipelineSchedule pipeline_schedule(const std::string& name) {
  for (const auto& [schedule, text] : schedule_names)
    if (name == text) return schedule;
  const auto like = nearest(name, pipeline_schedule_names());
  throw usage_error("there is no pipeline schedule \"{}\"; it can be {}{}", name, join_or(pipeline_schedule_names()),
                    like ? fmt::format(" (did you mean {}?)", *like) : "");
}

std::vector<int> PipelineShape::groups() const {
  const bool interleaved = schedule == PipelineSchedule::interleaved_1f1b;
  const int size = std::min(group > 0 ? group : ranks, micro_batches), count = interleaved ? micro_batches / size : 1;
  std::vector<int> sizes(count, micro_batches / count);
  for (int i = 0; i < micro_batches % count; ++i) ++sizes[i];
  return sizes;
}

const char* name_of(ActionKind kind) { return named(kind).name; }

bool is_transfer(ActionKind kind) { return kind >= ActionKind::receive_activation; }

int peer_stage(const PipelineAction& transfer) {
  const bool next = transfer.kind == ActionKind::send_activation || transfer.kind == ActionKind::receive_gradient;
  return transfer.stage + (next ? 1 : -1);
}

std::optional<std::string> refuse_pipeline(const PipelineShape& shape) {
  const bool interleaved = shape.schedule == PipelineSchedule::interleaved_1f1b;
  const auto name = name_of(shape.schedule);
  for (const auto& [what, number] :
       {std::pair{"ranks", shape.ranks}, std::pair{"virtual stages a rank", shape.virtual_stages},
        std::pair{"micro-batches", shape.micro_batches}})
    if (number < 1) return fmt::format("a pipeline with {} {}: at least 1", number, what);
  if (shape.group < 0) return fmt::format("groups of {} micro-batches: at least 1", shape.group);
  if (!interleaved && shape.virtual_stages > 1)
    return fmt::format("{} has 1 virtual stage a rank, not {}; interleaved_1f1b can have {}", name,
                       shape.virtual_stages, shape.virtual_stages);
  if (!interleaved && shape.group)
    return fmt::format("{} has no groups of micro-batches; interleaved_1f1b has them", name);
  if (interleaved && shape.virtual_stages == 1)
    return fmt::format("{} needs 2 or more virtual stages a rank (strategy.virtual_stages); with 1, use 1f1b", name);
  // With smaller groups, a forward would wait for a backward that the same rank computes later, in most shapes.
  const int smallest = std::min(shape.ranks, shape.micro_batches);
  if (shape.group > 0 && shape.group < smallest)
    return fmt::format("groups of {} are too small for {} ranks; use groups of {} or more micro-batches", shape.group,
                       shape.ranks, smallest);
  return std::nullopt;
}

std::vector<std::string> pipeline_notes(const PipelineShape& shape) {
  const int p = shape.ranks, m = shape.micro_batches;
  if (m >= p) return {};
  return {
      fmt::format("{} not fill a pipeline of {} ranks, which wait for each other; use {} or more, with a smaller "
                  "train.micro_batch_size or a larger train.accumulate_grad_batches",
                  m == 1 ? "1 micro-batch does" : fmt::format("{} micro-batches do", m), p, p)};
}

PipelineOrder training_order(const PipelineShape& shape) {
  return for_each_rank(shape, [&](int rank) { return training_order_of(shape, rank); });
}

PipelineOrder forward_order(const PipelineShape& shape) {
  return for_each_rank(shape, [&](int rank) { return all_of(ActionKind::forward, shape, rank); });
}

std::string to_text(const PipelineAction& action, const PipelineShape& shape) {
  const auto text = fmt::format("{}{}", named(action.kind).letter, action.micro_batch);
  const int chunk = action.stage / shape.ranks;
  if (shape.virtual_stages == 1) return text;
  return chunk < 26 ? text + static_cast<char>('a' + chunk) : fmt::format("{}.{}", text, chunk);
}

std::string to_text(const std::vector<PipelineAction>& actions, const PipelineShape& shape) {
  std::vector<std::string> words;
  for (const auto& action : actions) words.push_back(to_text(action, shape));
  return join(words, " ");
}

}  // namespace runner
