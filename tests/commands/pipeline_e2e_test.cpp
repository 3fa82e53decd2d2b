// Pipelines in processes: the curve of one rank, what `check` and `recommend` say, runs that continue on another mesh, and kills.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/commands/mesh_support.hpp"
#include "tests/commands/resume_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Micro-batches of 3 sequences: four of them on one data rank.
const std::string micro = "train.micro_batch_size=3";

}  // namespace

TEST_CASE("every schedule of a pipeline has the curve of one rank", "[e2e]") {
  const auto single = train({"strategy=single", "devices=1"});
  REQUIRE(single.size() == 12);
  const std::string pair = "devices.mesh={pipeline=2}";
  check_equal_runs(
      single,
      {{{"strategy=single", pair, micro, "strategy.pipeline_schedule=1f1b"}, "single on 2 CPU ranks (pipeline 2)"},
       {{"strategy=single", pair, micro, "strategy.pipeline_schedule=gpipe"}, "single on 2 CPU ranks (pipeline 2)"},
       {{"strategy=single", pair, micro, "strategy.pipeline_schedule=zb_h1"}, "single on 2 CPU ranks (pipeline 2)"},
       {{"strategy=single", pair, micro, "strategy.virtual_stages=2"}},
       {{"strategy=pp", "devices=2", micro}, "pipeline on 2 CPU ranks (pipeline 2)"},
       {{"strategy=single", pair, micro, "strategy.stages=[1, 5]"}}});
}

TEST_CASE("a pipeline with other axes has the curve of one rank", "[e2e]") {
  const auto single = train({"strategy=single", "devices=1"});
  check_equal_runs(
      single,
      {{{"strategy=ddp", "devices.mesh={pipeline=2,data=2}", "devices=4", micro}, "(pipeline 2 x data 2)"},
       {{"strategy=single", "devices.mesh={pipeline=2,tensor=2}", "devices=4", micro}, "(pipeline 2 x tensor 2)"},
       {{"strategy=fsdp", "devices.mesh={pipeline=2,shard=2,tensor=2}", "devices=8", micro},
        "fsdp on 8 CPU ranks (pipeline 2 x data 2 x tensor 2)"},
       {{"strategy=fsdp", "devices.mesh={pipeline=2,shard=2}", "devices=4", micro, "strategy.virtual_stages=2"}},
       {{"strategy=auto", "devices.mesh={pipeline=2,tensor=2}", "devices=4", micro, "strategy.sequence_parallel=false",
         "strategy.pipeline_schedule=gpipe"},
        "single on 4 CPU ranks (pipeline 2 x tensor 2)"},
       {{"strategy=deepspeed_stage_1", "devices.mesh={pipeline=2,shard=2}", "devices=4", micro}},
       {{"strategy=fsdp", "devices.mesh={pipeline=2,shard=1,tensor=2}", "devices=4", micro,
         "strategy.pipeline_schedule=zb_h1"}}});
}

TEST_CASE("pipelines over Gloo have the curve of one rank on 4 and 8 processes", "[e2e]") {
  const auto single = train({"strategy=single", "devices=1"});
  const std::string gloo = "devices.process_group_backend=gloo";
  check_equal(train({"strategy=single", "devices.mesh={pipeline=4}", "devices=4", micro, gloo,
                     "strategy.pipeline_schedule=zb_h1"},
                    "single on 4 CPU ranks (pipeline 4)"),
              single);
  check_equal(train({"strategy=ddp", "devices.mesh={pipeline=2,data=2,tensor=2}", "devices=8", micro, gloo},
                    "ddp on 8 CPU ranks (pipeline 2 x data 2 x tensor 2)"),
              single);
}

