#include "runner/selection/offers.hpp"

#include <fmt/format.h>

#include <algorithm>

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

/// The proposal with a base in 16 bits, for mixed precision, which stores it in 32.
std::optional<Proposal> in_16_bits(const Proposal& proposal) {
  const auto& mode = proposal.request.recipe.precision.mode;
  const bool mixed = mode == "bf16-mixed" || mode == "16-mixed";
  if (proposal.request.recipe.plugins.precision) return {};  // it decides the mode
  if (!mixed || !proposal.request.recipe.fine_tune.adapts() || proposal.request.recipe.fine_tune.quantizes()) return {};
  Proposal smaller = proposal;
  smaller.request.recipe.precision.mode = mode == "bf16-mixed" ? "bf16-true" : "16-true";
  smaller.lines.push_back(fmt::format("precision = \"{}\"", smaller.request.recipe.precision.mode));
  return smaller;
}

std::string memory_text(const Choice& choice) {
  const Candidate* least = choice.fits() ? &choice.plan() : least_candidate(choice);
  if (!least) return "no strategy can run it";
  return fmt::format("{}, micro-batch {}{}: {} a rank{}", label(*least), least->job.micro_batch_size,
                     least->every == 1 ? ", every layer recomputed" : "", format_bytes(least->bytes),
                     choice.fits() ? "" : ", which does not fit");
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
  for (const auto& proposal : list) try {
      offers.push_back(offer(proposal));
      if (const auto smaller = in_16_bits(proposal); smaller && !offers.back().choice.fits())
        if (auto other = offer(*smaller); other.choice.fits()) offers.back() = std::move(other);
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
                    {"memory_bytes_per_rank", plan ? nlohmann::json(plan->bytes) : nlohmann::json()}});
  }
  return list;
}

}  // namespace runner
