// Copies and new tensors.
#include "strategies/xla/lowering.hpp"
#include "strategies/xla/lowering_tools.hpp"

namespace runner::xla {

namespace {

void copy(Call& call) { call.give(call.value("src", call.result_type())); }
void same(Call& call) { call.give(call.value("self")); }
void no_values(Call&) {}

void fill(Call& call) { call.give(call.value("value", call.result_type())); }

template <int number>
void filled(Call& call) {
  call.give(call.text.splat(number, call.result_type()));
}

void full(Call& call) { call.give(call.value("fill_value", call.result_type())); }
void scalar_tensor(Call& call) { call.give(call.value("s", call.result_type())); }

/// Integers are counted as such, and other numbers in float64, as on CPUs.
void arange(Call& call) {
  auto& text = call.text;
  const Type type = call.result_type();
  const auto element = is_float(type.element) ? ElementType::float64 : ElementType::int64;
  const Type scalar{element, {}}, counted{element, type.shape};
  const auto number = [&](const char* name, int otherwise) {
    const auto value = call.has(name) ? call.value(name, scalar) : text.splat(otherwise, scalar);
    return text.expand(value, type.shape);
  };
  call.give(text.add(text.multiply(text.iota(counted, 0), number("step", 1)), number("start", 0)));
}

}  // namespace

void add_new_tensors(Lowerings& table) {
  table.insert({{"aten::copy", {copy}},
                {"aten::_to_copy", {same}},
                {"aten::clone", {same}},
                {"aten::empty", {no_values}},
                {"aten::empty_strided", {no_values}},
                {"aten::empty_like", {no_values}},
                {"aten::new_empty", {no_values}},
                {"aten::new_empty_strided", {no_values}},
                {"aten::fill", {fill}},
                {"aten::zero", {filled<0>}},
                {"aten::zeros", {filled<0>}},
                {"aten::zeros_like", {filled<0>}},
                {"aten::new_zeros", {filled<0>}},
                {"aten::ones", {filled<1>}},
                {"aten::ones_like", {filled<1>}},
                {"aten::new_ones", {filled<1>}},
                {"aten::full", {full}},
                {"aten::full_like", {full}},
                {"aten::new_full", {full}},
                {"aten::scalar_tensor", {scalar_tensor}},
                {"aten::arange", {arange}}});
}

}  // namespace runner::xla
