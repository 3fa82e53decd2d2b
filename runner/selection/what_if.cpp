#include "runner/selection/what_if.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/models/models.hpp"

namespace runner {

namespace {

/// An offer before the choice.
struct Proposal {
  std::string what;
  std::vector<std::string> lines;
  SelectionRequest request;
};

/// Whether `other` keeps the states of `own`, and more that belong to their smaller form, and changes weights by the same rule.
bool is_smaller_form(const OptimizerSpec& other, const OptimizerSpec& own) {
  return other.states.size() > own.states.size() &&
         std::ranges::equal(own.states, std::span(other.states).first(own.states.size())) &&
         other.decays_apart_from_gradient == own.decays_apart_from_gradient;
}

void smaller_optimizer(const SelectionRequest& request, std::vector<Proposal>& list) {
  const auto* own = find_optimizer(request.recipe.optimizer.name);
  if (!own || own->states.empty() || request.recipe.fine_tune.adapts()) return;
  for (const auto& other : optimizers()) {
    const bool divided = request.topology.sizes.tensor.value_or(1) > 1;
    if (!is_smaller_form(other, *own) || (divided && other.reach != OptimizerSpec::Reach::element)) continue;
    Proposal proposal{.what = other.name + ": the same optimizer with state of fewer bits",
                      .lines = {fmt::format("optimizer.name = \"{}\"", other.name)},
                      .request = request};
    proposal.request.recipe.optimizer.name = other.name;
    list.push_back(std::move(proposal));
  }
}

void adapters(const SelectionRequest& request, bool quantized, std::vector<Proposal>& list) {
  const auto& now = request.recipe.fine_tune;
  if (now.method == "freeze" || now.quantizes() || (now.adapts() && !quantized)) return;
  Proposal proposal{.what = quantized ? "QLoRA: low-rank adapters are trained, and the frozen base has 4 bits"
                                      : "LoRA: low-rank adapters are trained, and the base is frozen",
                    .lines = {},
                    .request = request};
  auto& recipe = proposal.request.recipe;
  const auto set = [&](const char* key, std::string& member, const std::string& value) {
    if (member == value) return;
    member = value;
    proposal.lines.push_back(fmt::format("{} = \"{}\"", key, value));
  };
  if (!now.adapts()) set("fine_tune.method", recipe.fine_tune.method, "lora");
  if (quantized) set("fine_tune.quantization", recipe.fine_tune.quantization, "nf4");
  if (!recipe.model.init_from) {
    recipe.model.init_from = "FOLDER";
    proposal.lines.push_back("model.init_from = \"FOLDER\"  # with the base");
  }
  proposal.request.model =
      std::make_shared<ModelSpec>(make_spec(recipe, request.model->vocab_size, request.model->seq_len));
  list.push_back(std::move(proposal));
}

/// The proposal with a base in 16 bits, for mixed precision, which stores it in 32; nullopt if there is no such base.
std::optional<Proposal> in_16_bits(const Proposal& proposal) {
  const auto& mode = proposal.request.recipe.precision.mode;
  const bool mixed = mode == "bf16-mixed" || mode == "16-mixed";
  if (proposal.request.recipe.plugins.precision) return {};  // it decides the mode
  if (!mixed || !proposal.request.recipe.fine_tune.adapts() || proposal.request.recipe.fine_tune.quantizes()) return {};
  Proposal smaller = proposal;
  smaller.request.recipe.precision.mode = mode == "bf16-mixed" ? "bf16-true" : "16-true";
  smaller.lines.push_back(fmt::format("precision = \"{}\"  # {} stores the frozen base in 32 bits",
                                      smaller.request.recipe.precision.mode, mode));
  return smaller;
}

std::string memory_text(const Choice& choice) {
  const Candidate* least = choice.fits() ? &choice.plan() : least_candidate(choice);
  if (!least) return "no strategy can run it";
  return fmt::format("{}, micro-batch {}{}: {}{}", label(*least), least->job.micro_batch_size,
                     least->every == 1 ? ", every layer recomputed" : "", memory_needed(*least),
                     choice.fits() ? "" : ", which does not fit");
}

struct Changed {
  std::string change;
  SelectionRequest request;
};

/// Adds a change to the list. The caller makes it in the request that is returned.
SelectionRequest& add_change(const std::string& change, const SelectionRequest& request, std::vector<Changed>& list) {
  return list.emplace_back(Changed{change, request}).request;
}

void smaller_micro_batch(const SelectionRequest& request, std::vector<Changed>& list) {
  auto size = request.recipe.train.micro_batch_size.value_or(Recipe::automatic);
  if (size < 2) return;
  add_change("train.micro_batch_size = 1", request, list).recipe.train.micro_batch_size = 1;
}

/// Policy "fastest" also takes another strategy than that of the documented rules.
void fastest_policy(const SelectionRequest& request, std::vector<Changed>& list) {
  if (request.recipe.selection.policy != Recipe::Selection().policy) return;
  add_change("selection.policy = \"fastest\"", request, list).recipe.selection.policy = "fastest";
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
    add_change(fmt::format("train.global_batch_size = {}", size), request, list).recipe.train.global_batch_size = size;
  }
}

void higher_limit(const SelectionRequest& request, std::vector<Changed>& list) {
  const auto& asked = request.recipe.devices.memory_limit;
  int64_t own = memory_limit(request.topology, 0).device;
  own = own >> 30 << 30;
  if (!asked || own <= *asked) return;
  const auto change = fmt::format("devices.memory_limit = \"{}GiB\", the maximum", own >> 30);
  add_change(change, request, list).recipe.devices.memory_limit = own;
}

void disk(const SelectionRequest& request, std::vector<Changed>& list) {
  if (request.given.contains("nvme_path")) return;
  add_change("strategy.nvme_path = \"FOLDER\" on a fast disk", request, list).given["nvme_path"] = "/";
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
  add_change(fmt::format("precision = \"{}\"", other), request, list).recipe.precision.mode = other;
}

void shorter_sequences(const SelectionRequest& request, std::vector<Changed>& list) {
  int64_t length = request.model->seq_len / 2;
  if (length < 128) return;
  add_change(fmt::format("data.seq_len = {}", length), request, list).model =
      std::make_shared<ModelSpec>(make_spec(request.recipe, request.model->vocab_size, length));
}

/// CPU ranks share host memory: with fewer ranks, each has more.
void fewer_ranks(const SelectionRequest& request, std::vector<Changed>& list) {
  const auto& topology = request.topology;
  if (topology.on_devices() || topology.num_nodes > 1 || topology.sizes.complete()) return;
  for (int ranks = topology.devices_per_node - 1; ranks >= 1; --ranks) {
    if (topology.devices_per_node % ranks != 0) continue;  // the batch must remain divisible
    if (ranks % topology.sizes.ranks_of_data() != 0) continue;
    add_change(fmt::format("devices.cpu_processes = {}", ranks), request, list).topology.devices_per_node = ranks;
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

bool needs_offers(const Choice& choice) {
  return !choice.fits() || choice.plan().memory.host > 0 || choice.plan().memory.state_on_disk;
}

const Candidate* least_candidate(const Choice& choice) {
  const Candidate* least = nullptr;
  for (const auto& candidate : choice.candidates)
    if (candidate.refused.empty() && (!least || candidate.bytes < least->bytes)) least = &candidate;
  return least;
}

std::vector<Offer> make_offers(const SelectionRequest& request, const StepClock& clock) {
  std::vector<Proposal> list;
  smaller_optimizer(request, list);
  adapters(request, /*quantized=*/false, list);
  adapters(request, /*quantized=*/true, list);
  std::vector<Offer> offers;
  const auto offer = [&](const Proposal& proposal) {
    return Offer{.what = proposal.what, .lines = proposal.lines, .choice = choose(proposal.request, clock)};
  };
  const auto own =
      in_16_bits({.what = "a frozen base in 16 bits", .lines = {}, .request = request});  // of a recipe with adapters
  if (own) list.insert(list.begin(), *own);
  for (const auto& proposal : list) try {
      offers.push_back(offer(proposal));
      if (!needs_offers(offers.back().choice)) continue;
      const auto smaller = in_16_bits(proposal);
      if (!smaller) continue;
      if (auto other = offer(*smaller); other.choice.fits()) {
        if (!offers.back().choice.fits()) offers.pop_back();
        offers.push_back(std::move(other));
      }
    } catch (const SpeedNotKnown&) {  // policy "fastest" has no times after the change
    }
  return offers;
}

std::string offers_text(const std::vector<Offer>& offers) {
  std::string text;
  for (const auto& offer : offers) {
    text += fmt::format("\n  {} ({})", offer.what, memory_text(offer.choice));
    for (const auto& line : offer.lines) text += "\n    " + line;
  }
  return text.empty() ? "" : "other ways of training, and what to write in the recipe:" + text;
}

nlohmann::json offers_json(const std::vector<Offer>& offers) {
  auto list = nlohmann::json::array();
  for (const auto& offer : offers) {
    const Candidate* plan = offer.choice.fits() ? &offer.choice.plan() : least_candidate(offer.choice);
    list.push_back({{"what", offer.what},
                    {"lines", offer.lines},
                    {"fits", offer.choice.fits()},
                    {"strategy", plan ? nlohmann::json(label(*plan)) : nlohmann::json()},
                    {"micro_batch_size", plan ? nlohmann::json(plan->job.micro_batch_size) : nlohmann::json()},
                    {"memory_bytes_per_rank", plan ? nlohmann::json(plan->bytes) : nlohmann::json()},
                    {"host_bytes_per_rank", plan ? nlohmann::json(plan->host) : nlohmann::json()}});
  }
  return list;
}

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
      ways.push_back(fmt::format("\n  {}  ({}, {})", change, label(then.plan()), memory_needed(then.plan())));
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
