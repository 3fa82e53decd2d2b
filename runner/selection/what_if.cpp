#include "runner/selection/what_if.hpp"

#include <fmt/format.h>

#include <optional>

#include "runner/base/text.hpp"
#include "runner/models/models.hpp"
#include "runner/selection/offers.hpp"

namespace runner {

namespace {

struct Changed {
  std::string change;
  SelectionRequest request;
};

void smaller_micro_batch(const SelectionRequest& request, std::vector<Changed>& list) {
  auto size = request.recipe.train.micro_batch_size.value_or(Recipe::automatic);
  if (size < 2) return;
  Changed changed{"train.micro_batch_size = 1", request};
  changed.request.recipe.train.micro_batch_size = 1;
  list.push_back(std::move(changed));
}

/// Policy "fastest" also considers recomputation with a larger micro-batch, where the documented rules do not need it.
void fastest_policy(const SelectionRequest& request, std::vector<Changed>& list) {
  if (request.recipe.selection.policy != Recipe::Selection().policy) return;
  Changed changed{"selection.policy = \"fastest\"", request};
  changed.request.recipe.selection.policy = "fastest";
  list.push_back(std::move(changed));
}

/// Half the batch needs fewer or smaller micro-batches. With twice the batch, the fixed cost of a step is lower per
/// sequence.
void other_batches(const SelectionRequest& request, std::vector<Changed>& list) {
  const auto& train = request.recipe.train;
  if (!train.global_batch_size) return;
  int64_t ranks = request.topology.data_ranks(), micro = train.micro_batch_size.value_or(Recipe::automatic);
  int64_t step = micro == Recipe::automatic ? ranks : ranks * micro, now = *train.global_batch_size;
  constexpr int64_t most = int64_t{1} << 40;
  for (int64_t size : {now / 2, now < most ? now * 2 : now}) {
    if (size == now || size < step || size % step != 0) continue;
    Changed changed{fmt::format("train.global_batch_size = {}", size), request};
    changed.request.recipe.train.global_batch_size = size;
    list.push_back(std::move(changed));
  }
}

void higher_limit(const SelectionRequest& request, std::vector<Changed>& list) {
  const auto& asked = request.recipe.devices.memory_limit;
  int64_t own = memory_limit(request.topology, 0).device;
  own = own >> 30 << 30;
  if (!asked || own <= *asked) return;
  Changed changed{fmt::format("devices.memory_limit = \"{}GiB\", the maximum", own >> 30), request};
  changed.request.recipe.devices.memory_limit = own;
  list.push_back(std::move(changed));
}

void disk(const SelectionRequest& request, std::vector<Changed>& list) {
  if (request.given.contains("nvme_path")) return;
  Changed changed{"strategy.nvme_path = \"FOLDER\" on a fast disk", request};
  changed.request.given["nvme_path"] = "/";
  list.push_back(std::move(changed));
}

void smaller_precision(const SelectionRequest& request, std::vector<Changed>& list) {
  if (request.recipe.plugins.precision) return;  // it decides the mode
  const std::string& mode = request.recipe.precision.mode;
  std::string other = mode == "64-true"                                     ? "32-true"
                      : mode == "32-true" && request.topology.bf16          ? "bf16-mixed"
                      : mode == "32-true" && !request.topology.on_devices() ? "bf16-mixed"
                      : mode == "bf16-mixed"                                ? "bf16-true"
                      : mode == "32-true" || mode == "16-mixed"             ? "16-true"
                                                                            : "";
  if (other.empty()) return;
  Changed changed{fmt::format("precision = \"{}\"", other), request};
  changed.request.recipe.precision.mode = other;
  list.push_back(std::move(changed));
}

void shorter_sequences(const SelectionRequest& request, std::vector<Changed>& list) {
  int64_t length = request.model->seq_len / 2;
  if (length < 128) return;
  Changed changed{fmt::format("data.seq_len = {}", length), request};
  changed.request.model = std::make_shared<ModelSpec>(make_spec(request.recipe, request.model->vocab_size, length));
  list.push_back(std::move(changed));
}

/// CPU ranks share host memory: with fewer ranks, each has more.
void fewer_ranks(const SelectionRequest& request, std::vector<Changed>& list) {
  const auto& topology = request.topology;
  if (topology.on_devices() || topology.num_nodes > 1 || topology.sizes.complete()) return;
  for (int ranks = topology.devices_per_node - 1; ranks >= 1; --ranks) {
    if (topology.devices_per_node % ranks != 0) continue;  // the batch must remain divisible
    if (ranks % topology.sizes.ranks_of_data() != 0) continue;
    Changed changed{fmt::format("devices.cpu_processes = {}", ranks), request};
    changed.request.topology.devices_per_node = ranks;
    list.push_back(std::move(changed));
  }
}

/// `factor` times the devices for the data axis; more nodes if a node has no room for them.
void more_devices(const SelectionRequest& request, int factor, std::vector<Changed>& list) {
  Changed changed{"", request};
  auto& topology = changed.request.topology;
  auto& train = changed.request.recipe.train;
  constexpr int usual_node = 8;
  int ranks = topology.data_ranks() * factor;
  if (train.global_batch_size && *train.global_batch_size % ranks != 0) return;
  if (train.global_batch_size && train.micro_batch_size.value_or(Recipe::automatic) != Recipe::automatic &&
      *train.global_batch_size / ranks % *train.micro_batch_size != 0)
    return;
  if (!topology.on_devices()) return;  // more CPU ranks have no more memory and no more cores
  if (topology.sizes.complete()) return;
  if (topology.devices_per_node * factor <= usual_node && topology.num_nodes == 1) {
    topology.devices_per_node *= factor;
    changed.change = fmt::format("devices = {}", topology.devices_per_node);
  } else {
    topology.num_nodes *= factor;
    changed.change = fmt::format("num_nodes = {}", topology.num_nodes);
  }
  list.push_back(std::move(changed));
}

/// nullopt if policy "fastest" has no times after the change (for example for 16 bits on a CPU without them).
std::optional<Choice> answer_to(const SelectionRequest& request, const StepClock& clock) {
  try {
    return choose(request, clock);
  } catch (const SpeedNotKnown&) {
    return {};
  }
}

}  // namespace

std::vector<WhatIf> what_if(const SelectionRequest& request, const StepClock& clock, bool fits) {
  std::vector<Changed> list;
  if (fits) fastest_policy(request, list);
  smaller_micro_batch(request, list);
  other_batches(request, list);
  if (!fits) higher_limit(request, list);
  if (!fits) fewer_ranks(request, list);
  if (!fits) disk(request, list);
  smaller_precision(request, list);
  shorter_sequences(request, list);
  more_devices(request, 2, list);
  std::vector<WhatIf> answers;
  for (const auto& changed : list)
    if (auto then = answer_to(changed.request, clock)) answers.push_back({changed.change, std::move(*then)});
  return answers;
}

std::string explain_shortfall(const SelectionRequest& request, const Choice& choice, const StepClock& clock) {
  const Candidate* least = least_candidate(choice);
  if (!least) {
    std::string text = "no strategy can run this recipe here:";
    for (const auto& candidate : choice.candidates)
      text += fmt::format("\n  {}: {}", label(candidate), candidate.refused);
    return text;
  }
  bool on_host = choice.limit.decided_by_host(least->bytes, least->host);
  int64_t needed = on_host ? least->host : least->bytes;
  int64_t most = on_host ? choice.limit.host : choice.limit.device;
  std::string limit = on_host ? fmt::format("{} of host memory", format_bytes(most)) : choice.limit.reason;
  std::string over = needed > most ? fmt::format("{} more than {}", format_bytes(needed - most), limit)
                                   : fmt::format("too close to {} for the accuracy of the prediction", limit);
  std::string text = fmt::format("nothing fits: the least is {} at micro-batch {}{}, which needs {} a rank, {}",
                                 label(*least), least->job.micro_batch_size,
                                 least->every == 1 ? " with every layer recomputed" : "", format_bytes(needed), over);
  std::vector<std::string> ways;
  auto add = [&](const std::string& change, const Choice& then) {
    if (ways.size() < 3 && then.fits())
      ways.push_back(
          fmt::format("\n  {}  ({}, {} a rank)", change, label(then.plan()), format_bytes(then.plan().bytes)));
  };
  for (const auto& answer : what_if(request, clock, false)) add(answer.change, answer.choice);
  for (int factor = 4; factor <= 4096 && ways.size() < 3; factor *= 2) {
    std::vector<Changed> more;
    more_devices(request, factor, more);
    for (const auto& changed : more) {
      auto then = answer_to(changed.request, clock);
      if (!then || !then->fits()) continue;
      add(changed.change, *then);
      factor = 4096;  // one is enough
    }
  }
  text +=
      ways.empty() ? "; no single change would make it fit" : "\npossible changes, cheapest first:" + join(ways, "");
  const auto offered = offers_text(make_offers(request, clock));
  return offered.empty() ? text : text + "\n" + offered;
}

}  // namespace runner
