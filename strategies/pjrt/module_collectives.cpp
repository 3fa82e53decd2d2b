// The operations of a program that exchange values between all replicas.
#include "strategies/pjrt/module_text.hpp"
#include "strategies/pjrt/module_words.hpp"

namespace runner::pjrt {

std::string ModuleText::groups() const {
  return fmt::format("replica_groups = dense<[[{}]]> : tensor<1x{}xi64>", fmt::join(counted_dims(0, replicas_), ", "),
                     replicas_);
}

Value ModuleText::all_reduce(const Value& a) {
  if (replicas_ == 1) return a;
  return combining("all_reduce", text_of(a), "add", "{" + groups() + "}", {a}, a.type);
}

Value ModuleText::all_gather(const Value& a, int64_t dim) {
  if (replicas_ == 1) return a;
  Type type = a.type;
  type.shape.at(static_cast<size_t>(dim)) *= replicas_;
  return operation(
      fmt::format("\"stablehlo.all_gather\"({}) {{all_gather_dim = {} : i64, {}}}", text_of(a), dim, groups()), {a},
      type);
}

Value ModuleText::reduce_scatter(const Value& a, int64_t dim) {
  if (replicas_ == 1) return a;
  Type type = a.type;
  auto& size = type.shape.at(static_cast<size_t>(dim));
  RUNNER_CHECK(size % replicas_ == 0, "reduce-scatter of {} among {}", text_of(a.type), replicas_);
  size /= replicas_;
  return combining("reduce_scatter", text_of(a), "add",
                   fmt::format("{{scatter_dimension = {} : i64, {}}}", dim, groups()), {a}, type);
}

}  // namespace runner::pjrt
