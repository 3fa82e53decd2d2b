// XLA computes each operation of ModuleText on CPU devices, and the results are compared with known values.
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <catch2/matchers/catch_matchers_vector.hpp>
#include <cmath>
#include <functional>
#include <span>

#include "tests/pjrt/run_program.hpp"

using namespace runner::pjrt;
using Catch::Matchers::Approx;
using Catch::Matchers::ContainsSubstring;
using runner::testing::Numbers;
using runner::testing::run_program;

namespace {

Type f32(Shape shape) { return {ElementType::float32, std::move(shape)}; }
Type i64(Shape shape) { return {ElementType::int64, std::move(shape)}; }

/// The outputs of a program on one device. `build` gets the arguments.
std::vector<Numbers> computed(const std::vector<Type>& types, const std::vector<Numbers>& arguments,
                              const std::function<std::vector<Value>(ModuleText&, const std::vector<Value>&)>& build) {
  ModuleText module(1);
  std::vector<Value> values;
  for (const auto& type : types) values.push_back(module.argument(type));
  std::vector<ModuleText::Output> outputs;
  for (const auto& value : build(module, values)) outputs.push_back({value});
  return run_program(module.finish(outputs), types, {arguments})[0];
}

}  // namespace

TEST_CASE("operations element by element", "[pjrt]") {
  const Numbers a = {-1.5, 0.5, 2}, b = {2, 3, -0.25};
  const auto each = [](const Numbers& x, auto&& f) {
    Numbers results;
    for (const double value : x) results.push_back(f(value));
    return results;
  };
  const auto both = [&](auto&& f) {
    Numbers results;
    for (size_t i = 0; i < a.size(); ++i) results.push_back(f(a[i], b[i]));
    return results;
  };
  using enum Binary;
  const auto binary = computed({f32({3}), f32({3})}, {a, b}, [](ModuleText& m, const auto& v) {
    std::vector<Value> results;
    for (const auto kind : {add, subtract, multiply, divide, maximum, minimum})
      results.push_back(m.binary(kind, v[0], v[1]));
    results.push_back(m.binary(power, m.unary(Unary::abs, v[0]), v[1]));
    return results;
  });
  CHECK_THAT(binary[0], Approx(both([](double x, double y) { return x + y; })));
  CHECK_THAT(binary[1], Approx(both([](double x, double y) { return x - y; })));
  CHECK_THAT(binary[2], Approx(both([](double x, double y) { return x * y; })));
  CHECK_THAT(binary[3], Approx(both([](double x, double y) { return x / y; })));
  CHECK_THAT(binary[4], Approx(both([](double x, double y) { return std::max(x, y); })));
  CHECK_THAT(binary[5], Approx(both([](double x, double y) { return std::min(x, y); })));
  CHECK_THAT(binary[6], Approx(both([](double x, double y) { return std::pow(std::abs(x), y); })).epsilon(1e-5));

  const std::vector<std::pair<Unary, double (*)(double)>> unary = {
      {Unary::exponential, [](double x) { return std::exp(x); }},
      {Unary::log, [](double x) { return std::log(x); }},
      {Unary::log_plus_one, [](double x) { return std::log1p(x); }},
      {Unary::tanh, [](double x) { return std::tanh(x); }},
      {Unary::logistic, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {Unary::rsqrt, [](double x) { return 1 / std::sqrt(x); }},
      {Unary::sqrt, [](double x) { return std::sqrt(x); }},
      {Unary::negate, [](double x) { return -x; }},
      {Unary::abs, [](double x) { return std::abs(x); }},
      {Unary::sign, [](double x) { return x > 0 ? 1.0 : -1.0; }},
      {Unary::floor, [](double x) { return std::floor(x); }},
      {Unary::exponential_minus_one, [](double x) { return std::expm1(x); }},
      {Unary::erf, [](double x) { return std::erf(x); }},
      {Unary::cosine, [](double x) { return std::cos(x); }},
      {Unary::sine, [](double x) { return std::sin(x); }}};
  const Numbers positive = {0.3, 1.75, 2.5};
  const auto results = computed({f32({3})}, {positive}, [&](ModuleText& m, const auto& v) {
    std::vector<Value> all;
    for (const auto& [kind, function] : unary) all.push_back(m.unary(kind, v[0]));
    return all;
  });
  for (size_t i = 0; i < unary.size(); ++i)
    CHECK_THAT(results[i], Approx(each(positive, unary[i].second)).epsilon(1e-5));
}

TEST_CASE("operations on bits, and the other comparisons", "[pjrt]") {
  const std::vector<int64_t> a = {-3, 12, 5, int64_t{1} << 40}, b = {1, 12, 3, 7};
  const auto numbers = [](const auto& values) { return Numbers(values.begin(), values.end()); };
  const auto expected = [&](auto&& f) {
    Numbers results;
    for (size_t i = 0; i < a.size(); ++i) results.push_back(static_cast<double>(f(a[i], b[i])));
    return results;
  };
  const auto results = computed({i64({4}), i64({4})}, {numbers(a), numbers(b)}, [](ModuleText& m, const auto& v) {
    std::vector<Value> all;
    for (const auto kind : {Binary::and_, Binary::or_, Binary::xor_, Binary::remainder})
      all.push_back(m.binary(kind, v[0], v[1]));
    all.push_back(m.unary(Unary::not_, v[0]));
    all.push_back(m.binary(Binary::shift_right, v[0], v[1]));
    for (const auto kind : {Comparison::not_equal, Comparison::less_equal, Comparison::greater})
      all.push_back(m.compare(kind, v[0], v[1]));
    return all;
  });
  CHECK(results[0] == expected([](int64_t x, int64_t y) { return x & y; }));
  CHECK(results[1] == expected([](int64_t x, int64_t y) { return x | y; }));
  CHECK(results[2] == expected([](int64_t x, int64_t y) { return x ^ y; }));
  CHECK(results[3] == expected([](int64_t x, int64_t y) { return x % y; }));
  CHECK(results[4] == expected([](int64_t x, int64_t) { return ~x; }));
  // The sign is shifted, too.
  CHECK(results[5] == expected([](int64_t x, int64_t y) { return static_cast<uint64_t>(x) >> y; }));
  CHECK(results[6] == expected([](int64_t x, int64_t y) { return x != y; }));
  CHECK(results[7] == expected([](int64_t x, int64_t y) { return x <= y; }));
  CHECK(results[8] == expected([](int64_t x, int64_t y) { return x > y; }));
}

TEST_CASE("arrays of constants, of every type", "[pjrt]") {
  const std::array<float, 6> floats = {0, -1.5f, 0x1p-149f, INFINITY, 3.4e38f, 1.0f / 3};
  const std::array<double, 2> doubles = {-1.0 / 3, 5e-324};
  const std::array<int64_t, 2> longs = {INT64_MIN, 7};
  const std::array<int32_t, 2> integers = {INT32_MIN, 7};
  const std::array<bool, 6> flags = {true, false, false, true, true, false};
  const std::array<uint16_t, 2> halves = {0x3C01, 0xC000}, brains = {0x3F81, 0xC000};
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  const auto results = computed({}, {}, [&](ModuleText& m, const auto&) {
    return std::vector<Value>{m.constant(bytes(floats), f32({2, 3})),
                              m.constant(bytes(doubles), {ElementType::float64, {2}}),
                              m.constant(bytes(longs), i64({2})),
                              m.constant(bytes(integers), {ElementType::int32, {2}}),
                              m.constant(bytes(flags), {ElementType::boolean, {3, 2}}),
                              m.convert(m.constant(bytes(halves), {ElementType::float16, {2}}), ElementType::float32),
                              m.convert(m.constant(bytes(brains), {ElementType::bfloat16, {2}}), ElementType::float32)};
  });
  const auto numbers = [](const auto& values) { return Numbers(values.begin(), values.end()); };
  CHECK(results[0] == numbers(floats));
  CHECK(results[1] == numbers(doubles));
  CHECK(results[2] == numbers(longs));
  CHECK(results[3] == numbers(integers));
  CHECK(results[4] == numbers(flags));
  CHECK(results[5] == Numbers{1 + 0x1p-10, -2});
  CHECK(results[6] == Numbers{1 + 0x1p-7, -2});
}

TEST_CASE("a part in place of a box of an array", "[pjrt]") {
  const Type whole = f32({3, 4}), part = f32({2, 2});
  Numbers a, p, expected;
  for (int i = 0; i < 12; ++i) a.push_back(i);
  for (int i = 0; i < 4; ++i) p.push_back(100 + i);
  const auto results = computed({whole, part}, {a, p}, [](ModuleText& m, const auto& v) {
    return std::vector<Value>{m.update_slice(v[0], v[1], {1, 2}), m.update_slice(v[0], v[0], {0, 0})};
  });
  for (size_t row = 0; row < 3; ++row)
    for (size_t column = 0; column < 4; ++column)
      expected.push_back(row >= 1 && column >= 2 ? p[(row - 1) * 2 + column - 2] : a[row * 4 + column]);
  CHECK(results[0] == expected);
  CHECK(results[1] == a);
}

TEST_CASE("a barrier gives the values that it gets, in their order", "[pjrt]") {
  const Numbers a = {1.5, 2}, b = {3, 4, 5};
  const auto results = computed({f32({2}), i64({3})}, {a, b}, [](ModuleText& m, const auto& v) {
    CHECK(m.barrier({}).empty());
    auto all = m.barrier({m.add(v[0], 1), v[1], v[0]});
    all.push_back(m.barrier({v[1]}).front());
    return all;
  });
  CHECK(results[0] == Numbers{a[0] + 1, a[1] + 1});
  CHECK(results[1] == b);
  CHECK(results[2] == a);
  CHECK(results[3] == b);

  ModuleText module(1);
  const auto x = module.argument(f32({2})), y = module.argument(i64({3}));
  const auto kept = module.barrier({x, y});
  CHECK_THAT(module.finish({{kept[0]}, {kept[1]}}),
             ContainsSubstring("stablehlo.optimization_barrier %0, %1 : tensor<2xf32>, tensor<3xi64>"));
}

TEST_CASE("comparisons, selection, conversion, and numbers that are not finite", "[pjrt]") {
  const auto results = computed({f32({4}), f32({4})}, {{1, 2, 3, NAN}, {2, 2, 2, 2}}, [](ModuleText& m, const auto& v) {
    const auto less = m.compare(Comparison::less, v[0], v[1]), equal = m.compare(Comparison::equal, v[0], v[1]);
    return std::vector<Value>{less,
                              equal,
                              m.compare(Comparison::greater_equal, v[0], v[1]),
                              m.select(m.binary(Binary::or_, less, equal), v[0], m.splat(-INFINITY, v[0].type)),
                              m.unary(Unary::is_finite, v[0]),
                              m.unary(Unary::not_, less),
                              m.convert(m.convert(v[1], ElementType::bfloat16), ElementType::int64),
                              m.convert(m.splat(1 + 1.0 / 512, {ElementType::bfloat16, {2}}), ElementType::float32)};
  });
  CHECK(results[0] == Numbers{1, 0, 0, 0});
  CHECK(results[1] == Numbers{0, 1, 0, 0});
  CHECK(results[2] == Numbers{0, 1, 1, 0});
  CHECK(results[3] == Numbers{1, 2, -INFINITY, -INFINITY});
  CHECK(results[4] == Numbers{1, 1, 1, 0});
  CHECK(results[5] == Numbers{0, 1, 1, 1});
  CHECK(results[6] == Numbers{2, 2, 2, 2});
  CHECK(results[7] == Numbers{1, 1});  // rounded to 8 bits of fraction
}

TEST_CASE("shapes are changed as their names say", "[pjrt]") {
  const auto results = computed({f32({2, 3})}, {{1, 2, 3, 4, 5, 6}}, [](ModuleText& m, const auto& v) {
    return std::vector<Value>{m.transpose(v[0], {1, 0}),
                              m.reshape(v[0], {3, 2}),
                              m.slice(v[0], 1, 0, 3, 2),
                              m.concatenate({v[0], m.slice(v[0], 0, 1, 2)}, 0),
                              m.pad(v[0], 1, 1, 0, 9),
                              m.expand(m.slice(v[0], 0, 0, 1), {2, 3}),
                              m.broadcast(m.reshape(m.slice(v[0], 0, 0, 1), {3}), {3, 2}, {0}),
                              m.iota(f32({2, 3}), 1),
                              m.transpose(v[0], {0, 1})};
  });
  CHECK(results[0] == Numbers{1, 4, 2, 5, 3, 6});
  CHECK(results[1] == Numbers{1, 2, 3, 4, 5, 6});
  CHECK(results[2] == Numbers{1, 3, 4, 6});
  CHECK(results[3] == Numbers{1, 2, 3, 4, 5, 6, 4, 5, 6});
  CHECK(results[4] == Numbers{9, 1, 2, 3, 9, 4, 5, 6});
  CHECK(results[5] == Numbers{1, 2, 3, 1, 2, 3});
  CHECK(results[6] == Numbers{1, 1, 2, 2, 3, 3});
  CHECK(results[7] == Numbers{0, 1, 2, 0, 1, 2});
  CHECK(results[8] == Numbers{1, 2, 3, 4, 5, 6});
}

TEST_CASE("sums, maxima and products", "[pjrt]") {
  const auto results = computed(
      {f32({2, 3}), f32({2, 3, 2})}, {{1, 2, 3, 4, 5, 6}, {1, 0, 0, 1, 1, 1, 2, 0, 0, 2, 1, 0}},
      [](ModuleText& m, const auto& v) {
        return std::vector<Value>{
            m.reduce(Reduction::sum, v[0], {0}), m.reduce(Reduction::maximum, v[0], {1}),
            m.reduce(Reduction::sum, v[0], {0, 1}), m.product(v[0], v[0], {.left_summed = {1}, .right_summed = {1}}),
            m.product(m.reshape(v[0], {2, 1, 3}), v[1],
                      {.left_common = {0}, .right_common = {0}, .left_summed = {2}, .right_summed = {1}})};
      });
  CHECK(results[0] == Numbers{5, 7, 9});
  CHECK(results[1] == Numbers{3, 6});
  CHECK(results[2] == Numbers{21});
  CHECK(results[3] == Numbers{14, 32, 32, 77});
  CHECK(results[4] == Numbers{4, 5, 14, 10});
}

TEST_CASE("extremes of integers and booleans, and rounding", "[pjrt]") {
  const Type boolean{ElementType::boolean, {2, 2}}, i32{ElementType::int32, {2, 2}};
  const auto results = computed({i64({2, 2}), i32, boolean, f32({6})},
                                {{-5, 3, 7, -9}, {-5, 3, 7, -9}, {0, 1, 0, 0}, {-1.5, -0.5, 0.5, 1.5, 2.25, -2.75}},
                                [](ModuleText& m, const auto& v) {
                                  std::vector<Value> all;
                                  for (const auto kind : {Reduction::maximum, Reduction::minimum})
                                    for (size_t i = 0; i < 3; ++i) all.push_back(m.reduce(kind, v[i], {1}));
                                  all.push_back(m.reduce(Reduction::minimum, v[3], {0}));
                                  all.push_back(m.unary(Unary::ceil, v[3]));
                                  all.push_back(m.unary(Unary::round, v[3]));
                                  return all;
                                });
  CHECK(results[0] == Numbers{3, 7});
  CHECK(results[1] == Numbers{3, 7});
  CHECK(results[2] == Numbers{1, 0});
  CHECK(results[3] == Numbers{-5, -9});
  CHECK(results[4] == Numbers{-5, -9});
  CHECK(results[5] == Numbers{0, 0});
  CHECK(results[6] == Numbers{-2.75});
  CHECK(results[7] == Numbers{-1, 0, 1, 2, 3, -2});
  CHECK(results[8] == Numbers{-2, 0, 0, 2, 2, -3});
}

TEST_CASE("constants are computed with as arguments are", "[pjrt]") {
  const auto results = computed({}, {}, [](ModuleText& m, const auto&) {
    const auto less = m.whole(-4, i64({2})), more = m.whole(3, i64({2}));
    std::vector<Value> all;
    for (const auto kind : {Comparison::less, Comparison::greater_equal}) all.push_back(m.compare(kind, less, more));
    for (const auto kind : {Binary::maximum, Binary::divide, Binary::remainder})
      all.push_back(m.binary(kind, less, more));
    all.push_back(m.compare(Comparison::less, m.splat(-0.5, f32({2})), m.splat(0.25, f32({2}))));
    return all;
  });
  CHECK(results[0] == Numbers{1, 1});
  CHECK(results[1] == Numbers{0, 0});
  CHECK(results[2] == Numbers{3, 3});
  CHECK(results[3] == Numbers{-1, -1});
  CHECK(results[4] == Numbers{-1, -1});
  CHECK(results[5] == Numbers{1, 1});
}

TEST_CASE("the largest elements of rows, and rows in place of others", "[pjrt]") {
  const auto results =
      computed({f32({2, 4}), i64({2}), f32({2, 4})},
               {{3, 1, 4, 1, -5, 9, 2, 6}, {1, 0}, {10, 11, 12, 13, 20, 21, 22, 23}}, [](ModuleText& m, const auto& v) {
                 const auto [values, places] = m.largest(v[0], 2);
                 return std::vector<Value>{values,
                                           places,
                                           m.put_rows(v[0], v[1], v[2]),
                                           m.put_rows(v[0], m.slice(v[1], 0, 0, 1), m.slice(v[2], 0, 0, 1)),
                                           m.reverse(v[0], {1}),
                                           m.reverse(v[0], {0, 1})};
               });
  CHECK(results[0] == Numbers{4, 3, 9, 6});
  CHECK(results[1] == Numbers{2, 0, 1, 3});
  CHECK(results[2] == Numbers{20, 21, 22, 23, 10, 11, 12, 13});
  CHECK(results[3] == Numbers{3, 1, 4, 1, 10, 11, 12, 13});
  CHECK(results[4] == Numbers{1, 4, 1, 3, 6, 2, 9, -5});
  CHECK(results[5] == Numbers{6, 2, 9, -5, 1, 4, 1, 3});
}

TEST_CASE("a product may sum in another type than its operands have", "[pjrt]") {
  const auto results = computed({f32({1, 256})}, {Numbers(256, 1 + 0x1p-7)}, [](ModuleText& m, const auto& v) {
    const auto narrow = m.convert(v[0], ElementType::bfloat16);
    const ProductDims dims{.left_summed = {1}, .right_summed = {1}};
    return std::vector<Value>{m.product(narrow, narrow, dims, ElementType::float32)};
  });
  CHECK(results[0] == Numbers{256 * (1 + 0x1p-7) * (1 + 0x1p-7)});
}

namespace {

/// A convolution by its definition, in two dimensions without groups.
Numbers convolved(const Type& input, const Numbers& x, const Type& kernel, const Numbers& w,
                  const ConvolutionForm& form) {
  const auto rows = input.shape[0], channels = input.shape[1], outputs = kernel.shape[0];
  Shape sizes;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t padded = (input.shape[d + 2] - 1) * form.input_dilation[d] + 1 + form.before[d] + form.after[d];
    sizes.push_back((padded - (kernel.shape[d + 2] - 1) * form.kernel_dilation[d] - 1) / form.stride[d] + 1);
  }
  /// The element of the input at a place among zeros.
  const auto element = [&](int64_t n, int64_t c, int64_t i, int64_t j) {
    i -= form.before[0], j -= form.before[1];
    if (i < 0 || j < 0 || i % form.input_dilation[0] != 0 || j % form.input_dilation[1] != 0) return 0.0;
    i /= form.input_dilation[0], j /= form.input_dilation[1];
    if (i >= input.shape[2] || j >= input.shape[3]) return 0.0;
    return x[static_cast<size_t>(((n * channels + c) * input.shape[2] + i) * input.shape[3] + j)];
  };
  Numbers result;
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t o = 0; o < outputs; ++o)
      for (int64_t i = 0; i < sizes[0]; ++i)
        for (int64_t j = 0; j < sizes[1]; ++j) {
          double sum = 0;
          for (int64_t c = 0; c < channels; ++c)
            for (int64_t p = 0; p < kernel.shape[2]; ++p)
              for (int64_t q = 0; q < kernel.shape[3]; ++q) {
                const int64_t row = form.flips ? kernel.shape[2] - 1 - p : p,
                              column = form.flips ? kernel.shape[3] - 1 - q : q;
                sum += w[static_cast<size_t>(((o * channels + c) * kernel.shape[2] + row) * kernel.shape[3] + column)] *
                       element(n, c, i * form.stride[0] + p * form.kernel_dilation[0],
                               j * form.stride[1] + q * form.kernel_dilation[1]);
              }
          result.push_back(sum);
        }
  return result;
}

