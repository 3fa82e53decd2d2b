// The class of tensors in scripts: statistics, results, and changes in place.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "runner/lua/error.hpp"
#include "runner/train/scripts/tensor.hpp"

namespace runner {

using lua::Arguments, lua::Class, lua::Object, lua::ScriptMistake, lua::Value;
using nlohmann::json;

namespace {

using Rows = HookExchange::Rows;

ScriptTensor& tensor_at(const Arguments& arguments, int index) {
  return arguments.as<ScriptTensor>(index, tensor_class());
}
ScriptTensor& self(const Arguments& arguments) { return tensor_at(arguments, 0); }

bool is_matrix(const ScriptTensor& tensor) { return !tensor.part && tensor.values.dim() == 2; }

const torch::Tensor& matrix_of(const ScriptTensor& tensor, const std::string& wanted) {
  if (is_matrix(tensor)) return tensor.values;
  throw ScriptMistake(
      fmt::format("{}: only the tensors of `loss` have rows and columns, not {}", wanted, tensor.describe()));
}
const torch::Tensor& matrix_at(const Arguments& arguments, int index) {
  return matrix_of(tensor_at(arguments, index), arguments.function_name());
}

/// This rank's elements. Throws ScriptMistake for a global tensor, of which each rank has other elements.
const torch::Tensor& elements_at(const Arguments& arguments, int index) {
  const auto& tensor = tensor_at(arguments, index);
  if (tensor.part || is_matrix(tensor))
    throw ScriptMistake(fmt::format("{}: only tensors of strategies have it; each rank has its own elements of {}",
                                    arguments.function_name(), tensor.describe()));
  return tensor.values;
}

// ---- statistics

std::vector<int64_t> shape(const ScriptTensor& tensor) {
  return tensor.part ? tensor.part->shape : tensor.values.sizes().vec();
}

int64_t numel(const ScriptTensor& tensor) {
  int64_t count = 1;
  for (int64_t size : shape(tensor)) count *= size;
  return count;
}

/// The elements that this rank counts.
torch::Tensor counted_part(const ScriptTensor& tensor) {
  const auto values = tensor.read();
  return tensor.part ? values.narrow(0, tensor.part->begin, tensor.part->end - tensor.part->begin) : values;
}

/// The values of every rank for a global tensor.
Rows meet(const ScriptTensor& tensor, const std::string& method, const std::vector<double>& values) {
  if (!tensor.part) return {values};
  return tensor.host->exchange->meet(fmt::format("{} of {}", method, tensor.part->name), values);
}

double sum_over_ranks(const ScriptTensor& tensor, const char* method, double mine) {
  double sum = 0;
  for (const auto& row : meet(tensor, method, {mine})) sum += row[0];
  return sum;
}

double norm(const ScriptTensor& tensor) {
  auto part = counted_part(tensor);
  double mine =
      part.numel() == 0 ? 0.0 : at::linalg_vector_norm(part, 2, std::nullopt, false, torch::kFloat64).item<double>();
  return tensor.part ? std::sqrt(sum_over_ranks(tensor, "norm", mine * mine)) : mine;
}

double sum(const ScriptTensor& tensor, const char* method) {
  return sum_over_ranks(tensor, method, counted_part(tensor).sum(torch::kFloat64).item<double>());
}

double mean(const ScriptTensor& tensor) {
  if (!tensor.part) return tensor.values.mean(torch::kFloat64).item<double>();
  return sum(tensor, "mean") / static_cast<double>(numel(tensor));
}

bool is_finite(const ScriptTensor& tensor) {
  const bool mine = counted_part(tensor).isfinite().all().item<bool>();
  return sum_over_ranks(tensor, "is_finite", mine ? 0 : 1) == 0;
}

struct Range {
  double low = std::numeric_limits<double>::infinity(), high = -low;
};

/// Minimum and maximum over all ranks; both are NaN if one rank has a NaN.
Range range(const ScriptTensor& tensor, const char* method) {
  auto part = counted_part(tensor);
  Range mine, all;
  if (part.numel() > 0 || !tensor.part) mine = {part.min().item<double>(), part.max().item<double>()};
  for (const auto& row : meet(tensor, method, {mine.low, mine.high})) {
    if (std::isnan(row[0])) return {row[0], row[0]};
    all = {std::min(all.low, row[0]), std::max(all.high, row[1])};
  }
  return all;
}

json histogram(const ScriptTensor& tensor, int64_t bins) {
  if (bins < 1 || bins > 10000) throw ScriptMistake("histogram: argument 1 must be a number of bins, 1 to 10000");
  auto [low, high] = range(tensor, "histogram");
  if (!std::isfinite(low) || !std::isfinite(high))
    throw ScriptMistake(fmt::format("histogram: {} has values that are not finite", tensor.describe()));
  auto part = counted_part(tensor).to(torch::kCPU, torch::kFloat64).contiguous();
  std::vector<double> mine(static_cast<size_t>(bins));
  double width = (high - low) / static_cast<double>(bins);
  const double* values = part.data_ptr<double>();
  for (int64_t i = 0; i < part.numel(); ++i) {
    auto bin = width > 0 ? static_cast<int64_t>((values[i] - low) / width) : 0;
    mine[static_cast<size_t>(std::min(bin, bins - 1))] += 1;
  }
  std::vector<int64_t> counts(mine.size());
  for (const auto& row : meet(tensor, fmt::format("histogram ({} bins)", bins), mine))
    for (size_t bin = 0; bin < counts.size(); ++bin) counts[bin] += static_cast<int64_t>(row[bin]);
  return {{"min", low}, {"max", high}, {"counts", counts}};
}

/// Returns 0 or 1. Scripts count dimensions from 1; the default is 2, over the columns of each row.
int64_t dim_of(const Arguments& arguments) {
  auto dim = arguments.integer(1, 2);
  if (dim != 1 && dim != 2)
    throw ScriptMistake(fmt::format("{}: dim is 1 (over the tokens) or 2 (over each token's columns), not {}",
                                    arguments.function_name(), dim));
  return dim - 1;
}

using Fold = torch::Tensor (*)(const torch::Tensor&, int64_t dim);
using Statistic = double (*)(const ScriptTensor&);

/// `fold` over one dimension for tensors of `loss`, `statistic` of all elements for others.
void add_reduction(Class& made, const char* name, Fold fold, Statistic statistic) {
  made.method(name, [=](const Arguments& arguments) {
    const auto& tensor = self(arguments);
    if (!is_matrix(tensor) && statistic) {
      arguments.at_most(0);
      return Value(json(statistic(tensor)));
    }
    arguments.at_most(1);
    return made_tensor(tensor, fold(matrix_at(arguments, 0), dim_of(arguments)));
  });
}

void add_statistics(Class& made) {
  made.property("numel", [](Object& object) { return Value(json(numel(object.as<ScriptTensor>()))); });
  made.property("shape", [](Object& object) { return Value(json(shape(object.as<ScriptTensor>()))); });
  auto add = [&](const char* name, auto of) {
    made.method(name, 0, [of](const Arguments& arguments) { return Value(json(of(self(arguments)))); });
  };
  add("norm", norm);
  add("min", [](const ScriptTensor& tensor) { return range(tensor, "min").low; });
  add("is_finite", is_finite);
  made.method("histogram", 1,
              [](const Arguments& arguments) { return Value(histogram(self(arguments), arguments.integer(1, 10))); });
  add_reduction(
      made, "sum", [](const torch::Tensor& values, int64_t dim) { return values.sum({dim}, /*keepdim=*/true); },
      [](const ScriptTensor& tensor) { return sum(tensor, "sum"); });
  add_reduction(
      made, "mean",
      [](const torch::Tensor& values, int64_t dim) {
        return (values.is_floating_point() ? values : values.to(torch::kFloat32)).mean({dim}, /*keepdim=*/true);
      },
      mean);
  add_reduction(
      made, "max", [](const torch::Tensor& values, int64_t dim) { return values.amax({dim}, /*keepdim=*/true); },
      [](const ScriptTensor& tensor) { return range(tensor, "max").high; });
  add_reduction(
      made, "logsumexp",
      [](const torch::Tensor& values, int64_t dim) { return values.logsumexp({dim}, /*keepdim=*/true); }, nullptr);
}

// ---- operators

/// Throws ScriptMistake unless the elements of both tensors on this rank correspond, or sizes of 1 can be broadcast.
void require_alike(const Arguments& arguments, const ScriptTensor& a, const ScriptTensor& b) {
  auto refuse = [&](const char* why) {
    throw ScriptMistake(fmt::format("{}: {} and {} {}", arguments.function_name(), a.describe(), b.describe(), why));
  };
  if (a.part || b.part) {
    const bool alike = a.part && b.part && a.part->shape == b.part->shape && a.part->runs == b.part->runs &&
                       a.part->begin == b.part->begin && a.part->end == b.part->end;
    if (!alike) refuse("have different shapes, or are sharded differently");
    return;
  }
  auto fit = [](int64_t x, int64_t y) { return x == y || x == 1 || y == 1; };
  const auto x = a.values.sizes(), y = b.values.sizes();
  if (x.size() != y.size() || (x.size() == 1 && x[0] != y[0])) refuse("have different sizes");
  if (x.size() == 2 && (!fit(x[0], y[0]) || !fit(x[1], y[1])))
    refuse("do not fit: sizes must be equal, or one of them 1");
}

/// The argument as an operand for `tensor`: a number, or a tensor with corresponding elements.
torch::Tensor operand(const Arguments& arguments, int index, const ScriptTensor& tensor) {
  if (arguments.value(index).object) {
    const auto& other = tensor_at(arguments, index);
    require_alike(arguments, tensor, other);
    return other.read();
  }
  const double number = arguments.number(index);
  if (!is_matrix(tensor)) return torch::scalar_tensor(number, torch::kFloat64);
  auto dtype = tensor.values.is_floating_point() ? tensor.values.scalar_type() : torch::kFloat32;
  return torch::full({1, 1}, number, tensor.values.options().dtype(dtype).requires_grad(false));
}

using Combine = torch::Tensor (*)(const torch::Tensor&, const torch::Tensor&);

Value combined(const Arguments& arguments, Combine combine, int left, int right) {
  const bool left_is_tensor = arguments.value(left).object != nullptr;
  const auto& tensor = tensor_at(arguments, left_is_tensor ? left : right);
  const auto mine = tensor.read(), other = operand(arguments, left_is_tensor ? right : left, tensor);
  return made_tensor(tensor, left_is_tensor ? combine(mine, other) : combine(other, mine));
}

void add_operators(Class& made) {
  auto add = [&](const char* name, Combine combine) {
    made.operation(name, [combine](const Arguments& arguments) { return combined(arguments, combine, 1, 2); });
  };
  const Combine power = [](const torch::Tensor& a, const torch::Tensor& b) { return a.pow(b); };
  add("__add", [](const torch::Tensor& a, const torch::Tensor& b) { return a + b; });
  add("__sub", [](const torch::Tensor& a, const torch::Tensor& b) { return a - b; });
  add("__mul", [](const torch::Tensor& a, const torch::Tensor& b) { return a * b; });
  add("__div", [](const torch::Tensor& a, const torch::Tensor& b) { return a / b; });
  add("__pow", power);
  made.method("pow", 1, [power](const Arguments& arguments) { return combined(arguments, power, 0, 1); });
  made.operation("__unm", [](const Arguments& arguments) {
    const auto& tensor = tensor_at(arguments, 1);
    return made_tensor(tensor, -tensor.read());
  });
}

// ---- methods that return new tensors

void add_maps(Class& made) {
  using Map = torch::Tensor (*)(const torch::Tensor&);
  auto add = [&](const char* name, Map map) {
    made.method(name, 0, [map](const Arguments& arguments) {
      const auto& tensor = self(arguments);
      return made_tensor(tensor, map(tensor.read()));
    });
  };
  add("clone", [](const torch::Tensor& values) { return values.clone(); });
  add("exp", [](const torch::Tensor& values) { return values.exp(); });
  add("log", [](const torch::Tensor& values) { return values.log(); });
  add("abs", [](const torch::Tensor& values) { return values.abs(); });
  add("sqrt", [](const torch::Tensor& values) { return values.sqrt(); });
  add("tanh", [](const torch::Tensor& values) { return values.tanh(); });
  add("sigmoid", [](const torch::Tensor& values) { return values.sigmoid(); });
  made.method("to", 1, [](const Arguments& arguments) {
    const auto& tensor = self(arguments);
    const auto dtype = script_dtype(arguments, 1);
    if (tensor.part && dtype != torch::kFloat32 && dtype != torch::kFloat64)
      throw ScriptMistake("to: tensors of a hook have float32 or float64");
    return made_tensor(tensor, tensor.read().to(dtype, /*non_blocking=*/false, /*copy=*/true));
  });
}

/// For the tensors of `loss`.
void add_matrix_methods(Class& made) {
  made.property("rows",
                [](Object& object) { return Value(json(matrix_of(object.as<ScriptTensor>(), "rows").size(0))); });
  made.property("columns",
                [](Object& object) { return Value(json(matrix_of(object.as<ScriptTensor>(), "columns").size(1))); });
  auto add = [&](const char* name, auto map) {
    made.method(name, 0, [map](const Arguments& arguments) {
      return made_tensor(self(arguments), map(matrix_at(arguments, 0)));
    });
  };
  add("softmax", [](const torch::Tensor& values) { return at::softmax(values, 1); });
  add("log_softmax", [](const torch::Tensor& values) { return at::log_softmax(values, 1); });
  add("detach", [](const torch::Tensor& values) { return values.detach(); });
  made.method("gather", 1, [](const Arguments& arguments) {
    const auto &values = matrix_at(arguments, 0), &index = matrix_at(arguments, 1);
    if (index.is_floating_point() || index.size(1) != 1 || index.size(0) != values.size(0))
      throw ScriptMistake(fmt::format("gather: argument 1 must be targets [{}, 1], a column for each row, not {}",
                                      values.size(0), tensor_at(arguments, 1).describe()));
    return made_tensor(self(arguments), values.gather(1, index));
  });
}

torch::Tensor indices_at(const Arguments& arguments, int index) {
  const auto& indices = elements_at(arguments, index);
  if (indices.scalar_type() != torch::kInt64)
    throw ScriptMistake(
        fmt::format("{}: argument {} must be indices, as largest() returns them", arguments.function_name(), index));
  return indices;
}

/// For tensors whose elements have the same index on each rank.
void add_selections(Class& made) {
  made.method("narrow", 2, [](const Arguments& arguments) {
    const auto& values = elements_at(arguments, 0);
    int64_t offset = arguments.integer(1), count = arguments.integer(2);
    if (offset < 0 || count < 0 || offset > values.numel() - count)
      throw ScriptMistake(
          fmt::format("narrow: {} elements from offset {} are not in a tensor of {}", count, offset, values.numel()));
    const auto& tensor = self(arguments);
    return tensor_handle(*tensor.host, values.narrow(0, offset, count), tensor.kind);
  });
  made.method("largest", 1, [](const Arguments& arguments) {
    const auto& values = elements_at(arguments, 0);
    int64_t count = arguments.integer(1);
    if (count < 1 || count > values.numel())
      throw ScriptMistake(fmt::format("largest: cannot return {} of {} elements", count, values.numel()));
    return made_tensor(self(arguments), std::get<1>(values.abs().topk(count, 0, true, /*sorted=*/false)));
  });
  made.method("take", 1, [](const Arguments& arguments) {
    const auto& values = elements_at(arguments, 0);
    return made_tensor(self(arguments), values.index_select(0, indices_at(arguments, 1)));
  });
}

// ---- changes

/// The values of argument 2 for the elements at `indices`.
torch::Tensor values_for(const Arguments& arguments, const torch::Tensor& indices, torch::ScalarType dtype) {
  const auto& values = elements_at(arguments, 2);
  if (values.numel() != indices.numel())
    throw ScriptMistake(fmt::format("{}: the tensors have {} and {} elements", arguments.function_name(),
                                    indices.numel(), values.numel()));
  return values.to(dtype);
}

/// Methods that change the tensor and return it.
void add_changes(Class& made) {
  using Change = void (*)(const Arguments&, const ScriptTensor& tensor, torch::Tensor& values);
  auto add = [&](const char* name, int most, Change change) {
    made.method(name, [most, change](const Arguments& arguments) {
      arguments.at_most(most);
      auto& tensor = self(arguments);
      tensor.write([&](torch::Tensor& values) { change(arguments, tensor, values); });
      return arguments.value(0);
    });
  };
  add("zero_", 0, [](const Arguments&, const ScriptTensor&, torch::Tensor& values) { values.zero_(); });
  add("scale_", 1,
      [](const Arguments& arguments, const ScriptTensor&, torch::Tensor& values) { values.mul_(arguments.number(1)); });
  add("copy_", 1, [](const Arguments& arguments, const ScriptTensor& tensor, torch::Tensor& values) {
    values.copy_(operand(arguments, 1, tensor));
  });
  add("add_", 2, [](const Arguments& arguments, const ScriptTensor& tensor, torch::Tensor& values) {
    values.add_(operand(arguments, 1, tensor), arguments.number(2, 1.0));
  });
  add("lerp_", 2, [](const Arguments& arguments, const ScriptTensor& tensor, torch::Tensor& values) {
    const auto& other = tensor_at(arguments, 1);
    require_alike(arguments, tensor, other);
    values.lerp_(other.read().to(values.scalar_type()), arguments.number(2));
  });
  add("put_", 2, [](const Arguments& arguments, const ScriptTensor&, torch::Tensor& values) {
    auto indices = indices_at(arguments, 1);
    if (!arguments.value(2).object)
      values.index_fill_(0, indices, arguments.number(2));
    else
      values.index_copy_(0, indices, values_for(arguments, indices, values.scalar_type()));
  });
  add("index_add_", 2, [](const Arguments& arguments, const ScriptTensor&, torch::Tensor& values) {
    auto indices = indices_at(arguments, 1);
    values.index_add_(0, indices, values_for(arguments, indices, values.scalar_type()));
  });
}

}  // namespace

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

const Class& tensor_class() {
  static const Class kind = [] {
    Class made("tensor");
    add_statistics(made);
    add_operators(made);
    add_maps(made);
    add_matrix_methods(made);
    add_selections(made);
    add_changes(made);
    return made;
  }();
  return kind;
}

}  // namespace runner
