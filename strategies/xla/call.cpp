#include "strategies/xla/call.hpp"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <numeric>

#include "runner/base/error.hpp"

namespace runner::xla {

using pjrt::Shape, pjrt::Type, pjrt::Value;

namespace {

int64_t from_zero(int64_t dim, int64_t rank) { return dim < 0 ? dim + std::max<int64_t>(rank, 1) : dim; }

}  // namespace

bool Call::has(const char* argument) const {
  const auto index = schema_.argumentIndexWithName(argument);
  if (!index) return false;
  const auto& value = arguments_[static_cast<size_t>(*index)];
  return !value.isNone() && !(value.isTensor() && !value.toTensor().defined());
}

const c10::IValue& Call::argument(const char* name) const {
  const auto index = schema_.argumentIndexWithName(name);
  RUNNER_CHECK(index, "{} has no argument `{}`", schema_.name(), name);
  return arguments_[static_cast<size_t>(*index)];
}

double Call::number(const char* name) const {
  const auto& value = argument(name);
  return value.isBool() ? static_cast<double>(value.toBool()) : value.toScalar().toDouble();
}

int64_t Call::dim(const char* name, int64_t rank) const { return from_zero(integer(name), rank); }

Shape Call::dims(const char* name, int64_t rank) const {
  Shape dims;
  if (has(name)) {
    const auto& value = argument(name);
    dims = value.isInt() ? Shape{value.toInt()} : value.toIntVector();
  }
  if (dims.empty()) {
    dims.resize(static_cast<size_t>(rank));
    std::iota(dims.begin(), dims.end(), 0);
  }
  for (auto& dim : dims) dim = from_zero(dim, rank);
  std::ranges::sort(dims);
  if (rank == 0) dims.clear();
  return dims;
}

Shape Call::common_shape(std::initializer_list<const char*> names) const {
  Shape common;
  for (const char* name : names)
    if (argument(name).isTensor()) common = at::infer_size(common, tensor(name).sizes());
  return common;
}

Value Call::fitted(const Value& value, const Type& type) const {
  return text.expand(text.convert(value, type.element), type.shape);
}

Value Call::value(const char* name, const Type& type) const {
  const auto& given = argument(name);
  if (given.isTensor()) return fitted(value(name), type);
  if (type.element != pjrt::ElementType::int32 && type.element != pjrt::ElementType::int64)
    return text.splat(number(name), type);
  return text.whole(given.toScalar().to<int64_t>(), type);
}

void Call::give(size_t index, const Value& value) {
  if (!wanted(index)) return;
  if (makes_results_) {
    results_.at(index) = trace_.tensor(value);
    return;
  }
  trace_.write(results_[index], text.convert(value, element_type(results_[index].scalar_type())));
}

}  // namespace runner::xla
