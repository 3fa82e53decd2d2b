// Tensors with any strides are read from and written to flat arrays as their definition says.
#include "strategies/xla/strided.hpp"

#include <fmt/ranges.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <numeric>
#include <random>

#include "runner/base/error.hpp"
#include "tests/pjrt/run_program.hpp"

namespace runner::testing {

namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using pjrt::ElementType;
using pjrt::ModuleText;
using pjrt::Shape;
using pjrt::Type;
using pjrt::Value;
using xla::Strided;

constexpr int64_t count = 96;
const Type array_type{ElementType::float32, {count}};

Numbers array_numbers() {
  Numbers numbers(count);
  std::iota(numbers.begin(), numbers.end(), 1);
  return numbers;
}

/// The place of each element in the array, in row-major order.
std::vector<size_t> places(const Strided& tensor) {
  std::vector<size_t> all{static_cast<size_t>(tensor.offset)};
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    std::vector<size_t> more;
    for (const size_t place : all)
      for (int64_t i = 0; i < tensor.sizes[d]; ++i) more.push_back(place + static_cast<size_t>(i * tensor.strides[d]));
    all = more;
  }
  return all;
}

/// A tensor without overlaps whose dimensions are in any order and any distance in memory.
Strided random_tensor(std::mt19937& random) {
  const auto up_to = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint64_t>(most + 1)); };
  const auto rank = static_cast<size_t>(up_to(4));
  Strided tensor{.sizes = Shape(rank), .strides = Shape(rank), .offset = up_to(5)};
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  int64_t span = 1;
  for (const size_t d : order) {
    tensor.sizes[d] = 1 + up_to(2);
    tensor.strides[d] = span + up_to(2);
    span += (tensor.sizes[d] - 1) * tensor.strides[d];
  }
  return tensor;
}

/// Those in the array. Some are named because a random choice may miss them.
std::vector<Strided> tensors() {
  std::vector<Strided> all{{{96}, {1}},
                           {{8, 12}, {12, 1}},
                           {{12, 8}, {1, 12}},      // a transposed matrix
                           {{8, 4}, {12, 3}, 2},    // each third column
                           {{8, 3}, {12, 5}},       // columns whose distance does not divide the row
                           {{9}, {11}},             // a diagonal that ends at the last element
                           {{3, 4}, {25, 7}, 1},    // no distance divides another
                           {{2, 2}, {32, 16}, 20},  // a row that begins in the middle of one of the array's
                           {{0, 3}, {3, 1}},
                           {{}, {}, 95}};
  std::mt19937 random(1);
  while (all.size() < 60) {
    const auto tensor = random_tensor(random);
    if (const auto at = places(tensor); std::ranges::max(at) < count) all.push_back(tensor);
  }
  return all;
}

/// The outputs of a program with the array as its argument.
std::vector<Numbers> computed(const std::function<std::vector<Value>(ModuleText&, const Value&)>& build) {
  ModuleText module(1);
  const auto array = module.argument(array_type);
  std::vector<ModuleText::Output> outputs;
  for (const auto& value : build(module, array)) outputs.push_back({value});
  return run_program(module.finish(outputs), {array_type}, {{array_numbers()}})[0];
}

std::string named(const Strided& tensor) {
  return fmt::format("sizes {}, strides {}, offset {}", tensor.sizes, tensor.strides, tensor.offset);
}

}  // namespace

TEST_CASE("a tensor is read as its strides say", "[xla][strided]") {
  auto all = tensors();
  all.push_back({{3, 4, 2}, {0, 1, 12}, 3});  // repeats elements
  all.push_back({{3, 4, 2}, {5, 0, 17}});
  all.push_back({{4}, {0}, 9});
  const auto found = computed([&](ModuleText& module, const Value& array) {
    std::vector<Value> values;
    for (const auto& tensor : all) {
      values.push_back(xla::read(module, module.reshape(array, {4, 24}), tensor));
      CHECK(values.back().shape() == tensor.sizes);
    }
    return values;
  });
  const auto array = array_numbers();
  for (size_t i = 0; i < all.size(); ++i) {
    INFO(named(all[i]));
    Numbers expected;
    for (const size_t place : places(all[i])) expected.push_back(array[place]);
    CHECK(found[i] == expected);
  }
}

TEST_CASE("a write changes the elements of the tensor, and no others", "[xla][strided]") {
  const auto all = tensors();
  const auto found = computed([&](ModuleText& module, const Value& array) {
    std::vector<Value> values;
    for (const auto& tensor : all) {
      const int64_t elements = Type{ElementType::float32, tensor.sizes}.numel();
      const auto numbers = module.add(module.iota({ElementType::float32, {elements}}, 0), -1000);
      values.push_back(xla::written(module, array, tensor, module.reshape(numbers, tensor.sizes)));
    }
    return values;
  });
  for (size_t i = 0; i < all.size(); ++i) {
    INFO(named(all[i]));
    auto expected = array_numbers();
    const auto at = places(all[i]);
    for (size_t k = 0; k < at.size(); ++k) expected[at[k]] = -1000 + static_cast<double>(k);
    CHECK(found[i] == expected);
  }
}

TEST_CASE("tensors whose elements overlap are refused", "[xla][strided]") {
  ModuleText module(1);
  const auto array = module.argument(array_type);
  const auto overlap = MessageMatches(ContainsSubstring("overlap"));
  const Strided windows{{10, 3}, {1, 1}}, repeated{{2, 3}, {0, 1}};
  CHECK_THROWS_MATCHES(xla::read(module, array, windows), Error, overlap);
  const auto elements = [&](const Strided& tensor) { return module.splat(1, {ElementType::float32, tensor.sizes}); };
  CHECK_THROWS_MATCHES(xla::written(module, array, windows, elements(windows)), Error, overlap);
  CHECK_THROWS_MATCHES(xla::written(module, array, repeated, elements(repeated)), Error, overlap);
}

}  // namespace runner::testing
