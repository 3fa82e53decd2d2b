// A sweep as a state machine: replaying any prefix of its history gives the state of an uninterrupted sweep.
#include "runner/sweep/search.hpp"

#include <catch2/catch_test_macros.hpp>

#include "problems.hpp"
#include "runner/base/error.hpp"
#include "runner/sweep/methods.hpp"
#include "runner/sweep/random_bits.hpp"

using namespace runner;
using namespace runner::sweep;
using namespace runner::testing;
using nlohmann::json;

namespace {

struct Maker {
  std::string method;
  json options;
  int64_t trials;
  Search make() const {
    Limits limits;
    limits.trials = trials;
    return Search(make_method(method, curve_space(), 11, options), Goal::min, limits);
  }
};

const std::vector<Maker> makers = {{"random", json::object(), 30},
                                   {"sobol", json::object(), 30},
                                   {"tpe", json::object(), 30},
                                   {"asha", {{"min_steps", 3}, {"reduction_factor", 3}, {"sampler", "tpe"}}, 30},
                                   {"pbt", {{"population", 6}, {"interval", 9}, {"generations", 5}}, 30}};

/// Runs `parallel` trials at a time and returns the history. The order in which trials end depends only on the trials.
/// `restart` is called after each entry and may replace the search.
std::vector<json> simulate(Search search, size_t parallel,
                           const std::function<void(Search&, const std::vector<json>&)>& restart) {
  struct Running {
    Trial trial;
    int64_t step = 0;
  };
  std::vector<Running> running;
  std::vector<json> history;
  auto keep = [&](const HistoryEntry& entry) {
    json text = to_json(entry);
    text["trial"] = entry.trial;
    history.push_back(text);
    restart(search, history);
  };
  auto fill = [&] {
    while (running.size() < parallel) {
      auto proposal = search.propose();
      if (proposal.kind != Proposal::Kind::trial) return;
      running.push_back({proposal.trial});
      keep(proposed(proposal.trial));
    }
  };
  for (fill(); !running.empty(); fill()) {
    for (size_t i = 0; i < running.size();) {
      auto& [trial, step] = running[i];
      ++step;
      double value = curve(trial.parameters, step);
      auto report = search.report(trial.number, step, value);
      if (report) keep(*report);
      bool stop = search.trials().at(trial.number).stop_requested;
      int64_t length = 5 + static_cast<int64_t>(mix64(static_cast<uint64_t>(trial.number)) % 20);
      if (!stop && step < length) {
        ++i;
        continue;
      }
      bool failed = trial.number % 11 == 4;
      keep(search.end(trial.number,
                      stop     ? "pruned"
                      : failed ? "failed"
                               : "finished",
                      failed ? NAN : value, step, failed ? "nan" : ""));
      running.erase(running.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return history;
}

HistoryEntry entry_of(const json& text) {
  auto entry = history_entry_from_json(text);
  entry.trial = text.at("trial");
  entry.proposal.number = entry.trial;
  return entry;
}

}  // namespace

TEST_CASE("a sweep that is rebuilt from its history after every entry continues unchanged") {
  for (const auto& maker : makers) {
    INFO(maker.method);
    auto undisturbed = simulate(maker.make(), 3, [](Search&, const std::vector<json>&) {});
    CHECK(undisturbed.size() >= 60);
    auto disturbed = simulate(maker.make(), 3, [&](Search& search, const std::vector<json>& history) {
      Search again = maker.make();
      for (const auto& text : history) again.replay(entry_of(json::parse(text.dump())));
      search = std::move(again);
    });
    CHECK(disturbed == undisturbed);
  }
}

TEST_CASE("a history that the method cannot produce is refused") {
  auto history = simulate(makers[0].make(), 1, [](Search&, const std::vector<json>&) {});
  auto other = history[0];
  other["parameters"]["width"] = 17;
  Search search = makers[0].make();
  try {
    search.replay(entry_of(other));
    FAIL("replayed");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "this sweep cannot be continued: trial 0 was " + other["parameters"].dump() +
                                           ", and would now be " + history[0]["parameters"].dump() +
                                           "; the sweep was started by another version of runner");
  }
}

TEST_CASE("limits end the proposals, and the reason names the limit") {
  auto limited = [](Limits limits, Goal goal = Goal::min) {
    return Search(make_method("random", branin_space(), 1), goal, limits);
  };
  auto end_next = [](Search& search, const std::string& status, double value) {
    auto number = search.propose().trial.number;
    search.end(number, status, value, 1, status == "failed" ? "other" : "");
  };
  Search target = limited({{}, 2.0});
  end_next(target, "finished", 3);
  CHECK(target.limit_reached().empty());
  end_next(target, "finished", 2);
  CHECK(target.limit_reached() == "stop.target = 2 was reached");
  CHECK(target.propose().kind == Proposal::Kind::done);

  Search most = limited({{}, 5.0}, Goal::max);
  end_next(most, "finished", 3);
  CHECK(most.limit_reached().empty());
  end_next(most, "finished", 6);
  CHECK(most.best()->trial.number == 1);
  CHECK_FALSE(most.limit_reached().empty());

  Search patient = limited({{}, {}, 2});
  end_next(patient, "finished", 1);
  end_next(patient, "pruned", 0.1);  // a pruned trial cannot be the best
  CHECK(patient.limit_reached().empty());
  end_next(patient, "finished", 1.5);
  CHECK(patient.limit_reached() == "stop.no_improvement = 2 trials");
  CHECK(patient.best()->trial.number == 0);

  Search retried = limited({{}, {}, 2});
  end_next(retried, "finished", 1);
  end_next(retried, "failed", NAN);
  retried.end(1, "failed", NAN, 0, "other");  // the same trial, retried
  CHECK(retried.limit_reached().empty());
  end_next(retried, "finished", 2);
  CHECK(retried.limit_reached() == "stop.no_improvement = 2 trials");

  Search unlucky = limited({{}, {}, {}, 2});
  end_next(unlucky, "failed", NAN);
  end_next(unlucky, "failed", NAN);
  CHECK(unlucky.limit_reached() == "stop.failures = 2");
  unlucky.end(1, "finished", 4, 1, "");  // retried
  CHECK(unlucky.limit_reached().empty());
  CHECK(unlucky.best()->trial.number == 1);
}
