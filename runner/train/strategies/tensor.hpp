// Tensors as strategies in Lua see them: what this rank holds, 1-d, and nothing of other ranks'.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "runner/lua/value.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"

namespace runner {

/// What tensors, collectives and buckets of one script share.
struct ScriptHost {
  World& world;
  bool parameters_writable = false;                 ///< now: not while forward or backward uses them
  std::vector<std::shared_ptr<lua::Object>> works;  ///< that may not have ended
  std::function<void(int64_t bytes)> made = {};     ///< a tensor of the script's own, which Lua sees as a handle
};

struct ScriptTensor {
  ScriptHost* host;
  torch::Tensor values;
  bool parameters = false;  ///< of the model

  /// Throws lua::ScriptMistake where they must not change now.
  void require_writable() const;
};

/// "float32", "float16", "bfloat16", "float64", "int64" as an argument.
torch::ScalarType script_dtype(const lua::Arguments& arguments, int index);

const lua::Class& script_tensor_class();
/// A handle of storage that is there already.
lua::Value script_tensor(ScriptHost& host, torch::Tensor values, bool parameters = false);
/// A handle of storage that nobody else has; the host is told of its bytes.
lua::Value made_tensor(ScriptHost& host, torch::Tensor values);

}  // namespace runner
