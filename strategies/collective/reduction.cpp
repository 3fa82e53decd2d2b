#include "strategies/collective/reduction.hpp"

#include <algorithm>

#include "strategies/collective/operation.hpp"

namespace runner {

namespace {

using Op = c10d::ReduceOp::RedOpType;

constexpr int64_t block = 1024;  // elements on the stack at each level of the tree

template <typename T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<c10::BFloat16> {
  using type = float;
};
template <>
struct Accumulator<c10::Half> {
  using type = float;
};

template <Op op, typename A>
inline A combine(A a, A b) {
  if constexpr (op == Op::MAX) return std::max(a, b);
  if constexpr (op == Op::MIN) return std::min(a, b);
  if constexpr (op == Op::PRODUCT) return a * b;
  return a + b;
}

template <Op op, typename T, typename A>
void reduce_tree(const T* const* in, int low, int high, A* out, int64_t count) {
  if (high - low == 1) {
    for (int64_t i = 0; i < count; ++i) out[i] = static_cast<A>(in[low][i]);
    return;
  }
  int middle = low + (high - low) / 2;
  if (high - low == 2) {
    const T *a = in[low], *b = in[low + 1];
    for (int64_t i = 0; i < count; ++i) out[i] = combine<op>(static_cast<A>(a[i]), static_cast<A>(b[i]));
    return;
  }
  A other[block];
  reduce_tree<op>(in, low, middle, out, count);
  reduce_tree<op>(in, middle, high, other, count);
  for (int64_t i = 0; i < count; ++i) out[i] = combine<op>(out[i], other[i]);
}

template <Op op, typename T>
void reduce_typed(const std::byte* const* in, int ranks, std::byte* out, int64_t count) {
  using A = typename Accumulator<T>::type;
  std::vector<const T*> rows(static_cast<size_t>(ranks));
  A sum[block];
  auto* target = reinterpret_cast<T*>(out);
  for (int64_t begin = 0; begin < count; begin += block) {
    int64_t n = std::min(block, count - begin);
    for (int r = 0; r < ranks; ++r) rows[static_cast<size_t>(r)] = reinterpret_cast<const T*>(in[r]) + begin;
    reduce_tree<op>(rows.data(), 0, ranks, sum, n);
    for (int64_t i = 0; i < n; ++i) target[begin + i] = static_cast<T>(sum[i]);
  }
}

template <Op op>
Reduction reduction_for(torch::ScalarType dtype) {
  switch (dtype) {
    case torch::kFloat32:
      return reduce_typed<op, float>;
    case torch::kFloat64:
      return reduce_typed<op, double>;
    case torch::kBFloat16:
      return reduce_typed<op, c10::BFloat16>;
    case torch::kHalf:
      return reduce_typed<op, c10::Half>;
    case torch::kInt64:
      return reduce_typed<op, int64_t>;
    case torch::kInt32:
      return reduce_typed<op, int32_t>;
    case torch::kUInt8:
      return reduce_typed<op, uint8_t>;
    case torch::kBool:
      return reduce_typed < op == Op::SUM ? Op::MAX : op == Op::PRODUCT ? Op::MIN : op, uint8_t > ;
    default:
      TORCH_CHECK(
          false,
          "shared-memory collectives reduce float64, float32, bfloat16, float16, int64, int32, uint8 and bool, not ",
          c10::getDtypeNames(dtype).first);
  }
}

}  // namespace

Reduction reduction_of(torch::ScalarType dtype, Op operation) {
  switch (operation) {
    case Op::SUM:
      return reduction_for<Op::SUM>(dtype);
    case Op::MAX:
      return reduction_for<Op::MAX>(dtype);
    case Op::MIN:
      return reduction_for<Op::MIN>(dtype);
    case Op::PRODUCT:
      return reduction_for<Op::PRODUCT>(dtype);
    default:
      TORCH_CHECK(false, "shared-memory collectives reduce with SUM, MAX, MIN and PRODUCT, not ",
                  name_of_reduction(operation), operation == Op::AVG ? " (divide after SUM)" : "");
  }
}

}  // namespace runner
