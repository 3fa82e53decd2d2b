// One call of an operator, as its lowering sees it: arguments by the names of the operator's schema, and results to give values to.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "strategies/xla/trace.hpp"

namespace runner::xla {

class Call {
 public:
  /// `results`: those that LibTorch has made; nullopt: the lowering makes them.
  Call(Trace& trace, const c10::FunctionSchema& schema, std::vector<c10::IValue> arguments,
       std::optional<std::vector<torch::Tensor>> results)
      : text(trace.text()),
        trace_(trace),
        schema_(schema),
        arguments_(std::move(arguments)),
        makes_results_(!results),
        results_(std::move(results).value_or(std::vector<torch::Tensor>(schema.returns().size()))) {}

  pjrt::ModuleText& text;

  const StepNumbers& step_numbers() const { return trace_.step_numbers(); }
  const std::string& name() const { return schema_.name(); }
  bool has(const char* argument) const;  ///< the schema has the argument, and it is not None
  const c10::IValue& argument(const char* name) const;
  torch::Tensor tensor(const char* name) const { return argument(name).toTensor(); }
  int64_t integer(const char* name) const { return argument(name).toInt(); }
  bool boolean(const char* name) const { return argument(name).toBool(); }
  /// A Scalar or a number of any type.
  double number(const char* name) const;
  double number_or(const char* name, double otherwise) const { return has(name) ? number(name) : otherwise; }
  /// Dimensions, counted from 0. None or an empty list: all dimensions of `rank`.
  pjrt::Shape dims(const char* name, int64_t rank) const;
  int64_t dim(const char* name, int64_t rank) const;

  /// The value of a tensor argument.
  pjrt::Value value(const char* name) const { return trace_.read(tensor(name)); }
  pjrt::Value value_of(const torch::Tensor& tensor) const { return trace_.read(tensor); }
  /// A tensor or a number, converted and expanded to a type.
  pjrt::Value value(const char* name, const pjrt::Type& type) const;
  pjrt::Value fitted(const pjrt::Value& value, const pjrt::Type& type) const;

  const std::vector<torch::Tensor>& results() const { return results_; }
  /// The shape to which tensors of these shapes are expanded. Arguments that are numbers do not count.
  pjrt::Shape common_shape(std::initializer_list<const char*> names) const;
  /// Whether the caller wants result `index`.
  bool wanted(size_t index) const { return makes_results_ || (index < results_.size() && results_[index].defined()); }
  pjrt::Type result_type(size_t index = 0) const { return type_of(results_.at(index)); }
  /// Gives a result its value, which is converted to the element type of the result. Nothing happens if it is not wanted. A result that
  /// does not exist yet is made.
  void give(size_t index, const pjrt::Value& value);
  void give(const pjrt::Value& value) { give(0, value); }

 private:
  Trace& trace_;
  const c10::FunctionSchema& schema_;
  std::vector<c10::IValue> arguments_;
  bool makes_results_;
  std::vector<torch::Tensor> results_;
};

}  // namespace runner::xla