Numbers small_integers(int64_t count) {
  Numbers numbers;
  for (int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<double>((i * 7 + i / 5) % 11 - 5));
  return numbers;
}

}  // namespace

TEST_CASE("convolutions with strides, padding, dilations and reversed kernels", "[pjrt]") {
  const Type input = f32({2, 3, 5, 6}), kernel = f32({4, 3, 2, 3});
  const auto x = small_integers(input.numel()), w = small_integers(kernel.numel());
  const ConvolutionForm plain{
      .stride = {1, 1}, .before = {0, 0}, .after = {0, 0}, .input_dilation = {1, 1}, .kernel_dilation = {1, 1}};
  std::vector<ConvolutionForm> forms(5, plain);
  forms[1].stride = {2, 1}, forms[1].before = {1, 0}, forms[1].after = {2, 3};
  forms[2].kernel_dilation = {2, 1}, forms[2].input_dilation = {1, 3};
  forms[3].flips = true, forms[3].before = {1, 2}, forms[3].after = {-1, 0};
  forms[4].stride = {3, 2}, forms[4].before = {-1, -2}, forms[4].input_dilation = {2, 2}, forms[4].flips = true;
  const auto results = computed({input, kernel}, {x, w}, [&](ModuleText& m, const auto& v) {
    std::vector<Value> all;
    for (const auto& form : forms) all.push_back(m.convolution(v[0], v[1], form));
    return all;
  });
  for (size_t i = 0; i < forms.size(); ++i) CHECK(results[i] == convolved(input, x, kernel, w, forms[i]));
}

