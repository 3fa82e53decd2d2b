// Best values of runner's methods on problems with a formula, for scripts/bench/sweep_methods. One JSON line per run.
#include <cstdio>

#include "problems.hpp"
#include "runner/sweep/methods.hpp"
#include "runner/sweep/search.hpp"

using namespace runner::sweep;
using namespace runner::testing;

namespace {

double best_of(const Search& search) { return search.best() ? *search.best()->value : INFINITY; }

double minimize(const std::string& method, const Space& space, double (*f)(const nlohmann::json&), uint64_t seed,
                int64_t trials) {
  Limits limits;
  limits.trials = trials;
  Search search(make_method(method, space, seed), Goal::min, limits);
  for (Proposal proposal; (proposal = search.propose()).kind == Proposal::Kind::trial;)
    search.end(proposal.trial.number, "finished", f(proposal.trial.parameters), 0, "");
  return best_of(search);
}

/// Runs trials one after the other until they have used `budget` steps. Returns the best loss of any step.
double train_curves(const std::string& sampler, uint64_t seed, int64_t budget) {
  auto method =
      make_method("asha", curve_space(), seed, {{"min_steps", 3}, {"reduction_factor", 3}, {"sampler", sampler}});
  Search search(std::move(method), Goal::min, {});
  double best = INFINITY;
  while (budget > 0) {
    Trial trial = search.propose().trial;
    int64_t step = 0;
    double loss = NAN;
    bool stop = false;
    while (!stop && step < curve_steps && budget > 0) {
      --budget;
      loss = curve(trial.parameters, ++step);
      best = std::min(best, loss);
      auto report = step < curve_steps ? search.report(trial.number, step, loss) : std::nullopt;
      stop = report && report->stop;
    }
    search.end(trial.number, stop ? "pruned" : "finished", loss, step, "");
  }
  return best;
}

}  // namespace

int main() {
  auto print = [](const char* problem, const char* method, uint64_t seed, double value) {
    std::printf("{\"problem\": \"%s\", \"method\": \"%s\", \"seed\": %d, \"best\": %.17g}\n", problem, method,
                static_cast<int>(seed), value);
  };
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const char* method : {"random", "sobol", "tpe"}) {
      print("branin", method, seed, minimize(method, branin_space(), branin, seed, 60));
      print("hartmann6", method, seed, minimize(method, hartmann6_space(), hartmann6, seed, 120));
    }
    print("curve", "asha", seed, train_curves("random", seed, 20 * curve_steps));
    print("curve", "asha+tpe", seed, train_curves("tpe", seed, 20 * curve_steps));
  }
}
