// The recorded traffic of a step equals the predicted traffic of the strategy's entry, per call and byte.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "runner/base/error.hpp"
#include "strategies/collective/libtorch.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/recorded_traffic.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

void check_traffic_claim(TinyRun run) {
  run.steps = 3;
  run.global_batch = run.world_size * run.accumulation;
  Wire claimed = claimed_traffic(run);
  auto ranks = record_traffic(run);
  INFO(run.strategy << " " << run.options.dump() << ", " << run.family << ", tied " << run.tied << ", "
                    << run.world_size << " ranks, accumulation " << run.accumulation << ", recompute " << run.recompute
                    << ", precision " << run.precision);
  for (const auto& steps : ranks)
    for (const auto& step : steps) CHECK(step.strategy == claimed);
}

}  // namespace

TEST_CASE("the traffic of a rank is the mean of a ring's ranks, also if parts are unequal", "[recording]") {
  for (int64_t bytes : {0, 1, 10, 12, 1001})
    for (int ranks : {1, 2, 3, 4, 7})
      for (auto kind :
           {Collective::all_gather, Collective::reduce_scatter, Collective::all_reduce, Collective::broadcast}) {
        INFO(name_of(kind) << " of " << bytes << " bytes, " << ranks << " ranks");
        CHECK(ring_bytes(kind, bytes, ranks) == sent_on_a_ring(kind, bytes, ranks) / ranks);
      }
  CHECK(ring_bytes(Collective::barrier, 12, 4) == 0);
}

TEST_CASE("ddp's traffic is as predicted, with every option", "[recording]") {
  at::set_num_threads(1);
  TinyRun run;
  run.strategy = "ddp";
  run.world_size = GENERATE(1, 2, 3, 4);
  run.accumulation = GENERATE(1, 3);
  static EveryNth chosen(5);
  SECTION("comm hooks and buckets") {
    for (const char* hook : {"none", "fp16_compress", "bf16_compress"})
      for (double cap : {25.0, 0.02, 0.001})
        for (const char* family : {"gpt", "llama"}) {
          run.family = family;
          run.options = {{"ddp_comm_hook", hook}, {"bucket_cap_mb", cap}};
          if (chosen()) check_traffic_claim(run);
        }
  }
  SECTION("unused parameters, static graphs, bucket views") {
    for (bool find_unused : {false, true})
      for (bool static_graph : {false, true})
        for (bool view : {false, true})
          for (bool tied : {false, true}) {
            run.tied = tied;
            run.options = {{"find_unused_parameters", find_unused},
                           {"static_graph", static_graph},
                           {"gradient_as_bucket_view", view},
                           {"bucket_cap_mb", 0.02}};
            if (chosen()) check_traffic_claim(run);
          }
  }
  SECTION("precision and recomputation") {
    for (const char* precision : {"bf16-mixed", "bf16-true", "16-mixed", "64-true"}) {
      run.precision = precision;
      run.recompute = true;
      check_traffic_claim(run);
    }
  }
}

TEST_CASE("small buckets need several calls, and the first step equals the others", "[recording]") {
  at::set_num_threads(1);
  TinyRun run;
  run.strategy = "ddp";
  run.world_size = 2;
  run.steps = 3;
  run.options = {{"bucket_cap_mb", 0.02}};
  auto steps = record_traffic(run).front();
  REQUIRE(steps[0].strategy.size() == 1);
  CHECK(steps[0].strategy[0].calls > 3);
  CHECK(steps[0].strategy == steps[1].strategy);
}