TEST_CASE("hooks of a pipeline generate the texts of one rank", "[e2e]") {
  const auto samples = [](const std::vector<std::string>& mesh) {
    Workplace place;
    write_tiny_recipe(place, R"(val_check_interval = 4
[hooks]
files = ["gradient_norms", "sample_generation"]
[hooks.sample_generation]
prompt = "line 4"
max_new_tokens = 8
temperature = 0
)");
    std::vector<std::string> arguments = {"run", "tiny.toml", "--json", "--set", "model.dropout=0", "--set", micro};
    for (const auto& text : mesh) arguments.insert(arguments.end(), {"--set", text});
    const auto result = place.run(arguments);
    INFO(result.err);
    REQUIRE(result.code == 0);
    const auto events = events_of(place, "sample");
    std::vector<std::string> texts;
    for (const auto& event : events) texts.push_back(event.at("text"));
    return texts;
  };
  const auto expected = samples({"strategy=single", "devices=1"});
  REQUIRE(expected.size() == 3);
  CHECK(samples({"strategy=single", "devices.mesh={pipeline=2}", "strategy.pipeline_schedule=zb_h1"}) == expected);
  CHECK(samples({"strategy=single", "devices.mesh={pipeline=2,tensor=2}", "devices=4"}) == expected);
}

TEST_CASE("a run of a pipeline continues on other meshes, and other runs continue on a pipeline", "[e2e]") {
  const auto whole = train({"strategy=fsdp", "devices=1"});
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"fsdp\"\n");
  const auto go = [&](std::vector<std::string> arguments, const std::string& mesh, int ranks, int steps,
                      const std::string& more) {
    for (const auto& text : {"devices.mesh=" + mesh, "devices=" + std::to_string(ranks), std::string("model.dropout=0"),
                             "train.max_steps=" + std::to_string(steps), micro, more})
      arguments.insert(arguments.end(), {"--set", text});
    arguments.push_back("--json");
    const auto result = place.run(arguments);
    INFO(mesh << "\n" << result.err);
    REQUIRE(result.code == 0);
  };
  go({"run", "tiny.toml"}, "{pipeline=2,shard=1}", 2, 2, "strategy.virtual_stages=2");
  go({"resume", "last"}, "{pipeline=3,shard=1}", 3, 4, "strategy.virtual_stages=1");
  go({"resume", "last"}, "{pipeline=1,shard=1}", 1, 6, "strategy.state_dict_type=full");
  go({"resume", "last"}, "{pipeline=2,shard=1,tensor=2}", 4, 8, "strategy.state_dict_type=full");
  go({"resume", "last"}, "{pipeline=1,shard=2,tensor=1}", 2, 10, "strategy.state_dict_type=sharded");
  go({"resume", "last"}, "{pipeline=2,shard=2}", 4, 12, "strategy.state_dict_type=sharded");
  check_equal(losses(place), whole);
}

TEST_CASE("a killed rank of a pipeline ends the run, which then continues bit-equal", "[e2e]") {
  const std::string pipeline = "[strategy]\nname = \"single\"\npipeline_parallel_size = 2\n";
  const End expected = undisturbed(pipeline);
  Workplace place;
  write_tiny_recipe(place, pipeline + checkpoints);
  const pid_t pid = place.start({"run", "tiny.toml", "--json", "--set", "train.max_steps=40"});
  REQUIRE(wait_until([&] { return has_checkpoint(place, 3); }, 60));
  const auto workers = children_of(pid);
  REQUIRE(workers.size() == 2);
  ::kill(workers[1], SIGKILL);
  CHECK(place.finish(pid).code != 0);
  check_end(place, place.run({"resume", "last", "--json"}), expected);
}

