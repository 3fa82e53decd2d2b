// Timeouts and backends of collectives in plans: [strategy] and [devices] must agree, and a backend must connect the ranks.
#include <catch2/catch_test_macros.hpp>

#include "tests/selection/small_plans.hpp"

using namespace runner;

TEST_CASE("timeout and backend in [strategy] become those of the run") {
  auto r = small_recipe();
  r.strategy.name = "ddp";
  r.strategy.options = {{"timeout", "5m"}, {"process_group_backend", "gloo"}};
  auto plan = make_plan(r, cpus(2), 256);
  CHECK(plan.recipe.train.timeout == std::chrono::minutes(5));
  CHECK(plan.recipe.devices.process_group_backend == "gloo");
  CHECK_FALSE(plan.recipe.strategy.options.contains("timeout"));
}

TEST_CASE("two timeouts that differ are a contradiction") {
  Recipe r = small_recipe();
  r.strategy.name = "ddp";
  r.strategy.options = {{"timeout", "5m"}};
  r.train.timeout = std::chrono::minutes(10);
  r.origins["train.timeout"] = {Origin::Kind::file, "r.toml", 7, 1, "", "timeout = \"10m\"", 7};
  r.origins["strategy.timeout"] = {Origin::Kind::file, "r.toml", 3, 1, "", "timeout = \"5m\"", 7};
  CHECK(refusal(r, cpus(2)) == "train.timeout and strategy.timeout set the same timeout to different values");
  r.train.timeout = std::chrono::minutes(5);
  CHECK(make_plan(r, cpus(2), 256).recipe.train.timeout == std::chrono::minutes(5));
}

TEST_CASE("a backend that cannot connect the ranks is refused in [strategy] and in [devices]") {
  auto gpus = cpus(2), launched = cpus(2);
  gpus.accelerator = cuda_accelerator();
  gpus.bf16 = true;
  launched.supervisor_each_rank = true;
  struct Row {
    const char* backend;
    Topology topology;
    std::string words;
    std::vector<std::string> allowed;
  };
  for (const auto& row : {
           Row{"nccl",
               cpus(2),
               "process_group_backend \"nccl\" needs CUDA devices, and these are CPU ranks",
               {"shm", "gloo"}},
           Row{"shm",
               gpus,
               "process_group_backend \"shm\" is for CPU ranks, and these are CUDA devices",
               {"nccl", "gloo"}},
           Row{"shm",
               cpus(1, 2),
               "process_group_backend \"shm\" connects the ranks of one supervisor, and this run has one on each node",
               {"gloo"}},
           Row{"shm",
               launched,
               "process_group_backend \"shm\" connects the ranks of one supervisor, and this run has one for each "
               "rank, "
               "which its launcher starts",
               {"gloo"}},
       })
    for (bool for_strategy : {false, true}) {
      auto r = small_recipe();
      r.strategy.name = "ddp";
      if (for_strategy)
        r.strategy.options = {{"process_group_backend", row.backend}};
      else
        r.devices.process_group_backend = row.backend;
      r.origins[for_strategy ? "strategy.process_group_backend" : "devices.process_group_backend"].line = 7;
      auto list = mistakes(r, row.topology);
      REQUIRE(list.size() == 1);
      CHECK(list[0].message == row.words);
      CHECK(list[0].place.line == 7);
      CHECK(list[0].allowed == row.allowed);
    }
}

TEST_CASE("two different backends are a contradiction, two equal ones are not") {
  auto r = small_recipe();
  r.strategy.name = "ddp";
  r.strategy.options = {{"process_group_backend", "gloo"}};
  r.devices.process_group_backend = "shm";
  r.origins["strategy.process_group_backend"].line = 3;
  r.origins["devices.process_group_backend"].line = 9;
  auto list = mistakes(r, cpus(2));
  REQUIRE(list.size() == 1);
  CHECK(list[0].message == "process_group_backend is \"gloo\" for the strategy and \"shm\" in [devices]");
  CHECK(list[0].place.line == 3);
  REQUIRE(list[0].other);
  CHECK(list[0].other->line == 9);
  CHECK(list[0].other_message == "the other is set here");
  r.devices.process_group_backend = "gloo";
  CHECK(mistakes(r, cpus(2)).empty());
}
