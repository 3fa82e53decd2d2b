// Measures the cost of a hook that logs: one call of on_train_batch_end with a given number of ctx:log calls.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runner/base/clock.hpp"
#include "tests/lua/pretended_training.hpp"

using namespace runner;
using namespace runner::lua;
using runner::lua::testing::PretendedTraining;

namespace {

/// Ignores logged scalars.
struct Silent : PretendedTraining {
  using PretendedTraining::PretendedTraining;
  void log(const std::string&, double value, const std::string&) override { sum += value; }
  double sum = 0;
};

}  // namespace

int main(int argc, char** argv) {
  int scalars = argc > 1 ? std::atoi(argv[1]) : 100, steps = 20'000;
  Recipe recipe;
  auto folder = fs::temp_directory_path() / "runner-bench-lua.lua";
  write_file_atomic(
      folder,
      fmt::format("local names = {{}}\nfor i = 1, {0} do names[i] = 'scalar_' .. i end\n"
                  "return {{on_train_batch_end = function(ctx) for i = 1, {0} do ctx:log(names[i], i) end end}}",
                  scalars));
  recipe.hooks.files = {folder.string()};
  HookSet hooks(recipe);
  Silent training(hooks.state(), recipe);
  std::vector<double> seconds;
  for (int step = 0; step < steps; ++step) {
    double started = steady_seconds();
    hooks.call(Moment::on_train_batch_end, Value(training.context()));
    seconds.push_back(steady_seconds() - started);
  }
  fs::remove(folder);
  std::sort(seconds.begin(), seconds.end());
  double median = seconds[seconds.size() / 2], best = seconds.front();
  std::printf("{\"scalars\": %d, \"median_us\": %.2f, \"best_us\": %.2f, \"percent_of_10ms_step\": %.3f}\n", scalars,
              median * 1e6, best * 1e6, median / 0.01 * 100);
}
