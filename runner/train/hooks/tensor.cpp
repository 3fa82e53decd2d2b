#include "runner/train/hooks/tensor.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runner/base/error.hpp"
#include "runner/lua/error.hpp"

namespace runner {

using lua::Arguments;
using lua::Class;
using lua::Object;
using lua::ScriptMistake;
using lua::Value;
using nlohmann::json;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

const Class& tensor_class();

HookTensor& self(const Arguments& arguments) { return arguments.as<HookTensor>(0, tensor_class()); }

// ---- statistics over all ranks

/// The elements that this rank counts in statistics.
torch::Tensor counted_part(const HookTensor& tensor) {
  return tensor.read().narrow(0, tensor.begin, tensor.end - tensor.begin);
}

std::vector<double> column(const HookExchange::Rows& rows, size_t index = 0) {
  std::vector<double> values;
  for (const auto& row : rows) values.push_back(row.at(index));
  return values;
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return sum;
}

HookExchange::Rows meet(const HookTensor& tensor, const char* method, const std::vector<double>& values) {
  return tensor.host->exchange.meet(fmt::format("{} of {}", method, tensor.name), values);
}

double norm(const HookTensor& tensor) {
  auto part = counted_part(tensor);
  double mine =
      part.numel() == 0 ? 0.0 : at::linalg_vector_norm(part, 2, std::nullopt, false, torch::kFloat64).item<double>();
  return std::sqrt(sum_of(column(meet(tensor, "norm", {mine * mine}))));
}

double sum(const HookTensor& tensor, const char* method) {
  return sum_of(column(meet(tensor, method, {counted_part(tensor).sum(torch::kFloat64).item<double>()})));
}

int64_t numel(const HookTensor& tensor) {
  int64_t count = 1;
  for (int64_t size : tensor.shape) count *= size;
  return count;
}

struct Range {
  double low, high;
};

/// Minimum and maximum over all ranks; both are NaN if one rank has a NaN.
Range range(const HookTensor& tensor, const char* method) {
  auto part = counted_part(tensor);
  Range mine{infinity, -infinity};
  if (part.numel() > 0) mine = {part.min().item<double>(), part.max().item<double>()};
  Range all{infinity, -infinity};
  for (const auto& row : meet(tensor, method, {mine.low, mine.high})) {
    if (std::isnan(row[0])) return {row[0], row[0]};
    all = {std::min(all.low, row[0]), std::max(all.high, row[1])};
  }
  return all;
}

json histogram(const HookTensor& tensor, int64_t bins) {
  if (bins < 1 || bins > 10000) throw ScriptMistake("histogram: argument 1 must be a number of bins, 1 to 10000");
  auto [low, high] = range(tensor, "histogram");
  if (!std::isfinite(low) || !std::isfinite(high))
    throw ScriptMistake(fmt::format("histogram: {} has values that are not finite", tensor.name));
  auto part = counted_part(tensor).to(torch::kCPU, torch::kFloat64);
  std::vector<double> mine(static_cast<size_t>(bins));
  double width = (high - low) / static_cast<double>(bins);
  const double* values = part.data_ptr<double>();
  for (int64_t i = 0; i < part.numel(); ++i) {
    auto bin = width > 0 ? static_cast<int64_t>((values[i] - low) / width) : 0;
    mine[static_cast<size_t>(std::min(bin, bins - 1))] += 1;
  }
  std::vector<int64_t> counts(mine.size());
  for (const auto& row : meet(tensor, fmt::format("histogram ({} bins)", bins).c_str(), mine))
    for (size_t bin = 0; bin < counts.size(); ++bin) counts[bin] += static_cast<int64_t>(row[bin]);
  return {{"min", low}, {"max", high}, {"counts", counts}};
}

// ---- operations on this rank's elements

/// A new tensor of the hook with these values and the layout of `like`.
Value own(const HookTensor& like, torch::Tensor values) {
  if (at::isReducedFloatingType(values.scalar_type())) values = values.to(torch::kFloat32);
  if (like.host->made) like.host->made(static_cast<int64_t>(values.nbytes()));
  HookTensor made = like;
  made.kind = HookTensor::Kind::own;
  made.place = {};
  made.divisor = 1;
  made.values = std::move(values);
  return Value(Object::make(tensor_class(), std::move(made)));
}

void require_alike(const Arguments& arguments, const HookTensor& a, const HookTensor& b) {
  if (a.shape != b.shape || a.offset != b.offset || a.begin != b.begin || a.end != b.end)
    throw ScriptMistake(fmt::format("{}: {} [{}] and {} [{}] have different shapes, or are sharded differently",
                                    arguments.function_name(), a.name, fmt::join(a.shape, ", "), b.name,
                                    fmt::join(b.shape, ", ")));
}

using Combine = torch::Tensor (*)(const torch::Tensor&, const torch::Tensor&);

/// An operator between two tensors, or between a tensor and a number.
lua::Function between(Combine combine) {
  return [combine](const Arguments& arguments) {
    torch::NoGradGuard no_grad;
    const HookTensor* tensors[2] = {nullptr, nullptr};
    for (int side : {0, 1})
      if (arguments.value(side + 1).object) tensors[side] = &arguments.as<HookTensor>(side + 1, tensor_class());
    if (tensors[0] && tensors[1]) require_alike(arguments, *tensors[0], *tensors[1]);
    torch::Tensor operands[2];
    for (int side : {0, 1})
      operands[side] =
          tensors[side] ? tensors[side]->read() : torch::scalar_tensor(arguments.number(side + 1), torch::kFloat64);
    return own(tensors[0] ? *tensors[0] : *tensors[1], combine(operands[0], operands[1]));
  };
}

/// The argument as an operand for `tensor`: a number, or a tensor of the same layout.
torch::Tensor operand(const Arguments& arguments, int index, const HookTensor& tensor) {
  if (!arguments.value(index).object) return torch::scalar_tensor(arguments.number(index), torch::kFloat64);
  const auto& other = arguments.as<HookTensor>(index, tensor_class());
  require_alike(arguments, tensor, other);
  return other.read();
}

void add_statements(Class& made) {
  made.property("numel", [](Object& object) { return Value(json(numel(object.as<HookTensor>()))); });
  made.property("shape", [](Object& object) { return Value(json(object.as<HookTensor>().shape)); });
  auto add = [&](const char* name, auto number) {
    made.method(name, [number](const Arguments& arguments) {
      arguments.at_most(0);
      return Value(json(number(self(arguments))));
    });
  };
  add("norm", norm);
  add("sum", [](const HookTensor& tensor) { return sum(tensor, "sum"); });
  add("mean", [](const HookTensor& tensor) { return sum(tensor, "mean") / static_cast<double>(numel(tensor)); });
  add("min", [](const HookTensor& tensor) { return range(tensor, "min").low; });
  add("max", [](const HookTensor& tensor) { return range(tensor, "max").high; });
  made.method("histogram", [](const Arguments& arguments) {
    arguments.at_most(1);
    return Value(histogram(self(arguments), arguments.integer(1, 10)));
  });
}

void add_changes(Class& made) {
  made.method("clone", [](const Arguments& arguments) {
    arguments.at_most(0);
    const auto& tensor = self(arguments);
    return own(tensor, tensor.read().clone());
  });
  auto add = [&](const char* name, auto change) {
    made.method(name, [change](const Arguments& arguments) {
      arguments.at_most(1);
      torch::NoGradGuard no_grad;
      auto& tensor = self(arguments);
      tensor.write(change(arguments, tensor));
      return arguments.value(0);
    });
  };
  add("scale_",
      [](const Arguments& arguments, const HookTensor& tensor) { return tensor.read() * arguments.number(1); });
  add("add_", [](const Arguments& arguments, const HookTensor& tensor) {
    return tensor.read() + operand(arguments, 1, tensor);
  });
  add("copy_", [](const Arguments& arguments, const HookTensor& tensor) {
    return operand(arguments, 1, tensor).expand_as(tensor.read());
  });
  made.method("lerp_", [](const Arguments& arguments) {
    arguments.at_most(2);
    torch::NoGradGuard no_grad;
    auto& tensor = self(arguments);
    const auto& other = arguments.as<HookTensor>(1, tensor_class());
    require_alike(arguments, tensor, other);
    auto held = tensor.read();
    tensor.write(held.lerp(other.read().to(held.scalar_type()), arguments.number(2)));
    return arguments.value(0);
  });
}

const Class& tensor_class() {
  static const Class kind = [] {
    Class made("tensor");
    add_statements(made);
    add_changes(made);
    made.operation("__add", between([](const torch::Tensor& a, const torch::Tensor& b) { return a + b; }));
    made.operation("__sub", between([](const torch::Tensor& a, const torch::Tensor& b) { return a - b; }));
    made.operation("__mul", between([](const torch::Tensor& a, const torch::Tensor& b) { return a * b; }));
    made.operation("__div", between([](const torch::Tensor& a, const torch::Tensor& b) { return a / b; }));
    return made;
  }();
  return kind;
}

}  // namespace

