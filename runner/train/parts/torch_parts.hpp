// The interface of parts of the training itself, in a library that is built outside of this project, against this header and LibTorch.
// `cmake --install` puts it into include/runner/plugins/torch_parts.hpp. In a recipe:
//
//   [plugins]
//   precision = "libfp8.so"
//   accelerator = "libnpu.so"   # one library can have both
//   options = { bits = 4 }
//
// Parts that need no LibTorch are in parts.hpp.
#pragma once
#include <torch/autograd.h>
#include <torch/types.h>
#include <torch/version.h>

#include <chrono>
#include <memory>
#include <optional>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "runner/plugins/options.hpp"

namespace runner::torch_parts {

/// Changes with every change of this header. A runner loads only libraries that were built with its version, and with its LibTorch.
inline constexpr uint32_t version = 2;

using plugin::Options;

/// The facts that a Precision states about itself.
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
  /// The bytes that parameter() needs in addition while it runs, for each element; by default two tensors of the size of the result.
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
  /// The facts are the same in every call.
  virtual PrecisionFacts facts() const = 0;
  /// The tensor that blocks compute with instead of a parameter. It has the shape, dtype and device of `value`, which is the complete
  /// parameter in the dtype of the computation. Gradients pass through its graph to the parameter. The function must not change `value`,
  /// and must return the same for the same values: it is called for each block that uses the parameter, and again when a block is
  /// recomputed. Without gradients (validation) GradMode is off.
  virtual torch::Tensor parameter(const torch::Tensor& value, const std::string& name) = 0;
  /// Changes a gradient in place, after it was summed over the ranks, and before hooks, clipping and the update see it. It is 1-d. With
  /// sharding, a rank has only a part of a parameter's gradient, and how it is cut depends on the strategy: the change of an element must
  /// depend on that element only, otherwise the result is another one for each strategy.
  virtual void gradient(const torch::Tensor& gradient, const GradientPart& part) { (void)gradient, (void)part; }
};

/// One device of an Accelerator.
struct DeviceFacts {
  std::string name = {};                   ///< for messages
  int64_t memory_bytes = 0;                ///< 0: not known; then every plan fits
  std::optional<int64_t> free_bytes = {};  ///< for devices = "free:N"; default: all of it
  bool bf16 = true;                        ///< precision.mode = "auto" then is bf16-mixed
};

/// The facts that an Accelerator states about the devices of this machine.
struct AcceleratorFacts {
  /// LibTorch's name of the device type. For a device that LibTorch does not know, the library registers PrivateUse1 under a name of its
  /// own (c10::register_privateuse1_backend), with an allocator, a device guard and operators (PyTorch documentation, "Accelerator
  /// Integration"). "cpu" and "cuda" are not allowed: the runner has them itself.
  std::string type = {};
  std::vector<DeviceFacts> devices = {};
  /// The device guard has streams and events, so that copies and collectives can overlap with the computation.
  bool streams = false;
  /// tensor.pin_memory() gives host memory from which copies to the device do not block the host.
  bool pinned = false;
  /// The name of what collectives() makes, such as "hccl". Empty: tensors of other ranks pass through host memory.
  std::string collectives = {};
  /// For the prediction of memory: bytes of a device that a rank needs before its first tensor, that libraries for matrix products keep,
  /// and that `collectives` needs if there are several ranks.
  int64_t context_bytes = 0, workspace_bytes = 0, communicator_bytes = 0;
};

/// The devices that ranks compute on. A process has one object. Ranks can be threads of a process (dp, ddp2), so functions must be
/// thread-safe. They may throw std::exception, which ends the run.
class Accelerator {
 public:
  virtual ~Accelerator() = default;
  /// The facts are the same in every call while a run trains. Also called before a run, in a process of its own that computes nothing.
  virtual AcceleratorFacts facts() const = 0;
  /// Makes a device the current one of the calling thread. Each rank calls it once, before it makes tensors. `device`: from 0 on.
  virtual void set_device(int device) = 0;
  /// The most bytes that tensors on a device have used at one time since the process began.
  virtual int64_t peak_memory_bytes(int device) const = 0;
  /// Called if facts().collectives names it, by each rank for each group that it is in. `rank` and `size` are those of the group, whose
  /// ranks meet at `store`.
  virtual c10::intrusive_ptr<c10d::Backend> collectives(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                        int size, std::chrono::milliseconds timeout) {
    (void)store, (void)rank, (void)size, (void)timeout;
    return {};
  }
};

/// The exports of a library. The first member never changes its place. A part that a library does not have is null.
/// The options that a function gets end with the call: copy what is needed later.
struct Library {
  uint32_t version = torch_parts::version;
  const char* torch_version = TORCH_VERSION;
  std::unique_ptr<Precision> (*precision)(const Options& options) = nullptr;
  std::unique_ptr<Accelerator> (*accelerator)(const Options& options) = nullptr;
};

}  // namespace runner::torch_parts

/// Defines what the library exports: RUNNER_TORCH_PARTS(.precision = [](const Options& o) -> std::unique_ptr<Precision> { ... })
#define RUNNER_TORCH_PARTS(...)                                                                                \
  extern "C" __attribute__((visibility("default"))) const runner::torch_parts::Library* runner_torch_parts() { \
    static const runner::torch_parts::Library library{__VA_ARGS__};                                            \
    return &library;                                                                                           \
  }
