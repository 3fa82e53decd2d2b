// Parameters and gradients as hooks see them: handles of whole tensors, of which each rank holds a part or a copy.
//
// What a handle says of its tensor (norm, mean, sum, min, max, histogram) is exact over all ranks, each element counted
// once: collective calls. What it does (arithmetic, clone, scale_, add_, copy_) every rank does to what it holds, so
// every rank must do it; no ranks meet for that. shape and numel are the whole tensor's. Tensors of a hook's own
// (clones, results) are in fp32 at least, so that averages of 16-bit parameters move.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runner/lua/training.hpp"
#include "runner/train/hooks/exchange.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

/// What a handle needs of the training that it is of.
struct HookTensorHost {
  HookExchange& exchange;
  bool parameters_writable = false;                           ///< now
  bool parameters_written = false;                            ///< on this rank, since somebody looked
  bool gradients_written = false;                             ///< the same of gradients
  std::function<void(const StateTensor&)> before_write = {};  ///< of a parameter
  std::function<void(int64_t bytes)> made = {};               ///< a tensor of a hook's own, which Lua sees as a handle
};

/// A part of a tensor of the training, or (without `place`) values of its own.
struct HookTensor {
  enum class Kind { parameter, gradient, own };
  HookTensorHost* host;
  Kind kind;
  std::string name;            ///< in messages
  std::vector<int64_t> shape;  ///< the whole tensor's
  int64_t offset = 0;          ///< of what this rank holds, in the flattened whole
  int64_t begin = 0, end = 0;  ///< the elements of that which this rank counts: each is counted by one rank
  StateTensor place = {};      ///< where it lies, unless it is an own one
  double divisor = 1;          ///< values are those of `place` through this (loss scale)
  torch::Tensor values = {};   ///< of an own one

  /// What this rank holds, 1-d.
  torch::Tensor read() const;
  /// Overwrites that. Throws lua::ScriptMistake where the tensor must not change now.
  void write(const torch::Tensor& to);
};

/// A handle for `name`, of which this rank holds the piece among `pieces` that is called `piece_name`, or nothing.
std::shared_ptr<lua::Object> make_tensor_handle(HookTensorHost& host, HookTensor::Kind kind, const std::string& name,
                                                const std::vector<int64_t>& shape,
                                                const std::vector<StateTensor>& pieces, double divisor = 1);

/// What a handle is of; null for other objects. Throws lua::ScriptMistake where the handle has ended.
const HookTensor* hook_tensor(const lua::Object& object);
/// A tensor of a hook's own with the place of `parameter`'s piece among `pieces`, holding `read(offset, count)`.
std::shared_ptr<lua::Object> make_own_tensor(HookTensorHost& host, const std::string& parameter,
                                             const std::vector<int64_t>& shape, const std::vector<StateTensor>& pieces,
                                             const std::function<torch::Tensor(int64_t offset, int64_t count)>& read);

}  // namespace runner
