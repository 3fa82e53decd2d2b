// When Lua's collector must run for the sake of tensors: it sees each as a handle of a few bytes, however large.
#pragma once
#include <cstdint>

#include "runner/lua/state.hpp"

namespace runner {

class TensorGarbage {
 public:
  /// A tensor of so many bytes was made for a script of `state`. Collects once enough were.
  void made(int64_t bytes, lua::State& state) {
    bytes_ += bytes;
    if (bytes_ < bytes_most) return;
    state.collect_garbage();
    bytes_ = 0;
  }

 private:
  static constexpr int64_t bytes_most = int64_t{64} << 20;
  int64_t bytes_ = 0;  ///< made since garbage was last collected
};

}  // namespace runner
