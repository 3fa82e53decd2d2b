// Meshes with a tensor axis or a context axis in processes: the curve of one rank, what `check` and `recommend` say,
// and runs that continue on another mesh.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/mesh_support.hpp"
#include "tests/support/every_nth.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("every strategy with a tensor axis has the curve of one rank", "[e2e]") {
  const auto single = train({"strategy=single", "devices=1"});
  REQUIRE(single.size() == 12);
  CHECK(single.back() < single.front());
  const std::string pair = "devices.mesh={tensor=2}";
  check_equal_runs(single, {{{"strategy=single", pair}, "single on 2 CPU ranks (tensor 2)"},
                            {{"strategy=single", pair, "strategy.sequence_parallel=false"}},
                            {{"strategy=ddp", pair, "devices=4"}, "ddp on 4 CPU ranks (data 2 x tensor 2)"},
                            {{"strategy=fsdp", "devices.mesh={shard=2,tensor=2}", "devices=4"}, "fsdp on 4 CPU ranks"},
                            {{"strategy=deepspeed_stage_3", "strategy.tp_size=2", "devices=4"}, "zero on 4 CPU ranks"},
                            {{"strategy=model_parallel", "devices=2"}, "model_parallel on 2 CPU ranks (tensor 2)"},
                            {{"strategy=auto", pair, "devices=4"}, "ddp on 4 CPU ranks (data 2 x tensor 2)"}});
}

TEST_CASE("every form of a context axis has the curve of one rank", "[e2e]") {
  const auto single = train({"strategy=single", "devices=1"});
  const std::string pair = "devices.mesh={context=2}";
  check_equal_runs(single,
                   {{{"strategy=single", pair}, "single on 2 CPU ranks (context 2)"},
                    {{"strategy=single", pair, "strategy.context_parallel=ring"}},
                    {{"strategy=single", pair, "strategy.context_parallel=ulysses"}},
                    {{"strategy=fsdp", "devices.mesh={data=2,context=2}", "devices=4"}, "(data 2 x context 2)"},
                    {{"strategy=zero", "devices.mesh={context=2,tensor=2}", "strategy.cp_comm_type=p2p", "devices=4"},
                     "zero on 4 CPU ranks (context 2 x tensor 2)"},
                    {{"strategy=auto", "strategy.cp_size=2", "devices=4"}, "(data 2 x context 2)"},
                    {{"strategy=ddp", "devices.mesh={pipeline=2,context=2}", "devices=4", "train.micro_batch_size=3"},
                     "(pipeline 2 x context 2)"}});
}

TEST_CASE("a context axis has the curve of one rank over Gloo", "[e2e]") {
  EveryNth chosen(2);
  const auto single = train({"strategy=single", "devices=1"});
  for (const char* form : {"gather", "ring", "ulysses"})
    if (chosen())
      check_equal(train({"strategy=zero", "devices.mesh={data=2,context=2}", "devices=4",
                         "devices.process_group_backend=gloo", std::string("strategy.context_parallel=") + form}),
                  single);
}

