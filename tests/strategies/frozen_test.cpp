// Frozen parameters (model.frozen): they keep their values, and training of the others does not depend on the strategy.
#include <ATen/Parallel.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <mutex>
#include <set>

#include "runner/base/glob.hpp"
#include "strategies/catalog.hpp"
#include "strategies/program/parallel_plan.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/recorded_traffic.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

bool is_frozen(const TinyRun& run, const std::string& parameter) {
  return std::ranges::any_of(run.frozen, [&](const auto& pattern) { return glob_matches(pattern, parameter); });
}

std::vector<std::vector<std::string>> frozen_sets() {
  return {{"embedding.*", "blocks.0.*"},   {"*.attention.*"},
          {"*norm*", "blocks.1.mlp.*"},    {"embedding.tokens.weight"},
          {"*.mlp.down.*", "head.weight"}, {"embedding.*", "blocks.*"}};
}

TinyRun frozen_run(const std::vector<std::string>& frozen) {
  at::set_num_threads(1);
  TinyRun run;
  run.frozen = frozen;
  run.steps = 3;
  run.accumulation = 2;
  return run;
}

}  // namespace

TEST_CASE("a frozen parameter keeps its value, has no state, and changes no gradient of the others", "[frozen]") {
  TinyRun run = frozen_run(GENERATE(from_range(frozen_sets())));
  run.steps = 1;
  TinyRun all = run, none = run;
  all.frozen.clear();
  none.steps = 0;
  const auto frozen = train_tiny(run), trained = train_tiny(all), initial = train_tiny(none);
  CHECK(frozen.losses == trained.losses);
  CHECK(frozen.norms.front() < trained.norms.front());
  for (const auto& [name, values] : trained.state) {
    INFO(name);
    const auto parameter = name.substr(name.rfind('/') + 1);
    if (!is_frozen(run, parameter))
      CHECK(frozen.state.at(name) == values);
    else if (name.starts_with("param/"))
      CHECK(frozen.state.at(name) == initial.state.at(name));
    else
      CHECK_FALSE(frozen.state.contains(name));
  }
}