torch::Tensor HookTensor::read() const {
  if (kind == Kind::own) return values;
  if (place.numel() == 0) return torch::empty({0}, torch::kFloat32);
  auto held = place.swapped ? place.read(0, place.numel()) : place.local;
  return divisor == 1 ? held : held.to(torch::kFloat32) / divisor;
}

void HookTensor::write(const torch::Tensor& to) {
  if (kind == Kind::own) {
    values = to.to(values.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    return;
  }
  if (kind == Kind::parameter) {
    if (!host->parameters_writable)
      throw ScriptMistake(
          fmt::format("{} cannot change inside a step: change it in on_train_batch_start or on_train_batch_end", name));
    if (host->before_write && place.numel() > 0) host->before_write(place);
    host->parameters_written = true;
  }
  if (kind == Kind::gradient) host->gradients_written = true;
  host->written.push_back((kind == Kind::gradient ? "gradient/" : "param/") + name);
  if (place.numel() > 0) place.write(0, divisor == 1 ? to : to * divisor);
}

std::shared_ptr<Object> make_tensor_handle(HookTensorHost& host, HookTensor::Kind kind, const std::string& name,
                                           const std::vector<int64_t>& shape, const std::vector<StateTensor>& pieces,
                                           double divisor) {
  const auto piece_name = (kind == HookTensor::Kind::parameter ? "param/" : "gradient/") + name;
  HookTensor tensor{&host, kind, name, shape};
  tensor.divisor = divisor;
  tensor.place.local = torch::empty({0}, torch::kFloat32);
  for (const auto& piece : pieces) {
    if (piece.name != piece_name) continue;
    RUNNER_CHECK(tensor.place.numel() == 0, "a rank has two pieces of {}", name);
    tensor.place = piece;
    tensor.offset = piece.offset;
    tensor.begin = piece.write_begin;
    tensor.end = piece.write_end;
  }
  return Object::make(tensor_class(), std::move(tensor));
}

const HookTensor* hook_tensor(const Object& object) {
  if (&object.kind() != &tensor_class()) return nullptr;
  return &object.as<HookTensor>();
}

std::shared_ptr<Object> make_own_tensor(HookTensorHost& host, const std::string& parameter,
                                        const std::vector<int64_t>& shape, const std::vector<StateTensor>& pieces,
                                        const std::function<torch::Tensor(int64_t, int64_t)>& read) {
  auto like = make_tensor_handle(host, HookTensor::Kind::parameter, parameter, shape, pieces);
  const auto& tensor = like->as<HookTensor>();
  int64_t count = tensor.place.numel();
  auto values = count > 0 ? read(tensor.offset, count) : torch::empty({0}, torch::kFloat32);
  if (count > 0 && !tensor.place.swapped) values = values.to(tensor.place.local.device());
  return own(tensor, values).object;
}

}  // namespace runner
