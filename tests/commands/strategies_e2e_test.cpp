// Every strategy in processes: equal losses over shared memory and over Gloo, for every number of ranks. Every minimal
// recipe trains.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "tests/support/command.hpp"
#include "tests/support/every_nth.hpp"

using namespace runner::testing;

namespace {

std::vector<double> train(const Workplace& place, std::vector<std::string> overrides) {
  std::vector<std::string> arguments = {"run", "tiny.toml", "--json"};
  for (const auto& text : overrides) arguments.insert(arguments.end(), {"--set", text});
  auto result = place.run(arguments);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.json().at("status") == "finished");
  CHECK(result.json().at("steps") == 12);
  return losses(place);
}

}  // namespace

TEST_CASE("single, ddp and fsdp give the same curve in processes, over shared memory and over Gloo", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  std::string no_dropout = "model.dropout=0";
  auto single = train(place, {"strategy=single", "devices=1", no_dropout});
  REQUIRE(single.size() == 12);
  CHECK(single.back() < single.front());
  static EveryNth chosen(5);
  for (std::string ranks : {"2", "3", "4"})
    for (std::string backend : {"shm", "gloo"})
      for (std::string strategy : {"ddp", "fsdp"}) {
        if (!chosen()) continue;
        INFO(strategy << " on " << ranks << " over " << backend);
        auto curve = train(place, {"strategy=" + strategy, "devices=" + ranks,
                                   "devices.process_group_backend=" + backend, no_dropout});
        REQUIRE(curve.size() == single.size());
        for (size_t i = 0; i < curve.size(); ++i) CHECK_THAT(curve[i], Catch::Matchers::WithinRel(single[i], 1e-5));
      }
}

TEST_CASE("every sharding gives single's curve in processes, with accumulation, clipping and recomputation", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  auto backend = GENERATE(as<std::string>(), "shm", "gloo");
  auto ranks = GENERATE(2, 4);
  static EveryNth chosen(3);
  if (!chosen()) return;
  std::vector<std::string> common = {"model={name=\"llama\",n_layers=2,dim=32,n_heads=2,max_seq_len=32,dropout=0.0}",
                                     "train.micro_batch_size=1", "train.gradient_clip_val=0.5",
                                     "activation_checkpointing=all"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), common.begin(), common.end());
    return more;
  };
  auto single = train(place, with({"strategy=single", "devices=1"}));
  for (std::string sharding : {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD"}) {
    INFO(sharding << " on " << ranks << " over " << backend);
    std::string strategy = "strategy={name=\"fsdp\",sharding_strategy=\"" + sharding + "\"" +
                           (sharding == "HYBRID_SHARD" ? ",hybrid_group_size=2}" : "}");
    auto curve =
        train(place, with({strategy, "devices=" + std::to_string(ranks), "devices.process_group_backend=" + backend}));
    REQUIRE(curve.size() == single.size());
    for (size_t i = 0; i < curve.size(); ++i) CHECK_THAT(curve[i], Catch::Matchers::WithinRel(single[i], 1e-5));
  }
}

TEST_CASE("every minimal recipe trains", "[e2e]") {
  std::vector<fs::path> recipes;
  const bool has_xla = fs::exists(RUNNER_SOURCE_DIR "/.deps/xla/include/pjrt_c_api.h");
  for (const auto& file : fs::directory_iterator(RUNNER_SOURCE_DIR "/recipes/strategies")) {
    if (file.path().stem().string().starts_with("xla") && !has_xla) continue;
    if (file.path().extension() == ".toml" && file.path().stem() != "tiny") recipes.push_back(file.path());
  }
  REQUIRE(recipes.size() >= 6);
  auto curve = [](const fs::path& recipe) {
    Workplace place;
    auto result = place.run({"run", recipe.string(), "--json", "--set", "train.max_steps=6", "--set",
                             "devices.accelerator=cpu", "--set", "train.log_every_n_steps=1"});
    INFO(result.err);
    REQUIRE(result.code == 0);
    CHECK(result.json().at("steps") == 6);
    return losses(place);
  };
  auto single = curve(RUNNER_SOURCE_DIR "/recipes/strategies/single.toml");
  REQUIRE(single.size() == 6);
  CHECK(single.back() < single.front() - 0.05);
  std::ranges::sort(recipes);
  EveryNth chosen(3);
  for (const auto& recipe : recipes) {
    if (!chosen()) continue;
    INFO(recipe.filename());
    auto other = curve(recipe);
    REQUIRE(other.size() == single.size());
    const auto name = recipe.stem().string();
    const bool rounds = name == "ddp_fp16_compress" || name == "ddp_quantization";
    // The first two send less after 4 and 5 of the 6 steps.
    const bool sends_less = name == "ddp_powersgd" || name == "ddp_post_local_sgd" || name.starts_with("bagua_");
    const double tolerance = rounds ? 1e-3 : sends_less ? 2e-2 : name == "horovod_adasum" ? 0.1 : 1e-4;
    for (size_t i = 0; i < other.size(); ++i) CHECK_THAT(other[i], Catch::Matchers::WithinRel(single[i], tolerance));
  }
}

