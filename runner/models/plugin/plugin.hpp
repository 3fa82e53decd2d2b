// The interface of plug-ins: models in a library that is built outside of this project, against this header and LibTorch.
// `cmake --install` puts it into include/runner/plugin.hpp.
//
// A plug-in is a function that returns a Model: a chain of blocks with named parameters, and the forward of each block. Storage of
// parameters, gradients, optimizer state, sharding, recomputation and checkpoints are the runner's. So the model trains under every
// strategy. In a recipe:
//
//   [model]
//   name = "plugin"
//   plugin = "libmine.so"
//   options = { width = 64 }
#pragma once
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/version.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runner/plugins/options.hpp"

namespace runner::plugin {

/// Changes with every change of this header. A runner loads only plug-ins that were built with its version.
inline constexpr uint32_t abi_version = 1;

/// The sizes that a model is made for.
struct Sizes {
  int64_t vocab_size = 0;  ///< tokens of the data: ids are smaller
  int64_t seq_len = 0;     ///< T, the longest row
};

/// Initial values. They depend on the seed of the run and on the parameter's name only.
struct Init {
  enum class Kind : uint8_t { zeros, ones, normal, uniform };
  Kind kind = Kind::zeros;
  double scale = 0;  ///< standard deviation, or the bound of the absolute value
};
inline Init normal(double standard_deviation) { return {Init::Kind::normal, standard_deviation}; }
inline Init uniform(double bound) { return {Init::Kind::uniform, bound}; }
inline Init ones() { return {Init::Kind::ones, 0}; }
inline Init zeros() { return {}; }

struct Parameter {
  std::string name;  ///< unique in the model: "blocks.0.up.weight"
  std::vector<int64_t> shape;
  Init init;
};

/// Arguments of a block's forward. Valid during the call.
class Call {
 public:
  virtual ~Call() = default;
  /// A parameter of the block, or one that it shares, in the dtype of the computation. Unknown names raise std::invalid_argument.
  virtual torch::Tensor parameter(const std::string& name) const = 0;
  /// A field of the micro-batch, [B, ...]: "inputs" and "targets", both int64 [B, T], or those of Model::batch.
  virtual torch::Tensor field(const std::string& name) const = 0;
  /// x with dropped elements, in training. The same elements are dropped for any number of ranks, and when the block is recomputed. `x`
  /// has B rows.
  virtual torch::Tensor dropout(const torch::Tensor& x, double probability) const = 0;
  virtual bool training() const = 0;
  /// If set, the last block returns the logits [B, vocab_size] at this position of each row, for generated text.
  virtual std::optional<int64_t> logits_of() const = 0;
};

/// A part of the model that is gathered, recomputed and differentiated as a whole. Forward gets the output of the block before; the
/// first block gets an undefined tensor. All outputs but the last have one shape [B, T, C]. The last block returns the loss, summed
/// over everything that counts in the micro-batch: a scalar. It must not change `x`, and it must not keep tensors.
struct Block {
  std::string name;
  std::vector<Parameter> parameters;
  std::function<torch::Tensor(const torch::Tensor& x, const Call& call)> forward;
  std::vector<std::string> shared = {};  ///< parameters of earlier blocks that this block uses, too
  double flops_per_token = 0;            ///< of forward; 0: 2 x the elements of its matrices
};

/// A field of the batch, for models that need others than "inputs" and "targets".
struct Field {
  std::string name;
  torch::ScalarType type = torch::kInt64;
  std::vector<int64_t> row = {};  ///< shape of one row
  double padding = 0;             ///< the elements of a row that stands for no sample; its loss must be 0
};

struct Model {
  std::vector<Block> blocks;      ///< at least two
  std::vector<Field> batch = {};  ///< empty: "inputs" and "targets"
};

/// Cross entropy of logits [..., vocab] in fp32, summed over targets that are not -100.
inline torch::Tensor summed_cross_entropy(const torch::Tensor& logits, const torch::Tensor& targets) {
  const auto wide = logits.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}).to(wide), targets.reshape(-1), {},
                                at::Reduction::Sum, -100);
}

/// The exports of a library. The first member never changes its place.
struct Library {
  uint32_t version;
  const char* torch_version;
  Model (*make)(const Options& options, const Sizes& sizes);
};

}  // namespace runner::plugin

/// Exports `make_model`, a function of (const Options&, const Sizes&) that returns a Model.
#define RUNNER_PLUGIN(make_model)                                                                         \
  extern "C" __attribute__((visibility("default"))) const runner::plugin::Library* runner_plugin() {      \
    static const runner::plugin::Library library{runner::plugin::abi_version, TORCH_VERSION, make_model}; \
    return &library;                                                                                      \
  }
