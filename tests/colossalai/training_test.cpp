// Trainings over chunks: the same bits as ddp and fsdp, refusals, bytes on the wire and in memory.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "strategies/program/parallel_plan.hpp"
#include "tests/support/measured_memory.hpp"
#include "tests/support/recorded_traffic.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using nlohmann::json;

namespace {

TinyRun colossalai(json options) {
  TinyRun run;
  run.strategy = "colossalai";
  run.options = std::move(options);
  return run;
}

std::vector<json> all_options() {
  return {{{"chunk_size", 3000}},
          {{"chunk_size", 9000}, {"placement_policy", "cpu"}},
          {{"min_chunk_size", 1000}, {"chunk_search_range", 20000}, {"chunk_search_n_grids", 100}},
          {{"chunk_size", 5000}, {"placement_policy", "static"}, {"shard_param_frac", 0.5}},
          json::object()};  // one chunk that stays gathered
}

const Entry& entry() { return *find_strategy("colossalai")->entry; }

std::string refusal(const json& options) {
  const auto run = colossalai(options);
  const auto spec = tiny_spec(run);
  return entry().refuse(tiny_job(run, spec)).value_or("");
}

}  // namespace

TEST_CASE("chunks of every size and placement train as ddp, bit for bit", "[parity]") {
  at::set_num_threads(1);
  for (const auto& options : all_options())
    for (const int ranks : {1, 2, 3}) {
      TinyRun run = colossalai(options), plain = run;
      run.world_size = plain.world_size = ranks;
      plain.strategy = "ddp";
      plain.options = json::object();
      INFO(options.dump() << ", " << ranks << " ranks");
      const auto result = train_tiny(run), expected = train_tiny(plain);
      CHECK(result.losses == expected.losses);
      CHECK(result.state == expected.state);
    }
}

TEST_CASE("chunks are the units of the plan, in the order of their use") {
  const auto run = colossalai({{"chunk_size", 5000}});
  const auto spec = tiny_spec(run);
  const auto plan = entry().plan(tiny_job(run, spec));
  const auto parameters = spec.parameters();
  std::vector<size_t> slots;
  for (const auto& unit : plan.units) {
    int64_t elements = 0;
    for (const size_t slot : unit.slots) elements += parameters[slot]->numel();
    CHECK((elements <= 5000 || unit.slots.size() == 1));
    CHECK_FALSE(unit.resident);
    slots.insert(slots.end(), unit.slots.begin(), unit.slots.end());
  }
  std::ranges::sort(slots);
  CHECK(slots.size() == parameters.size());
  CHECK(std::ranges::adjacent_find(slots) == slots.end());
}

TEST_CASE("colossalai refuses what its original refuses, and fractions of the optimizer") {
  CHECK_THAT(refusal({{"use_chunk", false}}), ContainsSubstring("use strategy.name = \"zero\" with stage = 3"));
  CHECK_THAT(refusal({{"placement_policy", "static"}, {"offload_optim_frac", 0.5}}), ContainsSubstring("it is 0 or 1"));
  CHECK_THAT(refusal({{"placement_policy", "static"}, {"offload_param_frac", 0.5}}),
             ContainsSubstring("needs offload_optim_frac = 1"));
  CHECK_THAT(refusal({{"shard_param_frac", 0.5}}), ContainsSubstring("remove them, or use \"static\""));
  CHECK(refusal({{"placement_policy", "static"}, {"offload_optim_frac", 1.0}, {"offload_param_frac", 0.5}}) == "");
}

TEST_CASE("auto tries placements from all on the device to all in host memory") {
  const auto variants = entry().variants(json::object());
  REQUIRE(variants.size() == 10);
  CHECK(variants.front() == json{{"placement_policy", "static"},
                                 {"shard_param_frac", 1.0},
                                 {"offload_optim_frac", 0.0},
                                 {"offload_param_frac", 0.0}});
  CHECK(variants.back() == json{{"placement_policy", "static"},
                                {"shard_param_frac", 1.0},
                                {"offload_optim_frac", 1.0},
                                {"offload_param_frac", 1.0}});
  CHECK(entry().variants({{"placement_policy", "cuda"}}).empty());
}

TEST_CASE("the traffic and the memory of chunks are as predicted", "[recording][memory]") {
  at::set_num_threads(1);
  for (const auto& options : all_options()) {
    for (const int ranks : {1, 2, 3}) {
      TinyRun run = colossalai(options);
      run.world_size = ranks;
      run.global_batch = ranks;
      run.steps = 2;
      INFO(options.dump() << ", " << ranks << " ranks");
      const auto claimed = claimed_traffic(run);
      for (const auto& steps : record_traffic(run))
        for (const auto& step : steps) CHECK(step.strategy == claimed);
    }
    TinyRun run = colossalai(options);
    run.vocab = 503;
    run.dim = 128;
    run.n_layers = 2;
    run.world_size = 2;
    INFO(options.dump());
    const auto spec = tiny_spec(run);
    const auto claim = entry().memory(tiny_job(run, spec));
    const auto measured = measure_memory(run);
    CHECK(measured.between_steps == claim.between_steps);
    CHECK_THAT(static_cast<double>(claim.total()), WithinRel(static_cast<double>(measured.peak), 0.03));
  }
}