TEST_CASE("every strategy trains the same with frozen parameters", "[frozen][parity]") {
  TinyRun run = frozen_run(GENERATE(from_range(frozen_sets())));
  run.tied = GENERATE(true, false);
  run.recompute = GENERATE(false, true);
  run.world_size = 2;
  run.accumulation = 1;  // some forms add the sums of micro-batches in another order
  run.strategy = "ddp";
  const auto expected = train_tiny(run);
  const std::vector<std::pair<std::string, nlohmann::json>> forms = {
      {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
      {"fsdp", {{"sharding_strategy", "SHARD_GRAD_OP"}, {"auto_wrap_policy", "none"}}},
      {"zero", {{"stage", 1}}},
      {"zero", {{"stage", 2}, {"reduce_bucket_size", 5000}}},
      {"zero", {{"stage", 3}, {"stage3_param_persistence_threshold", 100}}}};
  for (const auto& [strategy, options] : forms) {
    run.strategy = strategy;
    run.options = options;
    INFO(strategy << " " << options.dump() << ", recomputed " << run.recompute << ", frozen " << run.frozen.front());
    const auto result = train_tiny(run);
    CHECK(result.losses == expected.losses);
    CHECK(result.state == expected.state);
  }
}

TEST_CASE(
    "rank 6: frozen parameters keep their bits and have no gradient, state or reduced bytes; training needs less "
    "memory",
    "[frozen][rank6]") {
  struct Listener : StepObserver {
    std::set<std::string> names;
    Decision before_optimizer_step(const Gradients& gradients, double, double lr_factor) override {
      for (const auto& piece : gradients()) names.insert(piece.name.substr(std::string("gradient/").size()));
      return {false, lr_factor};
    }
  };
  TinyRun run = frozen_run({"embedding.*", "blocks.0.*", "*norm*"});
  run.accumulation = 1;
  run.world_size = 2;
  run.dim = 64;
  const auto forms = std::vector<std::pair<std::string, nlohmann::json>>{
      {"ddp", nlohmann::json::object()},
      {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
      {"zero", {{"stage", 1}}},
      {"zero", {{"stage", 2}}},
      {"zero", {{"stage", 3}, {"stage3_param_persistence_threshold", 100}}}};
  for (const auto& [strategy, options] : forms)
    for (const char* optimizer : {"adamw", "lion", "adamw_8bit", "schedule_free_adamw", "adafactor", "muon"}) {
      run.strategy = strategy;
      run.options = options;
      run.optimizer.kind = find_optimizer(optimizer)->kind;
      INFO(strategy << " " << options.dump() << ", " << optimizer);
      TinyRun none = run, all = run;
      none.steps = 0;
      all.frozen.clear();
      const auto result = train_tiny(run), initial = train_tiny(none);
      for (const auto& [name, values] : result.state) {
        INFO(name);
        const auto parameter = name.substr(name.rfind('/') + 1);
        if (name.starts_with("param/"))
          CHECK((values == initial.state.at(name)) == is_frozen(run, parameter));
        else
          CHECK_FALSE(is_frozen(run, parameter));
      }
      CHECK(measure_memory(run).peak < measure_memory(all).peak);
      const ModelSpec spec = tiny_spec(run);
      const auto plan = find_strategy(strategy)->entry->plan(tiny_job(run, spec));
      int64_t trained_bytes = 0;
      for (size_t u : trained_units(plan)) trained_bytes += layout_of(spec, plan, plan.units[u]).total * 4;
      if (std::string(optimizer) == "adamw")
        for (const auto& steps : record_traffic(run, launch_threads))
          for (const auto& step : steps) {
            int64_t reduced = 0;
            for (const auto& row : step.strategy)
              if (row.collective.find("reduce") != std::string::npos) reduced += row.payload_bytes;
            CHECK(reduced == trained_bytes);
          }
      std::mutex mutex;
      std::set<std::string> with_gradient;
      run_ranks(run.world_size, [&](World& world) {
        with_strategy(run, world, [&](Strategy& made) {
          Listener listener;
          made.observe(&listener);
          made.step(tiny_input(run, world.rank, 0));
          std::lock_guard lock(mutex);
          with_gradient.merge(listener.names);
        });
      });
      CHECK_FALSE(with_gradient.empty());
      CHECK(std::ranges::none_of(with_gradient, [&](const auto& name) { return is_frozen(run, name); }));
    }
}

TEST_CASE("memory with frozen parameters is as predicted", "[frozen][memory]") {
  TinyRun run = frozen_run(GENERATE(from_range(frozen_sets())));
  run.dim = 64;
  run.seq_len = 64;
  run.tied = false;
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  run.recompute = GENERATE(false, true);
  run.strategy = GENERATE(as<std::string>(), "single", "ddp", "fsdp", "zero");
  run.world_size = run.strategy == "single" ? 1 : 2;
  const ModelSpec spec = tiny_spec(run);
  const auto claim = find_strategy(run.strategy)->entry->memory(tiny_job(run, spec));
  const auto measured = measure_memory(run);
  const double error = static_cast<double>(claim.total()) / static_cast<double>(measured.peak) - 1;
  INFO(run.strategy << ", " << run.precision << ", recomputed " << run.recompute << ", frozen " << run.frozen.back()
                    << ": " << 100 * error << " %");
  CHECK(error >= -0.01);
  CHECK(error <= 0.04);
}

TEST_CASE("a checkpoint in one file has no optimizer state of frozen parameters", "[frozen]") {
  TinyRun run = frozen_run({"embedding.*"});
  run.strategy = "fsdp";
  run.options = {{"state_dict_type", "full"}};
  run.world_size = 2;
  std::vector<std::string> names;
  run_ranks(run.world_size, [&](World& world) {
    with_strategy(run, world, [&](Strategy& strategy) {
      strategy.step(tiny_input(run, world.rank, 0));
      for (const auto& view : strategy.views_to_save())
        if (world.rank == 0 && view.name.ends_with("embedding.tokens.weight")) names.push_back(view.name);
    });
  });
  CHECK(names == std::vector<std::string>{"param/embedding.tokens.weight"});
}

TEST_CASE("frozen parameters and offload to NVMe exclude each other", "[frozen]") {
  TinyRun run = frozen_run({"embedding.*"});
  run.strategy = "zero";
  run.options = {
      {"stage", 3}, {"offload_optimizer", true}, {"offload_optimizer_device", "nvme"}, {"nvme_path", "/nowhere"}};
  const ModelSpec spec = tiny_spec(run);
  const Entry& entry = *find_strategy(run.strategy)->entry;
  CHECK(entry.refuse(tiny_job(run, spec)) ==
        "offload to NVMe cannot be combined with model.frozen; offload to \"cpu\" can");
  run.frozen.clear();
  const ModelSpec all = tiny_spec(run);
  CHECK_FALSE(entry.refuse(tiny_job(run, all)));
}
