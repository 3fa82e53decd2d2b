// [strategy] against the catalog.
#include "runner/selection/strategy_options.hpp"

#include <catch2/catch_test_macros.hpp>

#include "runner/config/config.hpp"

using namespace runner;

namespace {

std::vector<Diagnostic> problems(const std::string& name, nlohmann::json options) {
  Recipe recipe;
  recipe.strategy.name = name;
  recipe.strategy.options = std::move(options);
  std::vector<Diagnostic> diagnostics;
  resolve_strategy(recipe, diagnostics);
  return diagnostics;
}

std::string only_message(const std::string& name, nlohmann::json options) {
  auto list = problems(name, std::move(options));
  REQUIRE(list.size() == 1);
  return list[0].message;
}

}  // namespace

TEST_CASE("every name and alias of the seeds is known") {
  for (const char* name : {"single",
                           "single_device",
                           "ddp",
                           "ddp_spawn",
                           "ddp_fork",
                           "ddp_notebook",
                           "ddp_find_unused_parameters_true",
                           "ddp_find_unused_parameters_false",
                           "ddp_spawn_find_unused_parameters_true",
                           "fsdp",
                           "fsdp_cpu_offload",
                           "deepspeed",
                           "deepspeed_stage_1",
                           "deepspeed_stage_2",
                           "deepspeed_stage_2_offload",
                           "deepspeed_stage_3",
                           "deepspeed_stage_3_offload",
                           "deepspeed_stage_3_offload_nvme",
                           "dp",
                           "ddp2",
                           "xla",
                           "xla_debug",
                           "single_xla",
                           "xla_fsdp",
                           "ddp_sharded",
                           "horovod",
                           "bagua",
                           "hivemind",
                           "colossalai",
                           "hpu_parallel",
                           "ipu_strategy",
                           "DDP"})
    CHECK(find_strategy(name));
  CHECK_FALSE(find_strategy("magic"));
  CHECK(find_strategy("ddp_find_unused_parameters_true")->preset == nlohmann::json{{"find_unused_parameters", true}});
  CHECK(find_strategy("fsdp_cpu_offload")->preset == nlohmann::json{{"cpu_offload", true}});
}

TEST_CASE("names appear once in the catalog") {
  auto names = strategy_names();
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
}

TEST_CASE("mistakes in [strategy] are told with what would work") {
  CHECK(only_message("fsdpp", {}) == "unknown strategy `fsdpp`");
  CHECK(problems("fsdpp", {})[0].suggestion == "fsdp");
  CHECK(only_message("ddp", {{"sharding_strategy", "FULL_SHARD"}}) ==
        "`sharding_strategy` is an option of `fsdp`, not of `ddp`");
  CHECK(only_message("fsdp", {{"shading_strategy", "FULL_SHARD"}}) ==
        "strategy `fsdp` has no option `shading_strategy`");
  CHECK(problems("fsdp", {{"shading_strategy", "FULL_SHARD"}})[0].suggestion == "sharding_strategy");
  CHECK(only_message("fsdp", {{"sharding_strategy", "FULL"}}) == "`sharding_strategy` cannot be \"FULL\"");
  CHECK(only_message("fsdp", {{"min_num_params", 1e300}}) == "`min_num_params` must be an integer, not 1e+300");
  CHECK(only_message("fsdp", {{"cpu_offload", 3}}) == "`cpu_offload` must be true or false, not 3");
  CHECK(only_message("fsdp", {{"hybrid_group_size", 0}}) == "`hybrid_group_size` must be at least 1, not 0");
  CHECK(only_message("ddp", {{"timeout", "soon"}}) == "`timeout` must be a duration such as \"30m\", not \"soon\"");
  CHECK(problems("auto", {{"cpu_offload", true}}).empty());
  CHECK(only_message("auto", {{"cpu_ofload", true}}) == "no strategy has an option `cpu_ofload`");
  CHECK(problems("auto", {{"cpu_ofload", true}})[0].suggestion == "cpu_offload");
  CHECK(only_message("auto", {{"cpu_offload", 3}}) == "`cpu_offload` must be true or false, not 3");
  CHECK(only_message("auto", {{"cpu_offload", true}, {"stage", 2}}) ==
        "no strategy takes `cpu_offload` and `stage` together");
  CHECK(only_message("horovod", {}) == "strategy `horovod` is not built yet; ddp does the same sum of gradients");
  CHECK(problems("fsdp", {{"min_num_params", 2e8}, {"timeout", "30m"}, {"auto_wrap_policy", {"blocks.0"}}}).empty());
}

TEST_CASE("options with nothing to do are accepted with the reason") {
  Recipe recipe;
  recipe.strategy.name = "fsdp";
  recipe.strategy.options = {{"use_orig_params", true}, {"sync_module_states", true}};
  std::vector<Diagnostic> diagnostics;
  auto resolved = resolve_strategy(recipe, diagnostics);
  CHECK(diagnostics.empty());
  CHECK(resolved.notes.size() == 2);
}

TEST_CASE("an option that a configuration gives is refused at its place there") {
  auto recipe = parse_recipe(
      "[strategy]\nname = \"zero\"\nconfig = { zero_optimization = { stage = \"two\" } }\n"
      "[model]\nname = \"gpt\"\nn_layers = 1\ndim = 8\nn_heads = 1\nmax_seq_len = 8\n"
      "[data]\nformat = \"text\"\ntrain = [\"a.txt\"]\n[train]\nmax_steps = 1\n",
      "recipe.toml");
  std::vector<Diagnostic> diagnostics;
  resolve_strategy(recipe, diagnostics);
  REQUIRE(diagnostics.size() == 1);
  CHECK(diagnostics[0].message == "`stage` must be an integer, not \"two\"");
  CHECK(diagnostics[0].place.line == 3);
  CHECK(diagnostics[0].place.column == 34);
}

TEST_CASE("numbers beyond what can be are refused, not cut off") {
  CHECK(only_message("zero", {{"optimizer_buffer_count", int64_t{1} << 32}}) ==
        "`optimizer_buffer_count` must be at most 65536, not 4294967296");
  CHECK(only_message("zero", {{"params_buffer_count", int64_t{1} << 32}}) ==
        "`params_buffer_count` must be at most 65536, not 4294967296");
  CHECK(only_message("zero", {{"queue_depth", int64_t{1} << 62}}) ==
        "`queue_depth` must be at most 256, not 4611686018427387904");
  CHECK(only_message("zero", {{"thread_count", 257}}) == "`thread_count` must be at most 256, not 257");
  CHECK(problems("zero", {{"thread_count", 256}}).empty());
}
