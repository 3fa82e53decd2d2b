// Parameters and gradients in hooks: handles of global tensors, of which each rank stores a shard or a replica.
//
// Statistics of a handle (norm, mean, sum, min, max, histogram) are exact over all ranks and count each element once.
// They are collective calls. Operations (arithmetic, clone, scale_, add_, copy_) work on the elements of each rank
// without communication, so every rank must make them. `shape` and `numel` describe the global tensor. Tensors that a
// hook makes (clones, results) have at least fp32, because averages of 16-bit parameters would lose small changes.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runner/lua/training.hpp"
#include "runner/train/hooks/exchange.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

/// Services of the training for its handles.
struct HookTensorHost {
  HookExchange& exchange;
  bool parameters_writable = false;                           ///< at the current moment
  bool parameters_written = false;                            ///< on this rank, since ranks last exchanged it
  bool gradients_written = false;                             ///< the same for gradients
  std::vector<std::string> written = {};                      ///< the names of both
  std::function<void(const StateTensor&)> before_write = {};  ///< called before a parameter is written
  std::function<void(int64_t bytes)> made = {};               ///< called with the bytes of each new tensor of a hook
};

/// This rank's part of a tensor of the training, or a tensor that a hook made (without `place`).
struct HookTensor {
  enum class Kind { parameter, gradient, own };
  HookTensorHost* host;
  Kind kind;
  std::string name;            ///< for messages
  std::vector<int64_t> shape;  ///< of the global tensor
  int64_t offset = 0;          ///< of this rank's elements, in the flattened global tensor
  int64_t begin = 0, end = 0;  ///< which of this rank's elements it counts: each element is counted on one rank
  StateTensor place = {};      ///< storage of a parameter or gradient
  double divisor = 1;          ///< value = stored value / divisor (the loss scale, for gradients)
  torch::Tensor values = {};   ///< of a tensor that a hook made

  /// This rank's elements, 1-d.
  torch::Tensor read() const;
  /// Overwrites them. Throws lua::ScriptMistake if the tensor must not change at this moment.
  void write(const torch::Tensor& to);
};

/// A handle for `name`. `pieces` are this rank's; the handle has no elements on this rank if none of them is of `name`.
std::shared_ptr<lua::Object> make_tensor_handle(HookTensorHost& host, HookTensor::Kind kind, const std::string& name,
                                                const std::vector<int64_t>& shape,
                                                const std::vector<StateTensor>& pieces, double divisor = 1);

/// The tensor of a handle; null for other objects. Throws lua::ScriptMistake if the handle is not valid any more.
const HookTensor* hook_tensor(const lua::Object& object);
/// A hook's tensor with the layout of `parameter`'s piece among `pieces`, filled by `read(offset, count)`.
std::shared_ptr<lua::Object> make_own_tensor(HookTensorHost& host, const std::string& parameter,
                                             const std::vector<int64_t>& shape, const std::vector<StateTensor>& pieces,
                                             const std::function<torch::Tensor(int64_t offset, int64_t count)>& read);

}  // namespace runner
