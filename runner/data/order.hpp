// The orders of samples in an epoch: shuffled, with neighbours of similar lengths, or as a Lua file decides; and random splits.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/config/recipe.hpp"
#include "runner/data/data.hpp"

namespace runner {

/// The order of samples in an epoch: a permutation that depends on (seed, epoch) only; the identity without shuffle.
/// Needs no memory per sample (a keyed Feistel network with cycle walking).
class SampleOrder {
 public:
  SampleOrder(int64_t size, bool shuffle, int64_t seed, int64_t epoch);
  int64_t operator[](int64_t position) const;
  int64_t size() const { return size_; }

 private:
  int64_t size_;
  bool shuffle_;
  uint64_t key_;
  int half_bits_;  ///< of each half of the network: it permutes [0, 4^half_bits_)
};

/// Divides samples at random between training and validation, always the same ones of the same number of samples: keeps the items of one
/// split, in their order. `what`: "images". Throws Error(usage) if a split would be empty.
template <typename Item>
void keep_random_part(std::vector<Item>& items, double fraction, Split split, const std::string& what) {
  const auto count = std::ssize(items);
  const auto taken = static_cast<int64_t>(std::llround(static_cast<double>(count) * fraction));
  if (taken == 0 || taken == count)
    throw usage_error("data.validation_fraction = {} leaves none of {} {} for {}", fraction, count, what,
                      taken == 0 ? "validation" : "training");
  const SampleOrder order(count, /*shuffle=*/true, /*seed=*/0, /*epoch=*/0);
  std::vector<bool> validates(items.size(), false);
  for (int64_t i = 0; i < taken; ++i) validates[static_cast<size_t>(order[i])] = true;
  std::vector<Item> kept;
  for (size_t i = 0; i < items.size(); ++i)
    if (validates[i] == (split == Split::validation)) kept.push_back(std::move(items[i]));
  items = std::move(kept);
}

/// Samples are shuffled, then sorted by length within windows of `window` positions. Runs of `run` samples of a sorted window are
/// shuffled again, so that long samples do not come together. Depends only on lengths, seed and epoch. May be used by several
/// threads.
class LengthBuckets {
 public:
  static constexpr int64_t run = 32, window = 128 * run;
  LengthBuckets(int64_t size, std::function<int64_t(int64_t sample)> length)
      : size_(size), length_(std::move(length)) {}
  int64_t at(int64_t epoch, int64_t position, int64_t seed) const;

 private:
  std::vector<int64_t> window_at(int64_t epoch, int64_t first, int64_t seed) const;

  int64_t size_;
  std::function<int64_t(int64_t)> length_;
  mutable std::mutex mutex_;  ///< guards the window that was used last
  mutable int64_t epoch_ = -1, first_ = -1, seed_ = 0;
  mutable std::vector<int64_t> samples_;
};

/// `data` in the order of data.order, or unchanged if the recipe has none. Throws RecipeError for a mistake in the file. sample_at()
/// throws LuaError if the script fails, and Error(usage) if it does not return a sample.
std::unique_ptr<Dataset> with_scripted_order(std::unique_ptr<Dataset> data, const Recipe& recipe);

}  // namespace runner
