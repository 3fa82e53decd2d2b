// Offload does not change results. ZeRO with optimizer state and parameters in separate host memory or in a file is
// compared with ddp and with ZeRO without offload.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/error.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/program/program.hpp"
#include "tests/support/equal_training.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/offload_forms.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

bool empty(const std::filesystem::path& folder) { return std::filesystem::is_empty(folder); }

}  // namespace

TEST_CASE("offload to host memory and NVMe keeps every bit, in each stage", "[parity][offload]") {
  at::set_num_threads(1);
  TemporaryFolder folder;
  TinyRun run;
  run.steps = 4;
  auto [family, precision, accumulation, clipped, apart] =
      GENERATE(table<std::string, std::string, int, bool, bool>({{"gpt", "32-true", 1, false, false},
                                                                 {"llama", "32-true", 3, true, true},
                                                                 {"llama", "32-true", 1, false, true},
                                                                 {"llama", "bf16-mixed", 1, true, false},
                                                                 {"gpt", "bf16-mixed", 3, false, true}}));
  run.family = family;
  run.precision = precision;
  run.accumulation = accumulation;
  if (clipped) run.clip_norm = 0.5;
  static EveryNth chosen(3);
  for (int world_size : {1, 2, 3, 4}) {
    if (!chosen()) continue;
    run.world_size = world_size;
    run.strategy = "ddp";
    run.options = nlohmann::json::object();
    run.make = nullptr;
    auto ddp = train_tiny(run);
    run.strategy = "zero";
    std::map<int, TinyResult> plain;
    for (const auto& form : offload_forms()) {
      run.options = options_of(form, folder.path.string());
      INFO("stage " << form.stage << ", optimizer " << form.optimizer << ", parameters " << form.parameters << ", "
                    << run.family << ", " << precision << ", accumulation " << accumulation << ", clipping " << clipped
                    << ", apart " << apart << ", " << world_size << " ranks");
      if (apart) run.make = [](StrategySetup setup) { return make_apart(std::move(setup)); };
      auto result = train_tiny(run);
      if (form.optimizer.empty() && form.parameters.empty()) plain[form.stage] = result;
      check_equal_with_norms(result, plain.at(form.stage));
      if (precision == "32-true" && accumulation == 1 && !clipped) CHECK(result.losses == ddp.losses);
    }
  }
  CHECK(empty(folder.path));
}

TEST_CASE("offload keeps all bits with skipped steps, ranks without data and coupled Adam", "[parity][offload]") {
  at::set_num_threads(1);
  TemporaryFolder folder;
  TinyRun run;
  run.strategy = "zero";
  run.world_size = 3;
  run.steps = 8;
  run.short_last = 2;  // of 12: the last rank has no data
  run.precision = GENERATE(as<std::string>(), "32-true", "16-mixed");
  bool apart = GENERATE(false, true);
  run.optimizer.kind = OptimizerConfig::Kind::adam;
  run.optimizer.groups = {{"*norm*", 5e-3, 0.2}};
  for (int stage : {1, 2, 3}) {
    run.options = options_of({stage, "", ""}, folder.path.string());
    run.options["initial_scale_power"] = 18;  // causes overflows
    run.options["hysteresis"] = 1;
    run.make = nullptr;
    auto plain = train_tiny(run);
    CAPTURE(plain.norms);
    CHECK(std::isfinite(plain.norms.back()));
    auto skipped =
        std::count_if(plain.norms.begin(), plain.norms.end(), [](double norm) { return !std::isfinite(norm); });
    CHECK((skipped > 0) == (run.precision == "16-mixed"));
    if (apart) run.make = [](StrategySetup setup) { return make_apart(std::move(setup)); };
    for (const auto& form : offload_forms()) {
      if (form.stage != stage || form.optimizer.empty() || (!apart && form.optimizer == "cpu")) continue;
      auto options = options_of(form, folder.path.string());
      options.update({{"initial_scale_power", 18}, {"hysteresis", 1}});
      run.options = options;
      INFO("stage " << stage << ", optimizer " << form.optimizer << ", parameters " << form.parameters << ", "
                    << run.precision << ", apart " << apart);
      check_equal_with_norms(train_tiny(run), plain);
    }
  }
}

TEST_CASE("a skipped step changes no parameter, also as the first step or as the first after loading", "[offload]") {
  at::set_num_threads(1);
  TemporaryFolder folder;
  TinyRun run;
  run.strategy = "zero";
  run.precision = "16-mixed";
  run.world_size = 2;
  run.make = [](StrategySetup setup) { return make_apart(std::move(setup)); };
  for (const auto& form : offload_forms()) {
    run.options = options_of(form, folder.path.string());
    run.options.update({{"initial_scale_power", 40}, {"hysteresis", 1}});
    INFO("stage " << form.stage << ", optimizer " << form.optimizer << ", parameters " << form.parameters);
    std::mutex mutex;
    run_ranks(run.world_size, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        auto batch = tiny_batch(run, 0, 4);
        double before = strategy.evaluate(batch);
        bool first_skipped = strategy.step(tiny_input(run, world.rank, 0)).skipped;
        double after_first = strategy.evaluate(batch);
        for (const auto& tensor : strategy.state())  // like loading a checkpoint
          if (tensor.numel() > 0) tensor.write(0, tensor.read(0, tensor.numel()));
        strategy.state_loaded();
        bool second_skipped = strategy.step(tiny_input(run, world.rank, 1)).skipped;
        double after_second = strategy.evaluate(batch);
        RANK_CHECK(first_skipped && second_skipped);
        RANK_CHECK(after_first == before);
        RANK_CHECK(after_second == before);
      });
    });
  }
}

