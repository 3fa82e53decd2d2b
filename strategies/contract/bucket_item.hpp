// A parameter in a bucket of gradients. This header is torch-free.
#pragma once
#include <cstdint>
#include <vector>

namespace runner {

struct BucketItem {
  int64_t offset = 0;  ///< of its first element in the bucket
  std::vector<int64_t> shape = {};
};

}  // namespace runner
