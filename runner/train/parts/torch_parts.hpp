// The interface of parts of the training itself, in a library that is built outside of this project, against this header and LibTorch.
// `cmake --install` puts it into include/runner/plugins/torch_parts.hpp. In a recipe:
//
//   [plugins]
//   precision = "libfp8.so"
//   options = { bits = 4 }
//
// Parts that need no LibTorch are in parts.hpp.
#pragma once
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/version.h>

#include <memory>
#include <optional>

#include "runner/plugins/options.hpp"

namespace runner::torch_parts {

/// Changes with every change of this header. A runner loads only libraries that were built with its version, and with its LibTorch.
inline constexpr uint32_t version = 1;

using plugin::Options;

/// What a Precision states about itself.
struct PrecisionFacts {
  /// A value of precision.mode: the dtype of parameters and of the computation, and whether the loss is scaled (16-mixed). "auto": as in a
  /// recipe, the devices decide.
  std::string mode = "auto";
  /// Globs over the names of the parameters that parameter() is called for: "blocks.*.weight". Empty: none.
  std::vector<std::string> parameters = {};
  /// Only for those with two or more dimensions: not for norms and biases.
  bool matrices_only = true;
  /// For the prediction of memory, in bytes for each element of such a parameter: what exists from the forward of a block to its backward;
  /// by default the result, in the dtype of the computation.
  std::optional<double> kept_bytes = {};
  /// What parameter() needs in addition while it runs; by default two tensors of the size of the result.
  std::optional<double> working_bytes = {};
};

/// The elements of a parameter whose gradient a rank has.
struct GradientPart {
  std::string name;            ///< of the parameter
  std::vector<int64_t> shape;  ///< of the parameter; with a tensor axis, of this rank's part of it
  int64_t offset = 0;          ///< of the first element in that, flattened
  double scale = 1;            ///< the loss scale: the gradient is multiplied by it
};

/// Each rank has one. Functions may throw std::exception, which ends the run.
class Precision {
 public:
  virtual ~Precision() = default;
  /// The same in every call.
  virtual PrecisionFacts facts() const = 0;
  /// What blocks compute with instead of a parameter: a tensor with the shape, dtype and device of `value`, which is the complete parameter
  /// in the dtype of the computation. Gradients pass through its graph to the parameter. It must not change `value`, and must return the
  /// same for the same values: it is called for each block that uses the parameter, and again when a block is recomputed. Without gradients
  /// (validation) GradMode is off.
  virtual torch::Tensor parameter(const torch::Tensor& value, const std::string& name) = 0;
  /// Changes a gradient in place, after it was summed over the ranks, and before hooks, clipping and the update see it. It is 1-d. With
  /// sharding, a rank has only a part of a parameter's gradient, and how it is cut depends on the strategy: the change of an element must
  /// depend on that element only, otherwise the result is another one for each strategy.
  virtual void gradient(const torch::Tensor& gradient, const GradientPart& part) { (void)gradient, (void)part; }
};

/// What a library exports. The first member never changes its place. A part that a library does not have is null.
/// The options that a function gets end with the call: copy what is needed later.
struct Library {
  uint32_t version = torch_parts::version;
  const char* torch_version = TORCH_VERSION;
  std::unique_ptr<Precision> (*precision)(const Options& options) = nullptr;
};

}  // namespace runner::torch_parts

/// Defines what the library exports: RUNNER_TORCH_PARTS(.precision = [](const Options& o) -> std::unique_ptr<Precision> { ... })
#define RUNNER_TORCH_PARTS(...)                                                                                \
  extern "C" __attribute__((visibility("default"))) const runner::torch_parts::Library* runner_torch_parts() { \
    static const runner::torch_parts::Library library{__VA_ARGS__};                                            \
    return &library;                                                                                           \
  }