TEST_CASE("fsdp's traffic is as predicted: sharding, units, accumulation, ranks", "[recording]") {
  at::set_num_threads(1);
  TinyRun run;
  run.strategy = "fsdp";
  run.world_size = GENERATE(1, 2, 3, 4);
  auto sharding = GENERATE(as<std::string>(), "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD");
  struct Model {
    const char* family;
    bool tied, recompute;
  };
  static EveryNth chosen(5);
  for (nlohmann::json units :
       {nlohmann::json("block"), nlohmann::json("size"), nlohmann::json("none"), nlohmann::json({"blocks.1", "head"})})
    for (auto [accumulation, every] : {std::pair(1, false), {3, false}, {3, true}})
      for (auto [family, tied, recompute] :
           {Model{"gpt", true, false}, {"gpt", false, false}, {"llama", false, false}, {"gpt", true, true}}) {
        run.accumulation = accumulation;
        run.recompute = recompute;
        run.family = family;
        run.tied = tied;
        run.options = {{"sharding_strategy", sharding},
                       {"auto_wrap_policy", units},
                       {"min_num_params", 10'000},
                       {"reduce_every_micro_batch", every}};
        if (run.world_size == 4) run.options["hybrid_group_size"] = 2;
        if (chosen()) check_traffic_claim(run);
      }
}

TEST_CASE("zero's traffic is as predicted: 2 x parameters in stages 1 and 2, 3 x in stage 3", "[recording]") {
  at::set_num_threads(1);
  TinyRun run;
  run.strategy = "zero";
  run.world_size = GENERATE(1, 2, 3, 4);
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  auto [tied, accumulation] = GENERATE(std::pair(true, 1), std::pair(false, 1), std::pair(false, 3));
  run.tied = tied;
  run.accumulation = accumulation;
  static EveryNth chosen(5);
  for (int stage : {1, 2, 3})
    for (nlohmann::json more :
         {nlohmann::json::object(), nlohmann::json{{"reduce_bucket_size", 5000}},
          nlohmann::json{{"reduce_scatter", false}, {"allgather_partitions", false}},
          nlohmann::json{{"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}},
          nlohmann::json{{"stage3_param_persistence_threshold", 500}, {"stage3_max_live_parameters", 20'000}},
          nlohmann::json{{"mics_shard_size", run.world_size == 4 ? 2 : 1}}}) {
      run.options = more;
      run.options["stage"] = stage;
      run.precision = "32-true";
      if (chosen()) check_traffic_claim(run);
      if (run.accumulation > 1 || run.tied) continue;
      run.precision = "bf16-mixed";
      if (chosen()) check_traffic_claim(run);
    }
}

TEST_CASE("zero's traffic equals the paper's, except for padding", "[recording]") {
  TinyRun run;
  run.strategy = "zero";
  run.world_size = 4;
  run.precision = "bf16-mixed";
  ModelSpec spec = tiny_spec(run);
  auto psi = static_cast<double>(spec.parameter_count());
  auto payload = [&](nlohmann::json options) {
    run.options = std::move(options);
    double bytes = 0;
    for (const auto& part : claimed_traffic(run)) bytes += static_cast<double>(part.payload_bytes);
    return bytes;
  };
  for (int stage : {1, 2}) CHECK_THAT(payload({{"stage", stage}}), Catch::Matchers::WithinRel(2 * 2 * psi, 0.02));
  // The last block stays gathered for its backward, and the backward of the embedding reads no parameters.
  run.tied = false;
  spec = tiny_spec(run);
  psi = static_cast<double>(spec.parameter_count());
  auto once = static_cast<double>(spec.blocks.front().parameter_count() + spec.blocks.back().parameter_count());
  CHECK_THAT(payload({{"stage", 3}, {"stage3_param_persistence_threshold", 0}, {"stage3_max_reuse_distance", 0}}),
             Catch::Matchers::WithinRel(2 * (3 * psi - once), 0.02));
}

TEST_CASE("fsdp's traffic is as predicted: precision", "[recording]") {
  at::set_num_threads(1);
  TinyRun run;
  run.strategy = "fsdp";
  run.world_size = GENERATE(2, 3);
  auto sharding = GENERATE(as<std::string>(), "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD");
  for (const char* precision : {"32-true", "bf16-mixed", "16-mixed", "bf16-true", "64-true"})
    for (nlohmann::json mixed : {nlohmann::json(), nlohmann::json("bfloat16"), nlohmann::json("float16"),
                                 nlohmann::json{{"param_dtype", "bfloat16"}, {"reduce_dtype", "float32"}},
                                 nlohmann::json{{"param_dtype", "float32"}, {"reduce_dtype", "bfloat16"}}}) {
      run.precision = precision;
      run.options = {{"sharding_strategy", sharding}, {"hybrid_group_size", 1}};
      if (!mixed.is_null()) run.options["mixed_precision"] = mixed;
      check_traffic_claim(run);
    }
}

TEST_CASE("the control values of a step are one all-reduce, of a size that does not depend on the number of ranks", "[recording]") {
  at::set_num_threads(1);
  TinyRun run;
  run.steps = 2;
  run.world_size = GENERATE(2, 3);
  run.strategy = GENERATE(as<std::string>(), "ddp", "fsdp", "zero");
  for (const auto& steps : record_traffic(run))
    for (const auto& step : steps) {
      REQUIRE(step.control.size() == 1);
      CHECK(step.control[0].collective == "all_reduce");
      CHECK(step.control[0].calls == 1);
      // loss, norm, eight votes, and two words that tell whether ranks made different calls
      CHECK(step.control[0].payload_bytes == 8 * (2 + 8 + 2));
    }
}

TEST_CASE("ranks that called different collectives in a step get an error at its end", "[recording]") {
  at::set_num_threads(1);
  TinyRun run;
  run.strategy = "ddp";
  run.world_size = 3;
  auto message = [&](int64_t calls_after) {
    std::vector<std::string> texts(3);
    run_ranks(3, [&](World& world) {
      with_strategy(run, world, [&](Strategy& strategy) {
        strategy.step(tiny_input(run, world.rank, 0));
        // The transport compares its calls, so the calls are added to the trace without the transport.
        Operation stray;
        stray.bytes = 12;
        stray.dtype = static_cast<int8_t>(torch::kFloat32);
        stray.kind = world.rank == 1 ? Collective::broadcast : Collective::all_gather;
        for (int64_t i = 0; i < 1 + calls_after; ++i) {
          world.trace->called(World::group_index, stray);
          stray.kind = Collective::reduce_scatter;
        }
        try {
          strategy.step(tiny_input(run, world.rank, 1));
        } catch (const Error& error) {
          texts[static_cast<size_t>(world.rank)] = error.what();
        }
      });
    });
    CHECK(texts[1] == texts[0]);
    CHECK(texts[2] == texts[0]);
    return texts[0];
  };
  CHECK(message(5) ==
        "ranks diverged: ranks 0, 2 are in all_gather #2 (12 B of float32), rank 1 in broadcast #2 (12 B of float32 "
        "from rank 0)");
  CHECK(message(1000) ==
        "ranks diverged before their last 256 collectives: rank 1 called others than the first of their group");
}
