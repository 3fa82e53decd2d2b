// XLA computes each operation of ModuleText on CPU devices, and the results are compared with known values.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_vector.hpp>
#include <cmath>

#include "tests/pjrt/run_program.hpp"

using namespace runner::pjrt;
using Catch::Matchers::Approx;
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
    const auto text = module.finish({{module.all_reduce(a)},
                                     {module.all_gather(module.slice(a, 0, 0, 1), 0)},
                                     {module.reduce_scatter(a, 0)},
                                     {module.replica()}});
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
      CHECK(outputs[3] == Numbers{static_cast<double>(r)});
    }
  }
}

TEST_CASE("a donated argument gives its memory, and other types are refused", "[pjrt]") {
  ModuleText module(1);
  const auto a = module.argument(f32({1024})), b = module.argument(f32({2}));
  const auto more = module.add(a, 1.0);
  const Client client(runner::testing::cpu_plugin(), {.cpu_devices = 1});
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
}
