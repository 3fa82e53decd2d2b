// Tensor parallelism: ranks that share each matrix train as one rank does, under every strategy of the data axis.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "meshed_runs.hpp"
#include "tests/support/every_nth.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

struct Case {
  std::string label;
  int data, tensor;
};
const std::vector<Case> meshes = {{"tensor 2", 1, 2},
                                  {"tensor 4", 1, 4},
                                  {"data 2 x tensor 2", 2, 2},
                                  {"data 3 x tensor 2", 3, 2},
                                  {"data 2 x tensor 4", 2, 4}};

struct Form {
  std::string strategy;
  nlohmann::json options = nlohmann::json::object();
};
const std::vector<Form> forms = {
    {"ddp", {}},
    {"ddp", {{"bucket_cap_mb", 0.01}}},
    {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}},
    {"fsdp", {{"sharding_strategy", "FULL_SHARD"}, {"reduce_every_micro_batch", false}}},
    {"fsdp", {{"sharding_strategy", "SHARD_GRAD_OP"}}},
    {"zero", {{"stage", 1}}},
    {"zero", {{"stage", 2}}},
    {"zero", {{"stage", 3}, {"stage3_param_persistence_threshold", 0}}},
    {"zero", {{"stage", 3}, {"stage3_param_persistence_threshold", 500}}},
};

void on_mesh(TinyRun& run, const Case& mesh, const Form& form) {
  run.tensor = mesh.tensor;
  run.world_size = mesh.data * mesh.tensor;
  run.strategy = mesh.data == 1 ? "single" : form.strategy;
  run.options = mesh.data == 1 ? nlohmann::json::object() : form.options;
}

}  // namespace

TEST_CASE("initial values on every mesh are those of one rank, bit for bit", "[tensor]") {
  TinyRun run;
  run.steps = 0;
  run.family = GENERATE(as<std::string>(), "gpt", "llama", "gpt_neox");
  run.tied = GENERATE(true, false);
  const auto single = train_tiny(run);
  for (const auto& mesh : meshes)
    for (const auto& form : {forms[0], forms[2], forms[5]}) {
      INFO(run.family << ", " << mesh.label << ", " << form.strategy);
      on_mesh(run, mesh, form);
      check_equal(train_tiny(run), single);
    }
}

TEST_CASE("fp64: every mesh and strategy trains as one rank", "[tensor]") {
  auto run = run_in_float64();
  run.family = GENERATE(as<std::string>(), "gpt", "llama");
  run.tied = GENERATE(true, false);
  run.accumulation = GENERATE(1, 2);
  run.sequence_parallel = GENERATE(true, false);
  run.clip_norm = 0.5;
  const auto single = train_tiny(run);
  static EveryNth chosen(7);
  for (const auto& mesh : meshes)
    for (const auto& form : forms) {
      if (!chosen()) continue;
      auto meshed = run;
      on_mesh(meshed, mesh, form);
      INFO(run.family << ", tied " << run.tied << ", accumulation " << run.accumulation << ", sequence parallel "
                      << run.sequence_parallel << ", " << mesh.label << ", " << meshed.strategy << " "
                      << meshed.options.dump());
      check_same_training(train_tiny(meshed), single);
    }
}
