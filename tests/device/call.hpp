// One call of an operator: its arguments in the three forms that running it later takes.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "tests/device/view.hpp"

namespace runner::simulated {

/// What a schema says, read once for each operator.
struct OperatorFacts {
  std::string name;               ///< with its overload: "aten::add.out"
  bool shape_needs_data = false;  ///< the shape of its results is not known before it has run
  bool makes_tensors = false;     ///< some result is no argument
  std::vector<bool> writes;       ///< by argument
  /// By result: the argument that it is, if it is one.
  std::vector<std::optional<size_t>> result_is;

  static const OperatorFacts& of(const c10::OperatorHandle& op);
};

/// Values that are no tensors, and views of those that are: nothing here keeps a tensor's memory alive.
struct Argument {
  enum class Kind { other, tensor, list, optional_list } kind = Kind::other;
  c10::IValue value = {};
  std::vector<View> views = {};
  bool writes = false;

  /// For the CPU's kernel, over the bytes of the device.
  c10::IValue on_host() const;
  /// The same shapes on `device`, which is meta or the CPU; there with zeros.
  c10::IValue like(c10::Device device) const;
};

struct Call {
  /// Reads `actual`. A random number generator is replaced by one whose seed is drawn now, so that the numbers do not
  /// depend on when kernels run.
  Call(const c10::OperatorHandle& op, std::vector<c10::IValue> actual);

  /// Runs the CPU's kernel, here and now.
  torch::jit::Stack run() const;
  /// Throws if some tensor has no memory.
  void require_memory() const;
  /// Notes the reads, then the writes, of the task that was entered into `stream` last.
  void note(Stream& stream) const;
  /// That the call takes in simulated time.
  double seconds(const Speeds& speeds) const;
  /// Whether the argument is an `out` tensor without elements, which gets its shape from the operator.
  bool is_unshaped_output(size_t argument) const;

  c10::OperatorHandle op;
  const OperatorFacts* facts;
  std::vector<c10::IValue> actual;  ///< empty in the copy that a task keeps
  std::vector<Argument> arguments;
  int device = -1;

 private:
  void add_tensor(Argument& argument, const at::Tensor& tensor);
  Argument read(const c10::IValue& value);
  c10::IValue seeded(const c10::IValue& generator) const;
};

/// Runs `body` as LibTorch runs a kernel: without autograd and autocast, which the calling thread may have enabled.
void run_as_kernel(const std::function<void()>& body);

}  // namespace runner::simulated
