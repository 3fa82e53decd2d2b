// Options of the built-in comm hooks: names of PyTorch, refusals, and how PowerSGD divides a bucket.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "strategies/ddp/entry.hpp"
#include "strategies/reducers/power_sgd_plan.hpp"
#include "tests/support/tiny_training.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

std::string refusal(const json& options, int world_size = 4) {
  TinyRun run;
  run.strategy = "ddp";
  run.world_size = world_size;
  run.options = options;
  const auto spec = tiny_spec(run);
  return find_strategy("ddp")->entry->refuse(tiny_job(run, spec)).value_or("");
}

/// The choice that a spelling of `ddp_comm_hook` means, or the message.
std::string choice(const std::string& spelling) {
  json value = spelling;
  const auto problem = check_option(*find_option(find_strategy("ddp")->entry->options, "ddp_comm_hook"), value);
  return problem ? problem->message : value.get<std::string>();
}

}  // namespace

TEST_CASE("comm hooks have the names of PyTorch's functions and of its enumeration") {
  CHECK(choice("powerSGD_hook") == "powerSGD_hook");
  CHECK(choice("powersgd_hook") == "powerSGD_hook");
  CHECK(choice("POWER_SGD") == "powerSGD_hook");
  CHECK(choice("DDPCommHookType.QUANTIZE_PER_CHANNEL") == "quantization_perchannel_hook");
  CHECK(choice("BATCHED_POWER_SGD") == "batched_powerSGD_hook");
  CHECK(choice("post_localSGD_hook") == "post_localSGD_hook");
  CHECK(choice("NOOP") == "noop_hook");
  CHECK(choice("allreduce_hook") == "none");
  CHECK_THAT(choice("POWER_SGD_RANK2"), ContainsSubstring("matrix_approximation_rank = 2"));
  CHECK_THAT(choice("DDPCommHookType.BATCHED_POWER_SGD_RANK2"), ContainsSubstring("is \"batched_powerSGD_hook\" with"));
  CHECK_THAT(choice("hook.lua"), ContainsSubstring("\"lua:hook.lua\""));
}

TEST_CASE("options of comm hooks that contradict each other are refused") {
  const auto local = [](json more) {
    more["ddp_comm_hook"] = "post_localSGD_hook";
    return refusal(more);
  };
  CHECK(local({{"model_averaging_period", 4}}).empty());
  CHECK_THAT(local(json::object()), ContainsSubstring("needs `model_averaging_period`"));
  CHECK_THAT(refusal({{"model_averaging_period", 4}}), ContainsSubstring("post_localSGD_hook"));
  const auto with = [&](json hook, json more = json::object()) {
    more["ddp_comm_hook_options"] = std::move(hook);
    return local(more);
  };
  const json both_periods = {{"period_group_size_dict", {{"2", 2}, {"4", 4}}}};
  CHECK(with(both_periods).empty());
  CHECK_THAT(with(both_periods, {{"model_averaging_period", 2}}), ContainsSubstring("keep one"));
  CHECK_THAT(with({{"model_averaging_period", 2}}, {{"model_averaging_period", 2}}), ContainsSubstring("keep one"));
  CHECK(with({{"model_averaging_period", 2}}).empty());
  CHECK(with({{"subgroup_size", 4}, {"model_averaging_period", 2}}).empty());
  CHECK_THAT(with({{"period_group_size_dict", {{"2", 4}, {"3", 2}, {"4", 4}}}}), ContainsSubstring("fewer than"));
  CHECK_THAT(with({{"period_group_size_dict", {{"2", 2}}}}), ContainsSubstring("all 4 ranks"));
  CHECK_THAT(with({{"period_group_size_dict", {{"2", 3}, {"4", 4}}}}), ContainsSubstring("do not divide 4 ranks"));
  CHECK_THAT(with({{"subgroup_size", 3}}, {{"model_averaging_period", 2}}),
             ContainsSubstring("does not divide 4 ranks"));
  CHECK_THAT(refusal({{"ddp_comm_hook", "fp16_compress"}, {"ddp_comm_wrapper", "bf16_compress_wrapper"}}),
             ContainsSubstring("remove `ddp_comm_wrapper`"));
  CHECK_THAT(refusal({{"ddp_comm_hook", "lua:topk"}, {"ddp_comm_wrapper", "bf16_compress_wrapper"}}),
             ContainsSubstring("a Lua function casts"));
}

TEST_CASE("PowerSGD sends matrices as factors where these are short enough") {
  const std::vector<BucketItem> items = {{0, {64, 32}}, {2048, {64}}, {2112, {4, 4}}, {2128, {8, 3, 5}}};
  PowerSgdOptions options;
  auto division = divide_by_parameter(items, options);
  REQUIRE(division.matrices.size() == 2);  // 8 numbers for 16 are not more than 2 times fewer
  CHECK(division.matrices[1].rows == 8);
  CHECK(division.matrices[1].columns == 15);
  CHECK(division.p_elements == 64 + 8);
  CHECK(division.q_elements == 32 + 15);
  CHECK(division.plain_elements == 64 + 16);
  options.matrix_approximation_rank = 4;
  division = divide_by_parameter(items, options);
  CHECK(division.matrices.size() == 1);
  CHECK(division.p_elements == 64 * 4);
  const auto square = divide_as_square(10, options);
  CHECK(square.matrix_elements == 16);
  CHECK(square.p_elements == 16);
}