TEST_CASE("max_in_cpu keeps the shards of the first blocks in memory, exact to one element", "[offload]") {
  TinyRun run;
  run.strategy = "zero";
  run.world_size = 2;
  ModelSpec spec = tiny_spec(run);
  run.options = options_of({3, "nvme", "nvme"}, "/somewhere");
  auto on_nvme = [&](int64_t max_in_cpu) {
    run.options["max_in_cpu"] = max_in_cpu;
    std::vector<bool> list;
    for (const auto& unit : zero_plan(tiny_job(run, spec)).units)
      if (!unit.resident) list.push_back(unit.tier == Tier::nvme);
    return list;
  };
  auto plan = zero_plan(tiny_job(run, spec));
  int64_t first = make_flat_layout(spec.parameters(), plan.units[0].slots, 2).shard;
  auto all = on_nvme(0);
  REQUIRE(all.size() >= 3);
  CHECK(all == std::vector<bool>(all.size(), true));
  CHECK(on_nvme(first - 1)[0]);
  auto but_first = on_nvme(first);
  CHECK(!but_first[0]);
  CHECK(std::count(but_first.begin(), but_first.end(), true) == static_cast<int64_t>(all.size()) - 1);
  CHECK(on_nvme(1'000'000'000) == std::vector<bool>(all.size(), false));
}

TEST_CASE("memory of zero with offload is as predicted: equal between steps, within 3 % at the peak",
          "[memory][offload]") {
  at::set_num_threads(1);
  TemporaryFolder folder;
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.vocab = 503;
  run.loss_chunk_tokens = 128;
  run.dim = 128;
  run.n_layers = 2;
  run.world_size = 2;
  run.strategy = "zero";
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  ModelSpec spec = tiny_spec(run);
  for (const auto& form : offload_forms()) {
    run.options = options_of(form, folder.path.string());
    run.options["params_buffer_count"] = 1;
    auto claimed = [&](int buffers) {
      TinyRun other = run;
      other.options["params_buffer_count"] = buffers;
      return find_strategy("zero")->entry->memory(tiny_job(other, spec));
    };
    // The counting allocator does not count pages for direct I/O.
    int64_t read_ahead = claimed(2).total() - claimed(1).total();
    auto claim = claimed(1);
    auto measured = measure_memory(run);
    INFO("stage " << form.stage << ", optimizer " << form.optimizer << ", parameters " << form.parameters << ", "
                  << run.family << ", " << run.precision << ", read ahead " << read_ahead);
    CHECK(measured.between_steps == claim.between_steps);
    CHECK_THAT(static_cast<double>(claim.total()),
               Catch::Matchers::WithinRel(static_cast<double>(measured.peak + read_ahead), 0.03));
  }
}

TEST_CASE("separate host memory is predicted: device plus host memory is the memory between steps",
          "[memory][offload]") {
  at::set_num_threads(1);
  TemporaryFolder folder;
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.world_size = 2;
  run.strategy = "zero";
  run.precision = GENERATE(as<std::string>(), "32-true", "bf16-mixed");
  run.make = [](StrategySetup setup) { return make_apart(std::move(setup)); };
  ModelSpec spec = tiny_spec(run);
  for (const auto& form : offload_forms()) {
    run.options = options_of(form, folder.path.string());
    Job job = tiny_job(run, spec);
    ParallelPlan plan = plan_apart(job);
    auto claim = program_memory(job, plan);
    // Gradients for the update and pages for direct I/O are in host memory only at the peak.
    int64_t waiting = 0, shard_most = 0, elements = 0, part_most = 0;
    for (const auto& unit : plan.units) {
      const auto layout = make_flat_layout(spec.parameters(), unit.slots, plan.shards());
      const int64_t shard = layout.shard;
      for (const auto& item : layout.items) part_most = std::max(part_most, std::min(item.numel, shard));
      if (!form.optimizer.empty()) waiting += shard * bytes_of(plan.gradient);
      if (unit.tier == Tier::nvme) shard_most = std::max(shard_most, shard * bytes_of(plan.parameter));
      elements += SwappedArrays::whole_units(shard);
    }
    auto use = plan.swap_use();
    int64_t element = (use.state ? 8 : 0) + (use.master ? 4 : 0) + (use.sent ? bytes_of(plan.parameter) : 0);
    int64_t tiles = use.state ? std::min<int64_t>(4 * 2048, elements) * element : 0;
    int64_t units =
        std::count_if(plan.units.begin(), plan.units.end(), [](const auto& unit) { return unit.tier == Tier::nvme; });
    int64_t pages = std::max(tiles, shard_most * std::min<int64_t>(5, units));
    // The norm of 16-bit gradients needs an fp32 copy of each.
    if (!form.optimizer.empty() && plan.gradient != DType::float32) pages = std::max(pages, part_most * 4);
    auto measured = measure_memory(run);
    INFO("stage " << form.stage << ", optimizer " << form.optimizer << ", parameters " << form.parameters << ", "
                  << run.family << ", " << run.precision);
    CHECK(claim.host >= waiting + pages);
    CHECK(claim.between_steps + claim.host - waiting - pages == measured.between_steps);
    CHECK(static_cast<double>(measured.peak) < 1.03 * static_cast<double>(claim.total() + claim.host));
    CHECK((claim.host == 0) == (form.optimizer.empty() && form.parameters.empty()));
  }
}