TEST_CASE("dp has the losses of ddp in one process, and ddp2 in one for each node", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  for (const std::string ranks : {"2", "3"}) {
    INFO(ranks);
    const auto expected = train(place, {"strategy=ddp", "devices=" + ranks});
    CHECK(train(place, {"strategy=dp", "devices=" + ranks}) == expected);
    const auto folder = fs::path(place.run({"show", "last", "--json"}).json().at("run_dir").get<std::string>());
    CHECK(fs::exists(folder / "logs" / "rank-0.log"));
    CHECK_FALSE(fs::exists(folder / "logs" / "rank-1.log"));  // one process
  }
  const auto four = train(place, {"strategy=ddp", "devices=4"});
  CHECK(train(place, {"strategy=ddp2", "devices=2", "devices.num_nodes=2", "devices.simulate=true"}) == four);
  const auto refused = place.run(
      {"run", "tiny.toml", "--set", "strategy=dp", "devices=2", "devices.num_nodes=2", "devices.simulate=true"});
  CHECK(refused.code == 2);
  CHECK(refused.err.find("dp drives the devices of one node; ddp2 has a process on each node") != std::string::npos);
}

TEST_CASE("a rank of dp that fails ends the run, and the message names the rank; a restart continues", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("fails.lua",
              "return { on_train_batch_end = function(ctx, state)\n  if ctx.step == 5 and ctx.world.rank == 1 then "
              "error('boom') end\n"
              "end }\n");
  const auto failed = place.run({"run", "tiny.toml", "--set", "strategy=dp", "devices=3", "hooks.files=[\"fails.lua\"]",
                                 "hooks.on_error=stop", "checkpoint.every_n_steps=2"});
  CHECK(failed.code == 1);
  CHECK(failed.err.find("boom") != std::string::npos);
  CHECK(failed.err.find("rank 1") != std::string::npos);
  const auto resumed = place.run({"resume", "last", "--json", "--unset", "hooks"});
  INFO(resumed.err);
  REQUIRE(resumed.code == 0);
  const auto curve = losses(place);
  Workplace other;
  write_tiny_recipe(other);
  CHECK(curve == train(other, {"strategy=ddp", "devices=3"}));
}

TEST_CASE("simulated accelerators have the losses of ddp, and the output says that they are simulated", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const auto expected = train(place, {"strategy=ddp", "devices=2"});
  for (const auto& [strategy, accelerator] : {std::pair{"hpu_parallel", "hpu"}, {"ipu", "ipu"}}) {
    const std::vector<std::string> names = {std::string("strategy=") + strategy,
                                            std::string("devices.accelerator=") + accelerator, "devices=2"};
    auto refused = place.run({"run", "tiny.toml", "--set", names[0], names[1], names[2]});
    CHECK(refused.code == 2);
    CHECK(refused.err.find("CPU processes take the place of the devices") != std::string::npos);
    CHECK(train(place, {names[0], names[1], names[2], "devices.simulate=true"}) == expected);
    auto result = place.run({"check", "tiny.toml", "--set", names[0], names[1], names[2], "devices.simulate=true"});
    CHECK(result.code == 0);
    CHECK((result.out + result.err).find("is simulated: CPU processes train replicas") != std::string::npos);
  }
}

TEST_CASE("the predicted memory of a run equals the measured memory within 3 percent", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  for (std::string strategy : {"single", "ddp", "fsdp"})
    for (std::string checkpoint : {"every_n_steps=4", "save_at_end=true"}) {
      INFO(strategy << " " << checkpoint);
      auto result =
          place.run({"run", "tiny.toml", "--set", "strategy=" + strategy, "--set",
                     "devices=" + std::string(strategy == "single" ? "1" : "2"), "--set", "model.dim=128", "--set",
                     "model.n_layers=3", "--set", "model.max_seq_len=64", "--set", "checkpoint." + checkpoint});
      INFO(result.err);
      REQUIRE(result.code == 0);
      auto row = place.run({"show", "last", "--json"}).json();
      auto bytes = [&](const char* kind) { return row.at(kind).at("memory_bytes_per_rank").get<double>(); };
      CHECK_THAT(bytes("predicted"), Catch::Matchers::WithinRel(bytes("measured"), 0.03));
    }
}
