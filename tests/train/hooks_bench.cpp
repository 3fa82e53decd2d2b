// Measures hooks in real training on two ranks (threads): a hook that logs in every step, and gradient_norms at size
// small.
#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/support/hooked_run.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Measured {
  double hook_s = 0, step_s = 0;  ///< medians on rank 0
};

/// Steps of `tiny` with the hooks of `recipe`. The first two are not measured. The time of a step excludes its hooks.
Measured measure(const TinyRun& tiny, const Recipe& recipe, int steps, const fs::path& folder) {
  at::set_num_threads(1);
  const ModelSpec spec = make_spec(tiny_model(tiny), tiny.vocab, tiny.seq_len);
  Measured measured;
  run_ranks(
      tiny.world_size,
      [&](World& world) {
        with_strategy(tiny, world, [&](Strategy& strategy) {
          int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
          EventSink sink(world.rank, nowhere);
          TrainingHooks hooks({recipe, world, strategy, spec, sink, folder});
          std::vector<double> of_hooks, of_steps;
          for (int step = 0; step < steps + 2; ++step) {
            double before = hooks.seconds(), started = steady_seconds();
            strategy.step(tiny_input(tiny, world.rank, 0));
            hooks.call(lua::Moment::on_train_batch_end, {.step = step + 1});
            double spent = hooks.seconds() - before;
            if (step < 2) continue;
            of_hooks.push_back(spent);
            of_steps.push_back(steady_seconds() - started - spent);
          }
          if (world.rank == 0) measured = {median(of_hooks), median(of_steps)};
          ::close(nowhere);
        });
      },
      std::chrono::minutes(5));
  return measured;
}

Recipe recipe_with(const std::string& hook) {
  Recipe recipe;
  recipe.hooks.files = {hook};
  return recipe;
}

}  // namespace

int main(int argc, char** argv) {
  int scalars = argc > 1 ? std::atoi(argv[1]) : 100;
  TemporaryFolder folder;
  auto logging = [&](int count) {
    auto file = folder.path / fmt::format("log{}.lua", count);
    write_file_atomic(
        file, fmt::format("local names = {{}}\nfor i = 1, {0} do names[i] = 'scalar_' .. i end\nreturn "
                          "{{on_train_batch_end = function(ctx) for i = 1, {0} do ctx:log(names[i], i) end end}}",
                          count));
    return recipe_with(file.string());
  };
  TinyRun tiny;
  tiny.strategy = "ddp";
  for (int ranks : {1, 2}) {
    tiny.world_size = ranks;
    // Most of the cost of a hook's call is the exchange between ranks after it.
    double call = measure(tiny, logging(0), 300, folder.path).hook_s;
    double logs = measure(tiny, logging(scalars), 300, folder.path).hook_s;
    std::printf(
        "{\"hook\": \"log\", \"ranks\": %d, \"scalars\": %d, \"median_us\": %.1f, \"without_scalars_us\": %.1f, "
        "\"percent_of_10ms_step\": %.2f, \"percent_for_scalars\": %.2f}\n",
        ranks, scalars, logs * 1e6, call * 1e6, logs / 0.01 * 100, (logs - call) / 0.01 * 100);
    std::fflush(stdout);
  }
  tiny.vocab = 8192;
  tiny.dim = 384;
  tiny.n_layers = 6;
  tiny.seq_len = 256;
  tiny.global_batch = 8;
  tiny.tied = false;
  tiny.loss_chunk_tokens = 1024;
  for (const char* strategy : {"ddp", "fsdp"}) {
    tiny.strategy = strategy;
    auto recipe = recipe_with("gradient_norms");
    recipe.hooks.options = {{"gradient_norms", {{"every", 1}}}};
    auto norms = measure(tiny, recipe, 5, folder.path);
    std::printf(
        "{\"hook\": \"gradient_norms\", \"size\": \"small\", \"strategy\": \"%s\", \"ranks\": 2, \"median_ms\": %.2f, "
        "\"step_ms\": %.1f, \"percent_of_step\": %.2f}\n",
        strategy, norms.hook_s * 1e3, norms.step_s * 1e3, norms.hook_s / norms.step_s * 100);
  }
}
