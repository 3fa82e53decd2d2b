// Search methods: proposals on problems with known solutions, reproducibility, and the trials that they stop.
#include "runner/sweep/methods.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "problems.hpp"
#include "runner/base/error.hpp"
#include "runner/sweep/search.hpp"

using namespace runner;
using namespace runner::sweep;
using namespace runner::testing;
using nlohmann::json;

namespace {

/// Runs trials one after the other and returns their parameters.
std::vector<json> run(Method& method, int64_t trials, const std::function<double(const json&)>& f) {
  std::vector<json> points;
  for (int64_t i = 0; i < trials; ++i) {
    auto proposal = method.propose(i);
    if (proposal.kind != Proposal::Kind::trial) break;
    points.push_back(proposal.trial.parameters);
    method.finished(proposal.trial, {Ending::Kind::completed, f(proposal.trial.parameters)});
  }
  return points;
}

double median_best(const std::string& method, const Space& space, double (*f)(const json&), int64_t trials) {
  std::vector<double> best;
  for (uint64_t seed = 0; seed < 15; ++seed) {
    auto made = make_method(method, space, seed);
    double least = INFINITY;
    for (const auto& point : run(*made, trials, f)) least = std::min(least, f(point));
    best.push_back(least);
  }
  std::sort(best.begin(), best.end());
  return best[7];
}

Space mixed_space() {
  return Space({choice("optimizer", {"adamw", "sgd"}), real("lr", 1e-5, 1e-1, true),
                under(real("momentum", 0, 0.99), "optimizer", {"sgd"}), integer("heads", 1, 16, true)},
               {Constraint("heads != 3")});
}
double mixed(const json& point) {
  double lr = std::log10(point.at("lr").get<double>()) + 3;
  double base = point.at("optimizer") == "sgd" ? 1 - point.at("momentum").get<double>() : 0.4;
  return lr * lr + base + std::abs(point.at("heads").get<double>() - 8) / 8;
}

}  // namespace

TEST_CASE("a grid visits every accepted combination once, and the last parameter changes fastest") {
  auto grid = make_grid(Space({choice("a", {1, 2}), under(choice("b", {"x", "y"}), "a", {2}), integer("c", 1, 2)},
                              {Constraint("a * c != 4")}));
  CHECK(grid->count({}) == 4);
  auto points = run(*grid, 100, [](const json&) { return 0.0; });
  CHECK(points == std::vector<json>{{{"a", 1}, {"c", 1}},
                                    {{"a", 1}, {"c", 2}},
                                    {{"a", 2}, {"b", "x"}, {"c", 1}},
                                    {{"a", 2}, {"b", "y"}, {"c", 1}}});
}