TEST_CASE("a run continues on another mesh", "[e2e]") {
  const std::vector<std::string> meshes = {"devices.mesh={shard=2,tensor=2}", "devices.mesh={shard=1,tensor=2}",
                                           "devices.mesh={context=2,shard=1,tensor=1}",
                                           "devices.mesh={context=1,shard=2,tensor=1}"};
  Workplace whole;
  write_tiny_recipe(whole, "[strategy]\nname = \"fsdp\"\n");
  REQUIRE(whole.run({"run", "tiny.toml", "--json", "--set", "devices=1", "--set", "model.dropout=0"}).code == 0);
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"fsdp\"\n");
  auto result = place.run({"run", "tiny.toml", "--json", "--set", meshes[0], "--set", "devices=4", "--set",
                           "train.max_steps=3", "--set", "model.dropout=0"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  for (size_t i = 1; i < meshes.size(); ++i) {
    const auto steps = std::to_string(3 * (i + 1));
    result = place.run(
        {"resume", "last", "--json", "--set", meshes[i], "--set", "devices=2", "--set", "train.max_steps=" + steps});
    INFO(result.err);
    REQUIRE(result.code == 0);
  }
  check_equal(losses(place), losses(whole));
}

TEST_CASE("a run whose mesh determined the ranks continues, on the same mesh and on another one", "[e2e]") {
  Workplace whole;
  write_tiny_recipe(whole);
  REQUIRE(whole.run({"run", "tiny.toml", "--json", "--set", "devices=1", "--set", "model.dropout=0"}).code == 0);
  Workplace place;
  write_tiny_recipe(place);
  auto result = place.run({"run", "tiny.toml", "--json", "--unset", "devices.cpu_processes", "--set",
                           "devices.mesh={pipeline=2,tensor=2}", "model.dropout=0", "train.max_steps=3"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK_THAT(place.run({"show"}).out,
             ContainsSubstring("single on 4 ranks, with mesh = { pipeline = 2, tensor = 2 }: "));
  const std::vector<std::vector<std::string>> later = {
      {"train.max_steps=6"},
      {"train.max_steps=9", "devices.mesh={context=2}"},
      {"train.max_steps=12", "devices.mesh={shard=2}", "strategy=fsdp"}};
  for (const auto& overrides : later) {
    std::vector<std::string> arguments = {"resume", "last", "--json", "--set"};
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    result = place.run(arguments);
    INFO(result.err);
    REQUIRE(result.code == 0);
  }
  check_equal(losses(place), losses(whole));
  CHECK_THAT(place.run({"show"}).out, ContainsSubstring("fsdp on 2 ranks, with mesh = { shard = 2 }"));
}

TEST_CASE("check and recommend know the mesh", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"fsdp\"\n");
  const auto run = [&](const std::string& verb, const std::string& mesh, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {verb,    "tiny.toml",           "--set", "devices.accelerator=cpu",
                                          "--set", "devices.mesh=" + mesh};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return place.run(arguments);
  };
  CHECK_THAT(run("check", "{shard=2,tensor=2}", {"--unset", "devices.cpu_processes"}).err,
             ContainsSubstring("fsdp on 4 CPU ranks (data 2 x tensor 2)"));
  auto wrong = run("check", "{tensor=2}", {"--set", "devices=3"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, ContainsSubstring(
                            "--set devices.mesh={tensor=2}: error: the run has 3 ranks, which is no "
                            "multiple of the 2 of mesh = { tensor = 2 }; sizes that work, one at a time: tensor = 1"));
  wrong = run("check", "{tensor=64}");
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, ContainsSubstring("error: a tensor axis of 64 ranks: 64 ranks cannot share "));
  wrong = run("recommend", "{shard=2,tensor=2}", {"--devices", "3"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, ContainsSubstring("the run has 3 ranks, not the 4 of mesh = { shard = 2, tensor = 2 }"));
  const auto advice = run("recommend", "{shard=2,tensor=2}", {"--json", "--devices", "4"});
  INFO(advice.err);
  REQUIRE(advice.code == 0);
  CHECK(advice.json().at("parameters") == run("recommend", "{tensor=1}", {"--json"}).json().at("parameters"));
  const auto answer = advice.json();
  CHECK(answer.at("chosen").at("mesh") == nlohmann::json{{"shard", 2}, {"tensor", 2}});
  for (const auto& candidate : answer.at("candidates"))
    if (candidate.at("strategy") == "ddp") CHECK(candidate.at("verdict") == "refused");
}

TEST_CASE("help leads to the strategies and to the sizes of a mesh", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place);
  const auto help = place.run({"help", "pipeline"});
  CHECK(help.code == 2);
  CHECK(help.err == "error: `pipeline` is a strategy: `runner strategies pipeline` describes it\n");
  CHECK_THAT(
      place.run({"strategies", "model_parallel"}).out,
      ContainsSubstring("Default: 1, with model_parallel and no devices.mesh \"auto\".\n      integer or \"auto\"\n"));
  const auto program = [&](const std::string& sequences) {
    return place
        .run({"recommend", "tiny.toml", "--program", "--set", "train.micro_batch_size=1", "devices.mesh={context=2}",
              "train.global_batch_size=" + sequences})
        .out;
  };
  CHECK_THAT(program("4"), ContainsSubstring("\nMicro-batch 2 has the same instructions as micro-batch 1.\n"));
  CHECK_THAT(program("6"), ContainsSubstring("\nMicro-batches 2 to 4 have the same instructions as micro-batch 1.\n"));
}

TEST_CASE("auto trains on a mesh if nothing else fits", "[e2e]") {
  // No rank can gather the embedding within the limit, but the ranks of a tensor or a pipeline axis need not.
  const std::vector<std::string> wide = {"model.vocab_size=100000", "model.dim=64", "model.n_heads=4",
                                         "train.max_steps=3"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), wide.begin(), wide.end());
    return more;
  };
  const auto single = train(with({"strategy=single", "devices=1"}));

  Workplace place;
  write_tiny_recipe(place);
  const auto run = [&](std::vector<std::string> arguments, const std::vector<std::string>& overrides) {
    for (const auto& text : with(overrides)) arguments.insert(arguments.end(), {"--set", text});
    return place.run(arguments);
  };
  const std::vector<std::string> here = {"strategy=auto", "devices.cpu_processes=4", "devices=4", "model.dropout=0"};
  auto smallest = here;
  smallest.push_back("selection.policy=smallest");
  const auto known = run({"recommend", "tiny.toml", "--json"}, smallest);
  INFO(known.err);
  REQUIRE(known.code == 0);
  int64_t least = INT64_MAX;
  const auto answer = known.json();
  for (const auto& candidate : answer.at("candidates"))
    if (candidate.contains("memory_bytes_per_rank"))
      least = std::min(least, candidate.at("memory_bytes_per_rank").get<int64_t>());

  auto limited = here;
  limited.push_back("devices.memory_limit=" + std::to_string(least - 1));
  const auto trained = run({"run", "tiny.toml", "--json"}, limited);
  INFO(trained.err);
  REQUIRE(trained.code == 0);
  CHECK_THAT(trained.err, ContainsSubstring(" on 4 CPU ranks (") &&
                              (ContainsSubstring("tensor ") || ContainsSubstring("pipeline ")));
  check_equal(losses(place), single);
}