TEST_CASE("check and recommend show the stages and draw the schedule", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"single\"\n");
  const auto run = [&](const std::string& verb, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {verb, "tiny.toml", "--set", "devices.mesh={pipeline=2}", "--set", micro};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return place.run(arguments);
  };
  const auto checked = run("check", {});
  INFO(checked.err);
  REQUIRE(checked.code == 0);
  CHECK_THAT(checked.err, ContainsSubstring("single on 2 CPU ranks (pipeline 2)"));
  CHECK_THAT(checked.err, ContainsSubstring("pipeline: 1f1b, 4 micro-batches a step; the slowest stage is as fast as "
                                            "possible; ranks wait for each other in "));
  CHECK_THAT(checked.err, ContainsSubstring("rank 0 of 2  embedding to blocks.1.attention (4 blocks)"));
  CHECK_THAT(checked.err, ContainsSubstring("rank 1 of 2  blocks.1.mlp to head (2 blocks)"));
  const auto plan = run("check", {"--json"}).json().at("pipeline");
  CHECK(plan.at("stages") == nlohmann::json{4, 2});
  CHECK(plan.at("ranks").size() == 2);

  const auto drawn = run("recommend", {"--program"});
  INFO(drawn.err);
  REQUIRE(drawn.code == 0);
  CHECK_THAT(drawn.out, ContainsSubstring("\nrank 0 F0"));
  CHECK_THAT(drawn.out, ContainsSubstring("\nrank 0 of 2, embedding to blocks.1.attention (4 blocks):\n"));
  CHECK_THAT(drawn.out, ContainsSubstring("receive_gradient"));
  const auto split = run("recommend", {"--program", "--set", "strategy.pipeline_schedule=zb_h1"});
  REQUIRE(split.code == 0);
  CHECK_THAT(split.out, ContainsSubstring("F forward; I backward, input part; W weight part"));
  CHECK_THAT(split.out, ContainsSubstring("backward_weight"));
  const auto advice = run("recommend", {"--json"}).json();
  CHECK(advice.at("chosen").at("schedule").size() == 2 * 2 * 4);
  CHECK(advice.at("candidates").at(0).at("pipeline").at("stages") == nlohmann::json{4, 2});
  CHECK(run("check", {"--set", "strategy.stages=[3, 4]"}).code == 2);
}

TEST_CASE("a profiled run compares how long ranks of a pipeline waited with the bubble of the schedule", "[e2e]") {
  Workplace place;
  write_tiny_recipe(place, "[strategy]\nname = \"single\"\n");
  const auto result = place.run({"run", "tiny.toml", "--json", "--set", "devices.mesh={pipeline=2}", "--set", micro,
                                 "--set", "run.profiler=simple"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  const auto run = place.run({"show", "last", "--json"}).json();
  CHECK(run.at("plan").at("mesh") == nlohmann::json{{"pipeline", 2}});
  const double predicted = run.at("predicted").at("pipeline_wait_percent"),
               measured = run.at("measured").at("pipeline_wait_percent");
  CHECK(predicted > 100 * 1.0 / 5 - 0.01);  // of equal stages; these are less equal
  CHECK(predicted < 50);
  CHECK(measured > 0);
  CHECK(measured < 100);
  CHECK_THAT(place.run({"show", "last"}).out,
             ContainsSubstring("measured: in transfers between stages (with run.profiler)"));
}

TEST_CASE("the predicted memory of each rank of a pipeline is the measured one within 3 percent", "[e2e]") {
  for (const std::vector<std::string>& form :
       {std::vector<std::string>{"strategy=single", "devices.mesh={pipeline=2}", "strategy.virtual_stages=2"},
        std::vector<std::string>{"strategy=single", "devices.mesh={pipeline=2}", "activation_checkpointing=\"every\"",
                                 "activation_checkpointing.every=2"},
        std::vector<std::string>{"strategy=single", "devices.mesh={pipeline=2}", "strategy.pipeline_schedule=zb_h1"},
        std::vector<std::string>{"strategy=fsdp", "devices.mesh={pipeline=2,shard=2}", "devices=4"}}) {
    Workplace place;
    write_tiny_recipe(place);
    std::vector<std::string> arguments = {"run", "tiny.toml", "--json"};
    for (const char* text : {"train.micro_batch_size=3", "model.dim=128", "model.n_layers=3", "model.max_seq_len=64",
                             "checkpoint.save_at_end=false"})
      arguments.insert(arguments.end(), {"--set", text});
    for (const auto& text : form) arguments.insert(arguments.end(), {"--set", text});
    const auto result = place.run(arguments);
    INFO(form[1] << " " << result.err);
    REQUIRE(result.code == 0);
    const auto ranks = place.run({"show", "last", "--json"}).json().at("plan").at("pipeline").at("ranks");
    const auto measured = result.json().at("peak_memory_bytes_per_rank");
    const size_t of_stage = measured.size() / ranks.size();  // consecutive ranks have the same stage
    for (size_t rank = 0; rank < measured.size(); ++rank)
      CHECK_THAT(measured[rank].get<double>(),
                 Catch::Matchers::WithinRel(ranks[rank / of_stage].at("memory_bytes").get<double>(), 0.03));
  }
}
