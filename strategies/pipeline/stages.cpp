#include "strategies/pipeline/stages.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

/// The weight of a stage that has the blocks from `begin` to `end`; infinite if it must not have them.
using StageWeight = std::function<double(int stage, int begin, int end)>;

/// Weights are sums in different orders, so equal ones can differ by rounding.
bool less(double a, double b) { return a + 1e-9 * std::abs(a) < b; }

/// For each stage and each first block, the best value of all divisions of the blocks from there on among the stages from there on.
/// `join` combines the weight of a stage with the best value of those after it, and is not below the weight. A stage with more blocks must
/// not have less weight, so the search for its end stops at the first that is too heavy.
std::vector<std::vector<double>> best_values(int blocks, int stages, const StageWeight& weight, auto&& join) {
  std::vector best(stages + 1, std::vector<double>(blocks + 1, HUGE_VAL));
  best[stages][blocks] = 0;
  for (int stage = stages - 1; stage >= 0; --stage)
    for (int begin = stage; begin < blocks; ++begin) {
      auto& value = best[stage][begin];
      // The last stage has all blocks that are left.
      for (int end = stage + 1 == stages ? blocks : begin + 1; end <= blocks - (stages - 1 - stage); ++end) {
        const double one = weight(stage, begin, end);
        if (one >= value) break;
        value = std::min(value, join(one, best[stage + 1][end]));
      }
    }
  return best;
}

/// The division whose largest weight is least; of those, the one with the least sum of squares; of those, the one with more blocks in the
/// first stages. Nullopt if none has finite weights.
std::optional<StageBlocks> least_weight(int blocks, int stages, const StageWeight& weight) {
  const auto largest = best_values(blocks, stages, weight, [](double a, double b) { return std::max(a, b); })[0][0];
  if (std::isinf(largest)) return std::nullopt;
  const auto square = [&](int stage, int begin, int end) {
    const double one = weight(stage, begin, end);
    return less(largest, one) ? HUGE_VAL : one * one;
  };
  const auto sums = best_values(blocks, stages, square, [](double a, double b) { return a + b; });
  StageBlocks division;
  for (int stage = 0, begin = 0; stage < stages; ++stage) {
    int end = blocks - (stages - 1 - stage);
    while (less(sums[stage][begin], square(stage, begin, end) + sums[stage + 1][end])) --end;
    division.push_back(end - begin);
    begin = end;
  }
  return division;
}

/// The sum of a cost over the blocks before each one.
template <typename T>
std::vector<T> sums_of(const std::vector<BlockCost>& blocks, T BlockCost::*cost) {
  std::vector<T> sums{T{}};
  for (const auto& block : blocks) sums.push_back(sums.back() + block.*cost);
  return sums;
}

StageBlocks by_count(const std::vector<int>& counts, size_t blocks) {
  int64_t sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 1) throw usage_error("stage {} has {} blocks; it needs at least 1", i, counts[i]);
    sum += counts[i];
  }
  if (sum != static_cast<int64_t>(blocks))
    throw usage_error("the stages have {} blocks together, and the model has {}", sum, blocks);
  return counts;
}

/// The block that a name of a block or of a layer means.
size_t block_named(const std::string& name, const std::vector<BlockCost>& blocks) {
  const auto found = std::ranges::find_if(
      blocks, [&](const BlockCost& block) { return block.name == name || block.name.starts_with(name + "."); });
  if (found != blocks.end()) return found - blocks.begin();
  std::vector<std::string> names;
  for (const auto& block : blocks) names.push_back(block.name);
  const auto like = nearest(name, names);
  const auto all = names.size() > 3 ? fmt::format("{}, {} to {} and {}", names.front(), names[1],
                                                  names[names.size() - 2], names.back())
                                    : join(names, ", ");
  throw usage_error("no block is called \"{}\"{}; the model has {}", name,
                    like ? fmt::format(" (did you mean \"{}\"?)", *like) : "", all);
}

StageBlocks by_name(const std::vector<std::string>& names, const std::vector<BlockCost>& blocks) {
  std::vector<size_t> begins;
  for (const auto& name : names) begins.push_back(block_named(name, blocks));
  if (begins[0] != 0)
    throw usage_error("the first stage begins with \"{}\"; it must begin with the model's first block, \"{}\"",
                      names[0], blocks[0].name);
  StageBlocks division;
  begins.push_back(blocks.size());
  for (size_t i = 0; i < names.size(); ++i) {
    if (begins[i + 1] <= begins[i])
      throw usage_error("stage {} begins with \"{}\", which is not after \"{}\", where stage {} begins", i + 1,
                        names[i + 1], names[i], i);
    division.push_back(static_cast<int>(begins[i + 1] - begins[i]));
  }
  return division;
}

}  // namespace

StageBlocks balance(const std::vector<BlockCost>& blocks, const std::vector<StageMemory>& stages) {
  const int count = static_cast<int>(blocks.size()), parts = static_cast<int>(stages.size());
  if (parts < 1 || parts > count)
    throw usage_error("{} blocks cannot be divided into {} stages; at most {} stages are possible", count, parts,
                      count);
  const auto times = sums_of(blocks, &BlockCost::time);
  const auto states = sums_of(blocks, &BlockCost::state_bytes);
  const auto activations = sums_of(blocks, &BlockCost::activation_bytes);
  const auto bytes = [&](int stage, int begin, int end) {
    return states[end] - states[begin] + stages[stage].micro_batches * (activations[end] - activations[begin]);
  };
  const auto time = [&](int stage, int begin, int end) {
    return bytes(stage, begin, end) <= stages[stage].limit ? times[end] - times[begin] : HUGE_VAL;
  };
  if (auto division = least_weight(count, parts, time)) return *division;

  const auto share = [&](int stage, int begin, int end) {
    return static_cast<double>(bytes(stage, begin, end)) /
           static_cast<double>(std::max<int64_t>(1, stages[stage].limit));
  };
  const auto division = least_weight(count, parts, share).value();
  int worst = 0, worst_begin = 0;
  for (int stage = 0, begin = 0; stage < parts; begin += division[stage++])
    if (share(stage, begin, begin + division[stage]) > share(worst, worst_begin, worst_begin + division[worst]))
      worst = stage, worst_begin = begin;
  throw usage_error(
      "no division of {} blocks into {} stages fits: at best, stage {} has {} ({} to {}) and needs {} of {}", count,
      parts, worst, counted(division[worst], "block"), blocks[worst_begin].name,
      blocks[worst_begin + division[worst] - 1].name,
      format_bytes(bytes(worst, worst_begin, worst_begin + division[worst])), format_bytes(stages[worst].limit));
}

StageBlocks stages_by_hand(const GivenStages& given, const std::vector<BlockCost>& blocks, int stages) {
  const auto* counts = std::get_if<std::vector<int>>(&given);
  const auto* names = std::get_if<std::vector<std::string>>(&given);
  const size_t size = counts ? counts->size() : names->size();
  if (size != static_cast<size_t>(stages))
    throw usage_error("{} given, and the pipeline has {}",
                      size == 1 ? "1 stage is" : fmt::format("{} stages are", size), stages);
  return counts ? by_count(*counts, blocks.size()) : by_name(*names, blocks);
}

}  // namespace runner