TEST_CASE("convolutions of groups of channels and of rows", "[pjrt]") {
  const Type input = f32({2, 2, 4, 4}), kernel = f32({4, 1, 2, 2}), half_input = f32({2, 1, 4, 4}),
             half_kernel = f32({2, 1, 2, 2});
  const auto x = small_integers(input.numel()), w = small_integers(kernel.numel());
  const ConvolutionForm plain{
      .stride = {1, 1}, .before = {0, 0}, .after = {0, 0}, .input_dilation = {1, 1}, .kernel_dilation = {1, 1}};
  const auto results = computed({input, kernel}, {x, w}, [&](ModuleText& m, const auto& v) {
    auto channels = plain, rows = plain;
    channels.groups = 2, rows.batch_groups = 2;
    return std::vector<Value>{m.convolution(v[0], v[1], channels), m.convolution(m.slice(v[0], 1, 0, 1), v[1], rows)};
  });
  const auto part = [](const Numbers& all, int64_t begin, int64_t end) {
    return Numbers(all.begin() + begin, all.begin() + end);
  };
  // Channel c of row r is at (2 r + c) * 16. Each group of two outputs has one channel.
  Numbers of_channel[2], expected;
  for (const int64_t c : {0, 1}) {
    auto own = part(x, c * 16, c * 16 + 16);
    const auto second = part(x, (2 + c) * 16, (2 + c) * 16 + 16);
    own.insert(own.end(), second.begin(), second.end());
    of_channel[c] = convolved(half_input, own, half_kernel, part(w, c * 8, c * 8 + 8), plain);
  }
  for (const int64_t r : {0, 1})
    for (const auto& own : of_channel) {
      const auto of_row = part(own, r * 18, r * 18 + 18);
      expected.insert(expected.end(), of_row.begin(), of_row.end());
    }
  CHECK(results[0] == expected);
  // Outputs 0 and 1 are those of row 0, and 2 and 3 those of row 1.
  expected.clear();
  for (const int64_t r : {0, 1}) {
    const auto of_row =
        convolved(f32({1, 1, 4, 4}), part(x, r * 32, r * 32 + 16), half_kernel, part(w, r * 8, r * 8 + 8), plain);
    expected.insert(expected.end(), of_row.begin(), of_row.end());
  }
  CHECK(results[1] == expected);
}

