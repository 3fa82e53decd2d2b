// Tensors in scripts: one class for hooks, for the `loss` of a hook, and for strategies in Lua.
//
// Parameters and gradients in hooks are global tensors, of which each rank stores a shard or a replica (`Part`), as are
// the tensors that a hook makes from them. Their statistics (norm, mean, sum, min, max, is_finite, histogram) are exact
// over all ranks and count each element once; they are collective calls. Other operations work on the elements of each
// rank without communication, so every rank must make them. `shape` and `numel` describe the global tensor. Tensors
// that a hook makes have at least fp32, because averages of 16-bit parameters would lose small changes.
//
// Tensors of strategies belong to one rank: they are 1-d, and their statistics are those of this rank. The tensors of a
// `loss` are 2-d and differentiable: operations run in the grad mode of their caller, and sum, mean, max and logsumexp
// reduce over one dimension.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/lua/state.hpp"
#include "runner/train/hooks/exchange.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

/// Services of the owner of a script for the script's tensors. It must outlive them.
struct TensorHost {
  HookExchange* exchange = nullptr;       ///< for statistics of global tensors
  const char* parameters_change_in = "";  ///< where scripts may change parameters, for messages
  bool parameters_writable = false;       ///< at the current moment
  bool parameters_written = false;  ///< a script has changed a global parameter on this rank since the last exchange
  bool gradients_written = false;   ///< the same for gradients
  std::vector<std::string> written = {};                               ///< names of changed parameters and gradients
  std::function<void(const StateTensor&)> before_write = {};           ///< called before a global parameter is written
  std::function<void(const std::shared_ptr<lua::Object>&)> made = {};  ///< called with each tensor that a script makes
  /// The Lua state whose garbage collector runs after each 64 MiB of new tensors. Lua itself counts a tensor as a few bytes.
  lua::State* collects = nullptr;
  int64_t bytes_made = 0;  ///< since it last ran
};

struct ScriptTensor {
  enum class Kind { parameter, gradient, own };
  /// Elements [offset, offset + count) of a flattened slice of a global tensor.
  struct Run {
    TensorSlice slice = {};
    int64_t offset = 0, count = 0;
    bool operator==(const Run&) const = default;
  };
  /// Which elements of a global tensor a rank has.
  struct Part {
    std::string name;            ///< of the parameter with this layout
    std::vector<int64_t> shape;  ///< of the global tensor
    std::vector<Run> runs = {};  ///< this rank's elements, one run after another
    int64_t begin = 0, end = 0;  ///< which of them this rank counts: each element is counted on one rank
  };

  TensorHost* host;
  Kind kind = Kind::own;
  torch::Tensor values = {};              ///< this rank's elements, without `place`
  std::optional<Part> part = {};          ///< for global tensors
  std::optional<StateTensor> place = {};  ///< storage of a hook's parameter or gradient
  double divisor = 1;                     ///< value = stored value / divisor (the loss scale, for gradients)

  /// This rank's elements: 1-d, or 2-d in `loss`.
  torch::Tensor read() const;
  /// Lets `change` modify them. Throws lua::ScriptMistake if the tensor must not change at this moment.
  void write(const std::function<void(torch::Tensor& values)>& change);
  /// For messages: "head.weight [256, 32]", or "[8]".
  std::string describe() const;
};

/// The methods, properties and operators of tensors in scripts.
const lua::Class& tensor_class();
/// The tensor of a handle; null for other objects. Throws lua::ScriptMistake if the handle is not valid any more.
const ScriptTensor* script_tensor(const lua::Object& object);
/// The dtype of an argument "float32", "float16", "bfloat16", "float64" or "int64".
torch::ScalarType script_dtype(const lua::Arguments& arguments, int index);

/// A handle of existing storage of this rank.
lua::Value tensor_handle(TensorHost& host, torch::Tensor values, ScriptTensor::Kind kind = ScriptTensor::Kind::own);
/// A handle of a new tensor of the script with the layout of `like`. Calls `host.made`.
lua::Value made_tensor(const ScriptTensor& like, torch::Tensor values);
inline lua::Value made_tensor(TensorHost& host, torch::Tensor values) {
  return made_tensor(ScriptTensor{.host = &host}, std::move(values));
}

/// A handle for the global tensor `name`. `pieces` are this rank's; the handle has no elements on this rank if none of
/// them is of `name`.
std::shared_ptr<lua::Object> make_tensor_handle(TensorHost& host, ScriptTensor::Kind kind, const std::string& name,
                                                const std::vector<int64_t>& shape,
                                                const std::vector<StateTensor>& pieces, double divisor = 1);
/// A hook's tensor with the layout of `parameter`'s pieces among `pieces`, filled by `read(run)`.
std::shared_ptr<lua::Object> make_own_tensor(TensorHost& host, const std::string& parameter,
                                             const std::vector<int64_t>& shape, const std::vector<StateTensor>& pieces,
                                             const std::function<torch::Tensor(const ScriptTensor::Run&)>& read);
/// The pieces of a hook's tensor `values`, which has this part, for a checkpoint.
std::vector<StateTensor> pieces_of(const ScriptTensor::Part& part, const std::string& name,
                                   const torch::Tensor& values);

}  // namespace runner
