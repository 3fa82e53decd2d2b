// Divides samples at random between training and validation: always the same ones of the same number of samples.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/data/data.hpp"
#include "runner/data/order.hpp"

namespace runner {

/// Keeps the items of one split, in their order. `what`: "images". Throws Error(usage) if a split would be empty.
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

}  // namespace runner
