// Spaces: values from the unit interval and back, active parameters, constraints, and errors.
#include "runner/sweep/space.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <map>

#include "problems.hpp"
#include "runner/base/error.hpp"

using namespace runner;
using namespace runner::sweep;
using namespace runner::testing;
using nlohmann::json;

namespace {

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::map<std::string, int> histogram(const Parameter& parameter, int draws) {
  std::map<std::string, int> counts;
  for (int i = 0; i < draws; ++i) ++counts[parameter.at((i + 0.5) / draws).dump()];
  return counts;
}

}  // namespace

TEST_CASE("values of finite parameters are equally likely, including both ends") {
  CHECK(histogram(integer("n", 2, 5), 400) ==
        std::map<std::string, int>{{"2", 100}, {"3", 100}, {"4", 100}, {"5", 100}});
  CHECK(histogram(integer("n", 8, 30, false, 8), 300) ==
        std::map<std::string, int>{{"8", 100}, {"16", 100}, {"24", 100}});
  CHECK(histogram(choice("c", {"a", 1, true}), 300) ==
        std::map<std::string, int>{{"\"a\"", 100}, {"1", 100}, {"true", 100}});
  auto stepped = real("x", 0, 0.5);
  stepped.step = 0.25;
  CHECK(histogram(stepped, 300) == std::map<std::string, int>{{"0.0", 100}, {"0.25", 100}, {"0.5", 100}});
}

TEST_CASE("integers beyond 2^53 are exact") {
  constexpr int64_t first = int64_t{1} << 53;
  auto n = integer("n", 0, 7);
  n.origin = first;
  std::vector<json> values;
  for (int i = 0; i < 8; ++i) values.push_back(first + i);
  CHECK(n.grid() == values);
  for (int i = 0; i < 8; ++i) {
    CHECK(n.at((i + 0.5) / 8) == first + i);
    CHECK(n.at(n.unit(first + i)) == first + i);
  }
}

TEST_CASE("logarithmic ranges are uniform in the logarithm") {
  auto lr = real("lr", 1e-5, 1e-1, true);
  CHECK(std::abs(lr.at(0.5).get<double>() - 1e-3) < 1e-12);
  CHECK(lr.at(0).get<double>() >= 1e-5);
  CHECK(lr.at(1).get<double>() <= 1e-1);
  auto counts = histogram(integer("n", 1, 4, true), 9000);  // of log(4.5/0.5), value n has log((n+.5)/(n-.5))
  for (int n = 1; n <= 4; ++n)
    CHECK(std::abs(counts[std::to_string(n)] - 9000 * std::log((n + 0.5) / (n - 0.5)) / std::log(9)) <= 1);
}

TEST_CASE("with steps larger than the lower end of a logarithmic range every value is possible") {
  auto n = integer("n", 8, 64, true, 16);  // half a step below 8 is 0, which has no logarithm
  auto counts = histogram(n, 4000);
  std::vector<std::string> values;
  for (const auto& [value, count] : counts) {
    values.push_back(value);
    CHECK(count > 100);
  }
  CHECK(values == std::vector<std::string>{"24", "40", "56", "8"});
  for (double u : {0.0, 0.3, 0.99}) CHECK(n.at(n.unit(n.at(u))) == n.at(u));
}

TEST_CASE("unit() is the inverse of at()") {
  for (const auto& parameter : {real("x", -5, 10), real("x", 1e-4, 1, true), integer("n", 1, 64, true),
                                integer("n", 3, 9), choice("c", {1, 2, 3})})
    for (double u : {0.01, 0.3, 0.77, 0.99}) {
      auto value = parameter.at(u), again = parameter.at(parameter.unit(value));
      if (value.is_number_float())
        CHECK(std::abs(value.get<double>() - again.get<double>()) < 1e-12);
      else
        CHECK(value == again);
    }
}

TEST_CASE("a parameter is active only for the given values of its parent, and parents come first") {
  Space space({under(real("momentum", 0, 1), "optimizer", {"sgd"}), choice("optimizer", {"adamw", "sgd"}),
               under(choice("nesterov", {true, false}), "momentum", {0.5})});
  CHECK(space.parameters()[0].name == "optimizer");
  auto point = [&](double u) { return space.point([&](size_t, const Parameter& p) { return p.at(u); }); };
  CHECK(point(0.2) == json{{"optimizer", "adamw"}});
  CHECK(point(0.5) == json{{"optimizer", "sgd"}, {"momentum", 0.5}, {"nesterov", false}});
  CHECK(point(0.7) == json{{"optimizer", "sgd"}, {"momentum", 0.7}});
}

