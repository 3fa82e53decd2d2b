// Matrix products.
#include "strategies/xla/lowering.hpp"
#include "strategies/xla/lowering_tools.hpp"

namespace runner::xla {

namespace {

/// The product of matrices, or of each pair of them, or of a matrix and a vector, in the type in which LibTorch sums.
Value matrix_product(ModuleText& text, const Value& a, const Value& b) {
  const bool batched = a.shape().size() == 3;
  const int64_t first = batched ? 1 : 0;
  pjrt::ProductDims dims{.left_summed = {first + 1}, .right_summed = {first}};
  if (batched) dims.left_common = dims.right_common = {0};
  return text.product(a, b, dims, wide(a.type.element));
}

void mm(Call& call) { call.give(matrix_product(call.text, call.value("self"), call.value("mat2"))); }

void mv(Call& call) { call.give(matrix_product(call.text, call.value("self"), call.value("vec"))); }

void dot(Call& call) {
  const auto a = call.value("self"), b = call.value("tensor");
  const auto product = call.text.product(a, b, {.left_summed = {0}, .right_summed = {0}}, wide(a.type.element));
  call.give(call.text.convert(product, a.type.element));
}

/// beta * self + alpha * product.
void plus(Call& call, const Value& product) {
  auto& text = call.text;
  const Type type = wide(call.result_type());
  const double alpha = call.number_or("alpha", 1), beta = call.number_or("beta", 1);
  Value sum = product;
  if (alpha != 1) sum = text.multiply(sum, alpha);
  if (beta != 0) {
    const auto addend = call.value("self", type);
    sum = text.add(sum, beta == 1 ? addend : text.multiply(addend, beta));
  }
  call.give(sum);
}

void addmm(Call& call) { plus(call, matrix_product(call.text, call.value("mat1"), call.value("mat2"))); }
void baddbmm(Call& call) { plus(call, matrix_product(call.text, call.value("batch1"), call.value("batch2"))); }
void addmv(Call& call) { plus(call, matrix_product(call.text, call.value("mat"), call.value("vec"))); }

}  // namespace

void add_products(Lowerings& table) {
  table.insert({{"aten::mm", {mm}},
                {"aten::bmm", {mm}},
                {"aten::mv", {mv}},
                {"aten::dot", {dot, true}},
                {"aten::addmm", {addmm}},
                {"aten::baddbmm", {baddbmm}},
                {"aten::addmv", {addmv}}});
}

}  // namespace runner::xla
