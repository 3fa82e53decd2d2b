#include "runner/train/strategies/tensor.hpp"

#include <map>

#include "runner/lua/error.hpp"

namespace runner {

using lua::Arguments;
using lua::Class;
using lua::Object;
using lua::ScriptMistake;
using lua::Value;
using nlohmann::json;

namespace {

ScriptTensor& script_tensor(const Arguments& arguments) { return arguments.as<ScriptTensor>(0, script_tensor_class()); }
ScriptTensor& tensor_at(const Arguments& arguments, int index) {
  return arguments.as<ScriptTensor>(index, script_tensor_class());
}

void require_same_size(const Arguments& arguments, const torch::Tensor& a, const torch::Tensor& b) {
  if (a.numel() != b.numel())
    throw ScriptMistake(
        fmt::format("{}: the tensors have {} and {} elements", arguments.function_name(), a.numel(), b.numel()));
}

/// The argument as an operand for `values`: a number, or a tensor with the same number of elements.
torch::Tensor operand(const Arguments& arguments, int index, const torch::Tensor& values) {
  if (!arguments.value(index).object) return torch::scalar_tensor(arguments.number(index), torch::kFloat64);
  const auto& other = tensor_at(arguments, index).values;
  require_same_size(arguments, values, other);
  return other;
}

torch::Tensor indices_at(const Arguments& arguments, int index) {
  const auto& indices = tensor_at(arguments, index).values;
  if (indices.scalar_type() != torch::kInt64)
    throw ScriptMistake(
        fmt::format("{}: argument {} must be indices, as largest() returns them", arguments.function_name(), index));
  return indices;
}

void add_script_statements(Class& made) {
  made.property("numel", [](Object& object) { return Value(json(object.as<ScriptTensor>().values.numel())); });
  auto number = [&](const char* name, double (*of)(const torch::Tensor&)) {
    made.method(name, [of](const Arguments& arguments) {
      arguments.at_most(0);
      return Value(json(of(script_tensor(arguments).values)));
    });
  };
  number("norm", [](const torch::Tensor& values) {
    return at::linalg_vector_norm(values, 2, std::nullopt, false, torch::kFloat64).item<double>();
  });
  number("sum", [](const torch::Tensor& values) { return values.sum(torch::kFloat64).item<double>(); });
  number("mean", [](const torch::Tensor& values) { return values.mean(torch::kFloat64).item<double>(); });
  number("min", [](const torch::Tensor& values) { return values.min().item<double>(); });
  number("max", [](const torch::Tensor& values) { return values.max().item<double>(); });
  made.method("is_finite", [](const Arguments& arguments) {
    arguments.at_most(0);
    return Value(json(script_tensor(arguments).values.isfinite().all().item<bool>()));
  });
}

/// Methods that return other tensors.
void add_views(Class& made) {
  made.method("clone", [](const Arguments& arguments) {
    arguments.at_most(0);
    const auto& tensor = script_tensor(arguments);
    return made_tensor(*tensor.host, tensor.values.clone());
  });
  made.method("to", [](const Arguments& arguments) {
    arguments.at_most(1);
    const auto& tensor = script_tensor(arguments);
    return made_tensor(*tensor.host,
                       tensor.values.to(script_dtype(arguments, 1), /*non_blocking=*/false, /*copy=*/true));
  });
  made.method("narrow", [](const Arguments& arguments) {
    arguments.at_most(2);
    const auto& tensor = script_tensor(arguments);
    int64_t offset = arguments.integer(1), count = arguments.integer(2);
    if (offset < 0 || count < 0 || offset > tensor.values.numel() - count)
      throw ScriptMistake(fmt::format("narrow: {} elements from offset {} are not in a tensor of {}", count, offset,
                                      tensor.values.numel()));
    return script_tensor(*tensor.host, tensor.values.narrow(0, offset, count), tensor.parameters);
  });
  made.method("largest", [](const Arguments& arguments) {
    arguments.at_most(1);
    const auto& tensor = script_tensor(arguments);
    int64_t count = arguments.integer(1);
    if (count < 1 || count > tensor.values.numel())
      throw ScriptMistake(fmt::format("largest: cannot return {} of {} elements", count, tensor.values.numel()));
    return made_tensor(*tensor.host, std::get<1>(tensor.values.abs().topk(count, 0, true, /*sorted=*/false)));
  });
  made.method("take", [](const Arguments& arguments) {
    arguments.at_most(1);
    const auto& tensor = script_tensor(arguments);
    return made_tensor(*tensor.host, tensor.values.index_select(0, indices_at(arguments, 1)));
  });
}

/// Methods that change the tensor and return it.
void add_script_changes(Class& made) {
  using Change = void (*)(const Arguments&, torch::Tensor&);
  auto add = [&](const char* name, int most, Change change) {
    made.method(name, [most, change](const Arguments& arguments) {
      arguments.at_most(most);
      torch::NoGradGuard no_grad;
      auto& tensor = script_tensor(arguments);
      tensor.require_writable();
      change(arguments, tensor.values);
      return arguments.value(0);
    });
  };
  add("zero_", 0, [](const Arguments&, torch::Tensor& values) { values.zero_(); });
  add("scale_", 1, [](const Arguments& arguments, torch::Tensor& values) { values.mul_(arguments.number(1)); });
  add("copy_", 1,
      [](const Arguments& arguments, torch::Tensor& values) { values.copy_(operand(arguments, 1, values)); });
  add("add_", 2, [](const Arguments& arguments, torch::Tensor& values) {
    values.add_(operand(arguments, 1, values), arguments.number(2, 1.0));
  });
  add("put_", 2, [](const Arguments& arguments, torch::Tensor& values) {
    auto indices = indices_at(arguments, 1);
    if (!arguments.value(2).object) {
      values.index_fill_(0, indices, arguments.number(2));
      return;
    }
    const auto& put = tensor_at(arguments, 2).values;
    require_same_size(arguments, indices, put);
    values.index_copy_(0, indices, put.to(values.scalar_type()));
  });
  add("index_add_", 2, [](const Arguments& arguments, torch::Tensor& values) {
    auto indices = indices_at(arguments, 1);
    const auto& added = tensor_at(arguments, 2).values;
    require_same_size(arguments, indices, added);
    values.index_add_(0, indices, added.to(values.scalar_type()));
  });
}

using Combine = torch::Tensor (*)(const torch::Tensor&, const torch::Tensor&);

lua::Function script_operation(Combine combine) {
  return [combine](const Arguments& arguments) {
    torch::NoGradGuard no_grad;
    int side = arguments.value(1).object ? 1 : 2;
    const auto& tensor = tensor_at(arguments, side);
    auto other = operand(arguments, 3 - side, tensor.values);
    return made_tensor(*tensor.host, side == 1 ? combine(tensor.values, other) : combine(other, tensor.values));
  };
}

}  // namespace

void ScriptTensor::require_writable() const {
  if (parameters && !host->parameters_writable)
    throw ScriptMistake("parameters cannot change inside a step: change them in setup or after_update");
}

torch::ScalarType script_dtype(const Arguments& arguments, int index) {
  static const std::map<std::string, torch::ScalarType> types = {{"float32", torch::kFloat32},
                                                                 {"float16", torch::kFloat16},
                                                                 {"bfloat16", torch::kBFloat16},
                                                                 {"float64", torch::kFloat64},
                                                                 {"int64", torch::kInt64}};
  auto name = arguments.text(index);
  if (auto found = types.find(name); found != types.end()) return found->second;
  throw ScriptMistake(
      fmt::format("{}: argument {} must be \"float32\", \"float16\", \"bfloat16\", \"float64\" or \"int64\", "
                  "not \"{}\"",
                  arguments.function_name(), index, name));
}

const Class& script_tensor_class() {
  static const Class kind = [] {
    Class made("tensor");
    add_script_statements(made);
    add_views(made);
    add_script_changes(made);
    made.operation("__add", script_operation([](const torch::Tensor& a, const torch::Tensor& b) { return a + b; }));
    made.operation("__sub", script_operation([](const torch::Tensor& a, const torch::Tensor& b) { return a - b; }));
    made.operation("__mul", script_operation([](const torch::Tensor& a, const torch::Tensor& b) { return a * b; }));
    made.operation("__div", script_operation([](const torch::Tensor& a, const torch::Tensor& b) { return a / b; }));
    return made;
  }();
  return kind;
}

Value script_tensor(ScriptHost& host, torch::Tensor values, bool parameters) {
  return Value(Object::make(script_tensor_class(), ScriptTensor{&host, std::move(values), parameters}));
}

Value made_tensor(ScriptHost& host, torch::Tensor values) {
  if (host.made) host.made(static_cast<int64_t>(values.nbytes()));
  return script_tensor(host, std::move(values));
}

}  // namespace runner
