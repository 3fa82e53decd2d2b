// Meshes combined with what else a recipe can ask for: adapters, frozen parameters, offload, recomputation, dropout, accumulation, and
// batches in which some ranks have no rows. Each trains as one rank does.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "meshed_runs.hpp"
#include "tests/support/every_nth.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

const std::vector<MeshLine> combined_meshes = {
    {1, 1, 1, 2, "single"},
    {1, 1, 2, 1, "single"},
    {2, 1, 1, 1, "single"},
    {1, 2, 1, 2, "fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
    {1, 2, 2, 1, "zero", {{"stage", 3}, {"stage3_param_persistence_threshold", 0}}},
    {1, 1, 2, 2, "zero", {{"stage", 2}}},
    {2, 2, 1, 1, "fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
    {2, 1, 2, 1, "zero", {{"stage", 1}}},
    {2, 1, 1, 2, "single"},
    {2, 1, 2, 2, "fsdp", {{"sharding_strategy", "SHARD_GRAD_OP"}}},
    {2, 2, 1, 2, "zero", {{"stage", 1}}},
    {1, 2, 2, 2, "ddp"},
};

struct Feature {
  std::string label;
  void (*add)(TinyRun& run);
};
const std::vector<Feature> features = {
    {"adapters",
     [](TinyRun& run) {
       run.fine_tune.method = "lora";
       run.fine_tune.rank = 4;
       run.fine_tune.dropout = 0.2;
     }},
    {"frozen first layers",
     [](TinyRun& run) {
       run.frozen = {"embedding.*", "blocks.0.*"};
       run.tied = false;
     }},
    {"frozen attention, recomputed", [](TinyRun& run) { run.frozen = {"*.attention.*"}, run.recompute = true; }},
    {"dropout, recomputed, micro-batches", [](TinyRun& run) { run.dropout = 0.2, run.recompute = true; }},
    {"ranks without rows",
     [](TinyRun& run) {
       run.global_batch = 8;
       run.short_last = 1;
     }},
    {"clipped by value, untied", [](TinyRun& run) { run.clip_value = 1e-3, run.tied = false; }},
};

}  // namespace

TEST_CASE("fp64: meshes combine with adapters, frozen parameters, recomputation, dropout and short batches",
          "[tensor][pipeline][context]") {
  auto run = run_in_float64();
  run.n_layers = 4;
  run.accumulation = 2;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  const auto& feature = features[GENERATE(range(size_t{0}, size_t{6}))];
  feature.add(run);
  const auto single = train_tiny(run);
  static EveryNth chosen(3);
  for (const auto& mesh : combined_meshes) {
    if (!chosen()) continue;
    auto meshed = run;
    put_on_mesh(meshed, mesh);
    INFO(run.family << ", " << feature.label << ", " << to_text(tiny_mesh(meshed)) << ", " << mesh.strategy << " "
                    << mesh.options.dump());
    check_same_training(train_tiny(meshed), single);
  }
}

TEST_CASE("meshes combine with optimizers in host memory", "[tensor][context]") {
  at::set_num_threads(1);
  TinyRun run;
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  const auto single = train_tiny(run);
  for (const auto& mesh :
       {MeshLine{1, 2, 1, 2, "zero", {{"stage", 2}, {"offload_optimizer", true}}},
        MeshLine{1, 1, 2, 2, "zero", {{"stage", 3}, {"offload_optimizer", true}, {"offload_parameters", true}}},
        MeshLine{1, 2, 2, 1, "fsdp", {{"cpu_offload", true}}}}) {
    put_on_mesh(run, mesh);
    INFO(run.family << ", " << to_text(tiny_mesh(run)) << ", " << mesh.strategy << " " << mesh.options.dump());
    check_close(train_tiny(run).losses, single.losses, 1e-5);
  }
}
