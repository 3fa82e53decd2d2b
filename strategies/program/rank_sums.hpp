// Sums over the items of flat buffers, for each rank of a copy of the model: the parts of items that its shards have, without padding.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "strategies/contract/flat_layout.hpp"

namespace runner {

class RankSums {
 public:
  explicit RankSums(int ranks) : ranks_(ranks), steps_(static_cast<size_t>(ranks) + 1) {}

  /// Adds value_of(item, elements) for the elements of each item to the ranks that have them; `by_all`: every rank has all.
  template <typename ValueOf>
  void add(const FlatLayout& layout, bool by_all, ValueOf&& value_of) {
    for (const auto& item : layout.items) {
      if (item.numel == 0) continue;
      if (by_all) {
        add_to(0, ranks_, value_of(item, item.numel));
        continue;
      }
      // Parts of the first and the last shard, and all of those between.
      const int64_t end = item.offset + item.numel, first = item.offset / layout.shard, last = (end - 1) / layout.shard;
      add_to(first, first + 1, value_of(item, std::min(end, (first + 1) * layout.shard) - item.offset));
      if (last == first) continue;
      if (last > first + 1) add_to(first + 1, last, value_of(item, layout.shard));
      add_to(last, last + 1, value_of(item, end - last * layout.shard));
    }
  }
  void add_elements(const FlatLayout& layout, bool by_all) {
    add(layout, by_all, [](const FlatLayout::Item&, int64_t elements) { return elements; });
  }

  /// The largest sum of a rank.
  int64_t most() const {
    int64_t sum = 0, most = 0;
    for (int64_t step : steps_) most = std::max(most, sum += step);
    return most;
  }

 private:
  void add_to(int64_t first, int64_t last, int64_t amount) {  // ranks [first, last)
    steps_[static_cast<size_t>(first)] += amount;
    steps_[static_cast<size_t>(last)] -= amount;
  }

  int ranks_;
  std::vector<int64_t> steps_;  ///< differences of the sums of consecutive ranks
};

}  // namespace runner
