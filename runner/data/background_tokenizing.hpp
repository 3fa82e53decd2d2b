// Tokenises training data while the training runs (data.streaming).
#pragma once
#include <memory>

#include "runner/data/token_parts.hpp"

namespace runner {

/// Tokenises parts in the background, in order, with a lower priority than the training. The destructor ends this, and waits for at most
/// 10 seconds. A part that is not complete is removed from the cache.
class BackgroundTokenizing {
 public:
  explicit BackgroundTokenizing(std::shared_ptr<const TokenParts> parts);
  ~BackgroundTokenizing();

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  ///< the thread has it, too
};

}  // namespace runner
