// Runs Lua's garbage collector often enough for tensors. The collector counts each as a handle of a few bytes.
#pragma once
#include <cstdint>

#include "runner/lua/state.hpp"

namespace runner {

class TensorGarbage {
 public:
  /// Call this when a script of `state` makes a tensor of `bytes` bytes. Collects garbage after each `bytes_most` of
  /// them.
  void made(int64_t bytes, lua::State& state) {
    bytes_ += bytes;
    if (bytes_ < bytes_most) return;
    state.collect_garbage();
    bytes_ = 0;
  }

 private:
  static constexpr int64_t bytes_most = int64_t{64} << 20;
  int64_t bytes_ = 0;  ///< of tensors made since the last collection
};

}  // namespace runner
