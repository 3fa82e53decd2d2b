#include "runner/selection/batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "runner/config/divisors.hpp"

namespace runner {

namespace {

constexpr int64_t largest_default_micro_batch = 8;
/// Limit for "auto" without a memory limit and a global batch.
constexpr int64_t largest_micro_batch = 1024;

std::vector<std::string> as_text(const std::vector<int64_t>& values) {
  std::vector<std::string> text;
  for (int64_t value : values) text.push_back(std::to_string(value));
  return text;
}

/// The sizes, ascending, with which `sequences` are enough micro-batches for a pipeline; if there are none, the smallest size.
std::vector<int64_t> with_enough_micro_batches(std::vector<int64_t> sizes, int64_t sequences, int pipeline) {
  if (pipeline == 1) return sizes;
  const auto few =
      std::ranges::find_if(sizes, [&](int64_t size) { return sequences / size < micro_batches_per_stage * pipeline; });
  sizes.erase(std::max(few, sizes.begin() + 1), sizes.end());
  return sizes;
}

/// The micro-batches of a step whose number of sequences is the default.
std::vector<int64_t> default_sizes(int pipeline) {
  return with_enough_micro_batches(divisors(largest_default_micro_batch, largest_default_micro_batch),
                                   largest_default_micro_batch, pipeline);
}

}  // namespace

Origin decided(const std::string& why) { return {.kind = Origin::Kind::decided, .note = why}; }

/// The sequences of a step in which each rank has one micro-batch of the size that the recipe sets, or one sequence; 0:
/// more than an integer can hold.
static int64_t shared_by(const Recipe& recipe, int data_ranks) {
  const int64_t micro = recipe.train.micro_batch_size.value_or(1);
  int64_t together = 0;
  const bool absurd = __builtin_mul_overflow(int64_t{data_ranks}, micro == Recipe::automatic ? 1 : micro, &together);
  return absurd ? 0 : together;
}

int64_t shared_batch(const Recipe& recipe, int data_ranks) {
  const int64_t asked = *recipe.train.global_batch_size, together = shared_by(recipe, data_ranks);
  int64_t next = 0;
  const bool absurd = together == 0 || __builtin_add_overflow(asked - asked % together, together, &next);
  return absurd || asked % together == 0 ? asked : next;
}

void resolve_batch(Recipe& recipe, const BatchRanks& ranks, std::vector<Diagnostic>& diagnostics) {
  const int data_ranks = ranks.data;
  auto& train = recipe.train;
  if (train.micro_batch_size == Recipe::automatic) train.micro_batch_size.reset();
  Diagnostic diagnostic;
  diagnostic.code = "batch";
  if (!train.global_batch_size) {
    const bool divides = !train.micro_batch_size && !train.accumulate_grad_batches;
    if (!train.micro_batch_size) {
      train.micro_batch_size = divides ? default_sizes(ranks.pipeline).back() : largest_default_micro_batch;
      recipe.origins["train.micro_batch_size"] = decided("the default without global_batch_size");
    }
    if (!train.accumulate_grad_batches)
      train.accumulate_grad_batches =
          AccumulationSchedule{{0, divides ? largest_default_micro_batch / *train.micro_batch_size : 1}};
    return;
  }
  int64_t global = *train.global_batch_size;
  if (global % data_ranks != 0) {
    const int64_t shared = shared_by(recipe, data_ranks), together = shared > 0 ? shared : data_ranks;
    const int64_t below = global / together * together;
    diagnostic.place = recipe.origin("train.global_batch_size");
    diagnostic.message =
        fmt::format("global_batch_size = {} cannot be divided among {} data-parallel ranks", global, data_ranks);
    if (below > 0) diagnostic.allowed.push_back(std::to_string(below));
    if (int64_t above = 0; !__builtin_add_overflow(below, together, &above))
      diagnostic.allowed.push_back(std::to_string(above));
    diagnostic.other_message = fmt::format("or a number of data-parallel ranks that divides {}: {}", global,
                                           fmt::join(divisors(global, 64), ", "));
    diagnostics.push_back(diagnostic);
    return;
  }
  int64_t per_rank = global / data_ranks;
  const auto fitting =
      with_enough_micro_batches(divisors(per_rank, largest_default_micro_batch), per_rank, ranks.pipeline);
  auto steps = recipe.strategy.options.value("gradient_accumulation_steps", nlohmann::json());
  bool divides = steps.is_number_integer() && steps > 0 && per_rank % steps.get<int64_t>() == 0;
  if (steps.is_number_integer() && !divides) {
    diagnostic.place = recipe.origin("strategy.gradient_accumulation_steps");
    diagnostic.message = fmt::format(
        "gradient_accumulation_steps = {} does not divide the {} sequences that each of {} ranks has of a global batch "
        "of {}",
        steps.dump(), per_rank, data_ranks, global);
    diagnostic.allowed = as_text(divisors(per_rank, 4096));
    diagnostics.push_back(diagnostic);
  } else if (!train.micro_batch_size && divides) {
    train.micro_batch_size = per_rank / steps.get<int64_t>();
    recipe.origins["train.micro_batch_size"] =
        decided(fmt::format("{} sequences a rank in {} micro-batches", per_rank, steps.get<int64_t>()));
  } else if (!train.micro_batch_size) {
    train.micro_batch_size = fitting.back();
    const auto enough =
        fmt::format(", that leaves {} micro-batches for each rank of the pipeline", micro_batches_per_stage);
    recipe.origins["train.micro_batch_size"] =
        decided(fmt::format("the largest divisor of {} sequences a rank, up to {}{}", per_rank,
                            largest_default_micro_batch, ranks.pipeline > 1 && fitting.back() > 1 ? enough : ""));
  } else if (per_rank % *train.micro_batch_size != 0) {
    diagnostic.place = recipe.origin("train.micro_batch_size");
    diagnostic.message = fmt::format(
        "micro_batch_size = {} does not divide the {} sequences that each of {} ranks has of a global batch of {}",
        *train.micro_batch_size, per_rank, data_ranks, global);
    diagnostic.allowed = as_text(divisors(per_rank, 4096));
    diagnostics.push_back(diagnostic);
  }
}

bool can_divide_batch(const Recipe& recipe, int data_ranks) {
  if (!recipe.train.global_batch_size) return true;
  const auto& train = recipe.train;
  if (*train.global_batch_size % data_ranks != 0) return false;
  Recipe asked;  // gradient_accumulation_steps among the options of the strategy
  asked.train = train;
  asked.strategy.options = recipe.strategy.options;
  std::vector<Diagnostic> mistakes;
  resolve_batch(asked, {.data = data_ranks}, mistakes);
  return mistakes.empty();
}

std::vector<BatchChoice> batch_choices(const Recipe& recipe, const BatchRanks& ranks) {
  const auto& train = recipe.train;
  bool automatic = train.micro_batch_size == Recipe::automatic;
  std::vector<BatchChoice> choices;
  if (train.global_batch_size) {
    int64_t share = *train.global_batch_size / ranks.data;
    if (train.micro_batch_size && !automatic) return {{*train.micro_batch_size, share / *train.micro_batch_size}};
    auto steps = recipe.strategy.options.value("gradient_accumulation_steps", nlohmann::json());
    if (steps.is_number_integer()) return {{share / steps.get<int64_t>(), steps.get<int64_t>()}};
    const auto sizes = divisors(share, automatic ? largest_micro_batch : largest_default_micro_batch);
    for (int64_t size : with_enough_micro_batches(sizes, share, ranks.pipeline))
      choices.insert(choices.begin(), {size, share / size});
    return choices;
  }
  int64_t accumulation = train.accumulate_grad_batches     ? train.accumulate_grad_batches->begin()->second
                         : automatic && ranks.pipeline > 1 ? micro_batches_per_stage * ranks.pipeline
                                                           : 1;
  if (train.micro_batch_size && !automatic) return {{*train.micro_batch_size, accumulation}};
  if (automatic || train.accumulate_grad_batches) {
    for (int64_t size = automatic ? largest_micro_batch : largest_default_micro_batch; size >= 1; size /= 2)
      choices.push_back({size, accumulation});
    return choices;
  }
  for (int64_t size : default_sizes(ranks.pipeline) | std::views::reverse)
    choices.push_back({size, largest_default_micro_batch / size});
  return choices;
}

}  // namespace runner
