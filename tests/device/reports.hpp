// The list of mistakes that the simulated device has seen.
#pragma once
#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace runner::simulated {

/// Contains each text once, in the order of the first occurrences.
class Reports {
 public:
  void add(std::string text) {
    std::lock_guard lock(mutex_);
    if (std::find(texts_.begin(), texts_.end(), text) == texts_.end()) texts_.push_back(std::move(text));
  }
  /// Returns the reports and empties the list.
  std::vector<std::string> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(texts_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

}  // namespace runner::simulated
