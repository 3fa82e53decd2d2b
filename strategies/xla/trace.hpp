// Records what LibTorch computes on tensors without values (device `meta`) as a program in StableHLO.
//
// While a Recording exists, LibTorch shows every operator that the thread calls to the trace, below autograd, in forward and in backward
// (a boxed fallback for the dispatch key Fake). The operator runs on the tensors without values, which gives the shapes and strides of its
// results, and its lowering (lowering.hpp) adds operations to the program. An operator without a lowering is replaced by those that
// LibTorch composes it of.
//
// Values belong to storages. A tensor is a view of one by its strides (strided.hpp), so operators that return views need no lowering, and
// what is written through one view is read through the others.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "strategies/collective/libtorch.hpp"
#include "strategies/pjrt/module_text.hpp"

namespace runner::xla {

pjrt::ElementType element_type(torch::ScalarType type);
torch::ScalarType scalar_type(pjrt::ElementType type);
pjrt::Type type_of(const torch::Tensor& tensor);

/// Values that were copied from the host to tensors without values: tables that a model computes once and keeps. They are used by every
/// trace of the model.
class Constants {
 public:
  void add(const torch::Tensor& tensor, const torch::Tensor& values);
  /// Null if the storage has none.
  const torch::Tensor* find(const c10::StorageImpl* storage) const;

 private:
  struct Constant {
    torch::Tensor tensor;  ///< keeps the storage
    torch::Tensor values;  ///< 1-d, all of the storage
  };
  std::unordered_map<const c10::StorageImpl*, Constant> all_;
};

/// Numbers of a step that a program needs as arguments: ForwardContext::dropout_key and first_row, int64 [].
struct StepNumbers {
  pjrt::Value dropout_key, first_row;
};

class Trace {
 public:
  /// `text` and `constants` must outlive the trace.
  Trace(pjrt::ModuleText& text, Constants& constants) : text_(text), constants_(constants) {}
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  pjrt::ModuleText& text() { return text_; }
  /// Sets the numbers of the step that is recorded. Without them, a mask of dropout cannot be drawn (std::logic_error).
  void use(const StepNumbers& numbers) { step_numbers_ = numbers; }
  const StepNumbers& step_numbers() const;
  /// A new tensor that stands for the value.
  torch::Tensor tensor(const pjrt::Value& value);
  /// The value that a tensor stands for now. A tensor with values is a constant of the program. Throws Error(run_failed) if nothing was
  /// written to the tensor, or if it was made outside of this trace.
  pjrt::Value read(const torch::Tensor& tensor);
  /// The value, which has the tensor's type, is what the tensor and others of its storage stand for from now on.
  void write(const torch::Tensor& tensor, const pjrt::Value& value);

  /// While it exists, the operators of this thread are recorded.
  class Recording {
   public:
    explicit Recording(Trace& trace);
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

   private:
    Trace* before_;
    c10::impl::IncludeDispatchKeyGuard include_;
  };

  /// The names of the lowerings that were used so far.
  const std::set<std::string>& lowered() const { return lowered_; }

  /// An operator that LibTorch calls with the arguments on the stack.
  void run(const c10::OperatorHandle& op, torch::jit::Stack& stack);

 private:
  struct Stored {
    c10::Storage storage;  ///< keeps it, so that no other storage has its address
    pjrt::Value value;     ///< of any shape; its row-major order is that of the storage
  };
  pjrt::Value constant(const torch::Tensor& values);

  pjrt::ModuleText& text_;
  Constants& constants_;
  std::optional<StepNumbers> step_numbers_;
  std::unordered_map<const c10::StorageImpl*, Stored> values_;
  std::set<std::string> lowered_;
};

}  // namespace runner::xla