TEST_CASE("constraints have Python's operator precedence and reject points") {
  json values = {{"a", 6}, {"b", 4}, {"model.dim", 96}, {"name", "sgd"}, {"on", true}};
  std::vector<std::pair<std::string, bool>> cases = {
      {"a + b * 2 == 14", true},
      {"(a + b) * 2 == 20", true},
      {"model.dim % a == 0 and not b > 4", true},
      {"a < b or name == 'sgd'", true},
      {"name != \"sgd\"", false},
      {"not on", false},
      {"-a % 4 == 2", true},
      {"a - b - 1 == 1", true},
      {"a / b >= 1.5e0", true},
      {"absent > 3", true},
  };
  for (const auto& [text, holds] : cases) {
    INFO(text);
    CHECK(Constraint(text).holds(values) == holds);
  }
  CHECK(error_of([] { Constraint("a +"); }) == "the constraint `a +` needs a value at its column 4");
  CHECK(error_of([] { Constraint("(a > 1"); }) == "the constraint `(a > 1` needs `)` at its column 7");
  CHECK(error_of([] { Constraint("a b"); }) == "the constraint `a b` needs an operator or the end at its column 3");
  CHECK(error_of([&] { Constraint("name > 1").holds(values); }) == "the constraint `name > 1` applies > to \"sgd\"");
  CHECK(error_of([&] { Constraint("a + b").holds(values); }) == "the constraint `a + b` takes 10.0 as true or false");
}

TEST_CASE("an impossible space is refused with the name of the parameter") {
  CHECK(error_of([] {
          Space({under(real("x", 0, 1), "optimzer", {"a"}), choice("optimizer", {"a"})});
        }) == "`x` depends on `optimzer`, which is not in the space; did you mean `optimizer`?");
  CHECK(error_of([] {
          Space({under(choice("x", {1}), "y", {1}), under(choice("y", {1}), "x", {1})});
        }) == "`x` depends on `y`, which (perhaps through others) depends on it again");
  CHECK(error_of([] { Space({choice("x", {1})}, {Constraint("width > 1")}); }) ==
        "the constraint `width > 1` uses `width`, which is neither in the space nor a value of the recipe; the "
        "space has x");
  Space with_constant({choice("x", {1, 2})}, {Constraint("x == y")}, {{"y", 2}});
  CHECK_FALSE(with_constant.accepts({{"x", 1}}));
  CHECK(with_constant.accepts({{"x", 2}}));
}

TEST_CASE("a grid contains both ends of a range and evenly spaced values between") {
  auto lr = real("lr", 1e-4, 1e-2, true);
  CHECK(error_of([&] { lr.grid(); }) == "a grid needs the number of values of `lr`: add points = N to its range");
  lr.points = 3;
  auto values = lr.grid();
  REQUIRE(values.size() == 3);
  CHECK(values[0] == 1e-4);
  CHECK(std::abs(values[1].get<double>() - 1e-3) < 1e-12);
  CHECK(std::abs(values[2].get<double>() - 1e-2) < 1e-12);
  CHECK(integer("n", 1, 3).grid() == std::vector<json>{1, 2, 3});
}

TEST_CASE("a grid contains every value of a finite parameter, also if its range ends between two values") {
  CHECK(integer("n", 8, 38, false, 8).grid() == std::vector<json>{8, 16, 24, 32});
  auto log = integer("n", 1, 8, true);
  CHECK(log.grid() == std::vector<json>{1, 2, 3, 4, 5, 6, 7, 8});
  log.points = 20;
  CHECK(log.grid().size() == 8);
  log.points = 4;
  CHECK(log.grid() == std::vector<json>{1, 2, 4, 8});
  auto stepped = real("x", 0, 0.99);
  stepped.step = 0.1;
  auto values = stepped.grid();
  REQUIRE(values.size() == 10);
  for (size_t i = 0; i < 10; ++i) CHECK(std::abs(values[i].get<double>() - 0.1 * static_cast<double>(i)) < 1e-12);
  stepped.points = 9;
  CHECK(stepped.grid().size() == 9);
  CHECK(stepped.grid().back() == values.back());
}
