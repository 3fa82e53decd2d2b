// Tensors for strategies in Lua: 1-d tensors of this rank only.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "runner/lua/value.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/world.hpp"

namespace runner {

/// Shared by the tensors, collectives and buckets of one script.
struct ScriptHost {
  World& world;
  bool parameters_writable = false;                 ///< at this moment; false while forward or backward uses them
  std::vector<std::shared_ptr<lua::Object>> works;  ///< works that may not have ended
  std::function<void(int64_t bytes)> made = {};     ///< called with the bytes of each tensor that the script makes
};

struct ScriptTensor {
  ScriptHost* host;
  torch::Tensor values;
  bool parameters = false;  ///< whether these are the model's parameters

  /// Throws lua::ScriptMistake if the values must not change at this moment.
  void require_writable() const;
};

/// The dtype of an argument "float32", "float16", "bfloat16", "float64" or "int64".
torch::ScalarType script_dtype(const lua::Arguments& arguments, int index);

const lua::Class& script_tensor_class();
/// A handle of existing storage.
lua::Value script_tensor(ScriptHost& host, torch::Tensor values, bool parameters = false);
/// A handle of new storage. Reports its bytes to `host.made`.
lua::Value made_tensor(ScriptHost& host, torch::Tensor values);

}  // namespace runner