TEST_CASE("a grid is not made before its points are needed") {
  const Space space({integer("a", 1, 1'000'000'000), choice("b", {1, 2})});
  auto grid = make_grid(space);
  CHECK(grid->count(1'000'000) == 1'000'000);
  CHECK(grid->propose(2).trial.parameters == json{{"a", 2}, {"b", 1}});
  CHECK(grid->propose(1).trial.parameters == json{{"a", 1}, {"b", 2}});
  try {
    (void)grid->count({});
    FAIL("counted");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) ==
          "the grid has more than 1000000 combinations: give ranges fewer points, or set budget.trials");
  }
  auto constrained = make_grid(Space({integer("a", 1, 1'000'000'000), choice("b", {1, 2})}, {Constraint("a * b > 3")}));
  CHECK(constrained->count(1000) == 1000);
  CHECK(constrained->propose(0).trial.parameters == json{{"a", 2}, {"b", 2}});
}

TEST_CASE("every method respects ranges, conditions and constraints, and is reproducible by its seed") {
  Space space = mixed_space();
  for (const char* name : {"random", "sobol", "tpe"}) {
    INFO(name);
    auto first = make_method(name, space, 5), again = make_method(name, space, 5), other = make_method(name, space, 6);
    auto points = run(*first, 80, mixed);
    CHECK(points == run(*again, 80, mixed));
    CHECK(points != run(*other, 80, mixed));
    REQUIRE(points.size() == 80);
    for (const auto& point : points) {
      CHECK(point.contains("momentum") == (point.at("optimizer") == "sgd"));
      CHECK(point.at("lr").get<double>() >= 1e-5);
      CHECK(point.at("lr").get<double>() <= 1e-1);
      CHECK(point.at("heads").is_number_integer());
      CHECK(point.at("heads") != 3);
    }
  }
}

TEST_CASE("constraints that accept no point are reported") {
  Space space({real("x", 0, 1)}, {Constraint("x > 2")});
  for (const char* name : {"random", "sobol"}) {
    try {
      make_method(name, space, 1)->propose(0);
      FAIL("proposed");
    } catch (const Error& error) {
      CHECK(std::string(error.what()) == "10000 draws in a row were rejected by the constraints: `x > 2`");
    }
  }
  CHECK(make_grid(Space({choice("x", {1})}, {Constraint("x > 2")}))->count({}) == 0);
}

TEST_CASE("Sobol points are those of Joe and Kuo, and scrambled ones are as uniform") {
  std::vector<Parameter> parameters;
  for (int d = 0; d < 64; ++d)
    parameters.push_back(real("x" + std::string(d < 10 ? "0" : "") + std::to_string(d), 0, 1));
  Space space(parameters);
  auto points = run(*make_sobol(space, 0, false), 12, [](const json&) { return 0.0; });
  // Points 5 and 11 of scipy.stats.qmc.Sobol(64, scramble=False).
  std::vector<double> fifth = {0.875, 0.875, 0.125, 0.375, 0.875};
  for (size_t d = 0; d < fifth.size(); ++d) CHECK(points[5].at(parameters[d].name) == fifth[d]);
  std::vector<double> eleventh = {
      0.4375, 0.5625, 0.1875, 0.6875, 0.8125, 0.0625, 0.6875, 0.6875, 0.6875, 0.0625, 0.9375, 0.3125, 0.1875,
      0.1875, 0.5625, 0.1875, 0.5625, 0.0625, 0.6875, 0.5625, 0.9375, 0.9375, 0.9375, 0.1875, 0.6875, 0.3125,
      0.3125, 0.4375, 0.4375, 0.6875, 0.6875, 0.0625, 0.8125, 0.6875, 0.8125, 0.1875, 0.9375, 0.0625, 0.5625,
      0.3125, 0.3125, 0.3125, 0.0625, 0.9375, 0.4375, 0.5625, 0.5625, 0.5625, 0.1875, 0.3125, 0.3125, 0.6875,
      0.4375, 0.1875, 0.0625, 0.1875, 0.6875, 0.8125, 0.3125, 0.0625, 0.3125, 0.3125, 0.1875, 0.9375};
  for (size_t d = 0; d < 64; ++d) CHECK(points[11].at(parameters[d].name) == eleventh[d]);
  for (bool scramble : {false, true}) {
    auto many = run(*make_sobol(space, 7, scramble), 64, [](const json&) { return 0.0; });
    for (const auto& parameter : parameters) {
      std::set<int> cells;
      for (const auto& point : many) cells.insert(static_cast<int>(point.at(parameter.name).get<double>() * 64));
      CHECK(cells.size() == 64);
    }
    std::set<std::pair<int, int>> squares;  // they form a (0, m, 2)-net
    for (const auto& point : many)
      squares.emplace(static_cast<int>(point.at("x00").get<double>() * 8),
                      static_cast<int>(point.at("x01").get<double>() * 8));
    CHECK(squares.size() == 64);
  }
  CHECK(run(*make_sobol(space, 7, true), 2, [](const json&) { return 0.0; }) !=
        run(*make_sobol(space, 8, true), 2, [](const json&) { return 0.0; }));
}

TEST_CASE("TPE finds better values than random search") {
  CHECK(median_best("tpe", branin_space(), branin, 60) < 0.6 * median_best("random", branin_space(), branin, 60));
  CHECK(median_best("tpe", hartmann6_space(), hartmann6, 100) <
        median_best("random", hartmann6_space(), hartmann6, 100) - 0.3);
  CHECK(median_best("tpe", mixed_space(), mixed, 60) < 0.6 * median_best("random", mixed_space(), mixed, 60));
}

TEST_CASE("with constant_liar, TPE's parallel proposals stay apart") {
  auto spread = [](bool liar) {
    TpeOptions options;
    options.constant_liar = liar;
    auto tpe = make_tpe(Space({real("x", 0, 1)}), 3, options);
    run(*tpe, 30, [](const json& point) { return std::abs(point.at("x").get<double>() - 0.3); });
    double low = 1, high = 0;
    for (int64_t i = 30; i < 42; ++i) {  // none of these trials ends
      double x = tpe->propose(i).trial.parameters.at("x");
      low = std::min(low, x);
      high = std::max(high, x);
    }
    return high - low;
  };
  CHECK(spread(true) > 2 * spread(false));
}

TEST_CASE("ASHA continues the best 1/factor of each rung, and the first trials only while they lead") {
  auto asha = make_method("asha", curve_space(), 1, {{"min_steps", 10}, {"reduction_factor", 3}});
  auto verdict = [&](int64_t trial, int64_t step, double value) {
    REQUIRE(asha->wants(trial, step));
    return asha->report(trial, step, value) == Verdict::go_on;
  };
  CHECK_FALSE(asha->wants(0, 9));
  CHECK(verdict(0, 10, 5));
  CHECK_FALSE(asha->wants(0, 29));
  CHECK_FALSE(verdict(1, 10, 6));
  CHECK(verdict(2, 10, 4));
  CHECK_FALSE(verdict(3, 11, 4.5));  // one of 4, 4.5, 5 and 6 continues
  CHECK_FALSE(verdict(4, 10, NAN));
  CHECK(verdict(5, 10, 3.9));
  CHECK(verdict(6, 10, 4));  // two of seven continue: 3.9 and 4
  CHECK(verdict(0, 30, 5));  // the first trial at the second rung
  CHECK_FALSE(verdict(2, 30, 6));
  CHECK(verdict(5, 100, 1));  // passed the rungs at 30 and 90, judged at 90
  CHECK_FALSE(asha->wants(5, 269));
  CHECK(asha->wants(5, 270));
}

TEST_CASE("PBT: the worst get weights and perturbed parameters of the best, and generations wait for each other") {
  Space space({real("lr", 1e-4, 1, true), choice("c", {"a", "b"})});
  auto pbt = make_method("pbt", space, 2, {{"population", 8}, {"interval", 10}, {"generations", 3}});
  CHECK(pbt->count({}) == 24);
  std::vector<Trial> first;
  for (int64_t i = 0; i < 8; ++i) first.push_back(pbt->propose(i).trial);
  CHECK(pbt->propose(8).kind == Proposal::Kind::wait);
  for (const auto& trial : first) {
    CHECK(trial.until_step == 10);
    CHECK_FALSE(trial.from_trial);
    Ending ending{Ending::Kind::completed, static_cast<double>(trial.number)};
    if (trial.number == 3) ending = {Ending::Kind::failed};
    CHECK(pbt->propose(8).kind == Proposal::Kind::wait);
    pbt->finished(trial, ending);
  }
  for (int64_t member = 0; member < 8; ++member) {
    auto trial = pbt->propose(8 + member).trial;
    CHECK(trial.until_step == 20);
    bool replaced = member == 3 || member == 7;  // 3 failed, 7 is the worst of the others
    CAPTURE(member, trial.from_trial.value_or(-1));
    REQUIRE(trial.from_trial);
    if (replaced) {
      CHECK((*trial.from_trial == 0 || *trial.from_trial == 1));
      CHECK(trial.parameters != first[static_cast<size_t>(*trial.from_trial)].parameters);
    } else {
      CHECK(*trial.from_trial == member);
      CHECK(trial.parameters == first[static_cast<size_t>(member)].parameters);
    }
    pbt->finished(trial, {Ending::Kind::failed});
  }
  CHECK(pbt->propose(16).kind == Proposal::Kind::done);  // no member is left to continue from
}
