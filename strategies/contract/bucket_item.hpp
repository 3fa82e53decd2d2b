// A parameter in a bucket of gradients. This header is torch-free.
#pragma once
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

namespace runner {

struct BucketItem {
  int64_t offset = 0;  ///< of its first element in the bucket
  std::vector<int64_t> shape = {};

  int64_t numel() const { return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()); }
};

}  // namespace runner