TEST_CASE("rows are taken from a table, and added into one", "[pjrt]") {
  const auto results =
      computed({f32({3, 2}), i64({2, 2})}, {{1, 2, 3, 4, 5, 6}, {2, 0, 2, 1}}, [](ModuleText& m, const auto& v) {
        const auto taken = m.rows(v[0], v[1]);
        return std::vector<Value>{taken, m.add_rows(v[0].type, v[1], taken),
                                  m.add_rows(i64({3}), v[1], m.splat(1, i64({2, 2})))};
      });
  CHECK(results[0] == Numbers{5, 6, 1, 2, 5, 6, 3, 4});
  CHECK(results[1] == Numbers{1, 2, 3, 4, 10, 12});
  CHECK(results[2] == Numbers{1, 1, 2});
}

TEST_CASE("collectives between replicas", "[pjrt]") {
  for (const int replicas : {1, 2, 4}) {
    ModuleText module(replicas);
    const Type type = f32({static_cast<int64_t>(replicas), 2});
    const auto a = module.argument(type);
    const auto text = module.finish(
        {{module.all_reduce(a)}, {module.all_gather(module.slice(a, 0, 0, 1), 0)}, {module.reduce_scatter(a, 0)}});
    std::vector<std::vector<Numbers>> arguments;
    Numbers sum(static_cast<size_t>(2 * replicas)), gathered;
    for (int r = 0; r < replicas; ++r) {
      Numbers own;
      for (int i = 0; i < 2 * replicas; ++i) own.push_back(100 * r + i);
      for (size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
      gathered.insert(gathered.end(), own.begin(), own.begin() + 2);
      arguments.push_back({own});
    }
    const auto results = run_program(text, {type}, arguments);
    for (int r = 0; r < replicas; ++r) {
      const auto& outputs = results[static_cast<size_t>(r)];
      CHECK(outputs[0] == sum);
      CHECK(outputs[1] == gathered);
      CHECK(outputs[2] == Numbers{sum[static_cast<size_t>(2 * r)], sum[static_cast<size_t>(2 * r + 1)]});
    }
  }
}

TEST_CASE("a donated argument gives its memory, and other types are refused", "[pjrt]") {
  ModuleText module(1);
  const auto a = module.argument(f32({1024})), b = module.argument(f32({2}));
  const auto more = module.add(a, 1.0);
  const Client client(runner::testing::loaded_cpu_plugin(), {.cpu_devices = 1});
  const auto program = client.compile(module.finish({{more, a}, {b}}), runner::testing::on_replicas(1));
  CHECK(program.memory().aliased == 4096);

  ModuleText wrong(1);
  const auto c = wrong.argument(f32({2})), d = wrong.argument(f32({3}));
  CHECK_THROWS_AS(wrong.add(c, d), std::logic_error);
  CHECK_THROWS_AS(wrong.finish({{c, d}}), std::logic_error);
  CHECK_THROWS_AS(wrong.finish({{c, c}, {c, c}}), std::logic_error);
  CHECK_THROWS_AS(wrong.finish({{wrong.add(c, c), wrong.add(c, c)}}), std::logic_error);
  CHECK_THROWS_AS(wrong.transpose(c, {}), std::logic_error);
  CHECK_THROWS_AS(wrong.splat(0.5, i64({2})), std::logic_error);
  CHECK_THROWS_AS(wrong.largest(c, 3), std::logic_error);
  CHECK_THROWS_AS(wrong.update_slice(c, c, {1}), std::logic_error);
  CHECK_THROWS_AS(wrong.constant({}, f32({2})), std::logic_error);
  ModuleText two(2);
  CHECK_THROWS_AS(two.reduce_scatter(two.argument(f32({3})), 0), std::logic_error);
}
