// Options that an entry refuses before anything runs, with exact texts.
#include <catch2/catch_test_macros.hpp>

#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

std::optional<std::string> refusal(const std::string& strategy, nlohmann::json options, int world_size = 2) {
  TinyRun run;
  run.strategy = strategy;
  run.options = std::move(options);
  run.world_size = world_size;
  ModelSpec spec = tiny_spec(run);
  return find_strategy(strategy)->entry->refuse(tiny_job(run, spec));
}

std::string fsdp(const std::string& option, nlohmann::json value) {
  return refusal("fsdp", {{option, std::move(value)}}).value_or("");
}

}  // namespace

TEST_CASE("fsdp's mixed_precision accepts dtypes, for all or by part, and suggests the nearest one") {
  for (nlohmann::json fine :
       {nlohmann::json("bfloat16"), nlohmann::json("16"), nlohmann::json{{"param_dtype", "bf16"}},
        nlohmann::json{{"param_dtype", "float16"}, {"reduce_dtype", "fp32"}, {"buffer_dtype", "float32"}}})
    CHECK(fsdp("mixed_precision", fine) == "");
  const std::string dtypes = "; a dtype is \"float32\", \"bfloat16\" or \"float16\"";
  CHECK(fsdp("mixed_precision", "bfloat") ==
        "mixed_precision cannot be \"bfloat\" (did you mean \"bfloat16\"?)" + dtypes);
  CHECK(fsdp("mixed_precision", true) == "mixed_precision cannot be true" + dtypes);
  CHECK(fsdp("mixed_precision", {{"parm_dtype", "bfloat16"}}) ==
        "mixed_precision has no \"parm_dtype\" (did you mean \"param_dtype\"?); it has param_dtype, reduce_dtype and "
        "buffer_dtype");
  CHECK(fsdp("mixed_precision", {{"param_dtype", 16}}) == "mixed_precision.param_dtype cannot be 16" + dtypes);
  CHECK(fsdp("mixed_precision", {{"buffer_dtype", "float3"}}) ==
        "mixed_precision.buffer_dtype cannot be \"float3\" (did you mean \"float32\"?)" + dtypes);
}

TEST_CASE("fsdp explains mixed_precision.buffer_dtype") {
  TinyRun run;
  run.strategy = "fsdp";
  run.world_size = 2;
  run.options = {{"mixed_precision", {{"buffer_dtype", "float32"}}}};
  ModelSpec spec = tiny_spec(run);
  CHECK(find_strategy("fsdp")->entry->notes(tiny_job(run, spec)) ==
        std::vector<std::string>{"`mixed_precision.buffer_dtype`: no effect: a model's buffers are tables in the "
                                 "dtype in which blocks compute"});
}

TEST_CASE("fsdp refuses an auto_wrap_policy that would silently wrap nothing") {
  for (nlohmann::json fine : {nlohmann::json("block"), nlohmann::json("size"), nlohmann::json("none"),
                              nlohmann::json({"blocks.[01]", "head"})})
    CHECK(fsdp("auto_wrap_policy", fine) == "");
  CHECK(fsdp("auto_wrap_policy", "blocks") ==
        "auto_wrap_policy cannot be \"blocks\" (did you mean \"block\"?); it is \"block\", \"size\", \"none\", classes "
        "of "
        "layers such as \"TransformerEncoderLayer\", or a list of names: \"embedding\", \"blocks.0\" to \"blocks.2\", "
        "\"head\", and parts such as \"blocks.0.mlp\"");
  CHECK(fsdp("auto_wrap_policy", {"blocks.1", "blocks.9"}) ==
        "auto_wrap_policy: no block is called \"blocks.9\"; names are \"embedding\", \"blocks.0\" to \"blocks.2\", "
        "\"head\", and parts such as \"blocks.0.mlp\"");
}

TEST_CASE("a group size beyond 32 bits is refused, not truncated") {
  int64_t large = (int64_t{1} << 32) + 2;
  CHECK(refusal("fsdp", {{"sharding_strategy", "HYBRID_SHARD"}, {"hybrid_group_size", large}}) ==
        "HYBRID_SHARD cannot cut 2 ranks into groups of 4294967298; hybrid_group_size may be 1, 2");
  CHECK(refusal("zero", {{"mics_shard_size", large}}) ==
        "MiCS cannot cut 2 ranks into groups of 4294967298; mics_shard_size may be 1, 2");
}
