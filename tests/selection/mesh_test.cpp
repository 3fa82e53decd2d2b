// Meshes in recipes: every spelling of the sizes, the job that follows, and what is refused.
#include <catch2/catch_test_macros.hpp>

#include "runner/config/device_request.hpp"
#include "runner/config/mesh_sizes.hpp"
#include "runner/models/models.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/step_time.hpp"
#include "strategies/program/parallel_plan.hpp"
#include "tests/selection/recipe_place.hpp"
#include "tests/selection/small_plans.hpp"

using namespace runner;

namespace {

Recipe with_mesh(const MeshSizes& sizes, const std::string& strategy = "ddp") {
  auto recipe = small_recipe();
  recipe.strategy.name = strategy;
  recipe.devices.mesh = sizes;
  return recipe;
}

/// The mesh of the job, and that of the resolved recipe.
std::string meshes(const Recipe& recipe, const Topology& topology) {
  const auto plan = make_plan(recipe, topology, 256);
  const auto& resolved = plan.recipe.devices.mesh;
  CHECK(!plan.recipe.strategy.tensor_parallel_size);
  CHECK(!plan.recipe.strategy.data_parallel_size);
  return to_text(plan.job.mesh) + "; " + (resolved ? toml_value(mesh_table().print(*resolved)) : "none");
}

std::string problem(const Recipe& recipe, const Topology& topology) {
  const auto list = mistakes(recipe, topology);
  if (list.size() != 1) return std::to_string(list.size()) + " mistakes";
  std::string text = list[0].code + ": " + list[0].message;
  for (const auto& allowed : list[0].allowed) text += "; " + allowed;
  return text;
}

Mesh mesh_of_plan(const Plan& plan) { return plan.entry->plan(plan.job).mesh; }

}  // namespace

TEST_CASE("the data axis is what the other axes leave over") {
  CHECK(meshes(small_recipe(), cpus(4)) == "data 4; none");
  CHECK(meshes(with_mesh({.tensor = 2}), cpus(8)) == "data 4 x tensor 2; { tensor = 2 }");
  CHECK(meshes(with_mesh({.tensor = 2}), cpus(2, 4)) == "data 4 x tensor 2; { tensor = 2 }");
  CHECK(meshes(with_mesh({.tensor = 4}, "single"), cpus(4)) == "tensor 4; { tensor = 4 }");
  CHECK(meshes(with_mesh({.data = 2, .tensor = 2}), cpus(4)) == "data 2 x tensor 2; { data = 2, tensor = 2 }");
  CHECK(meshes(with_mesh({.shard = 2, .tensor = 2}, "fsdp"), cpus(4)) ==
        "data 2 x tensor 2; { shard = 2, tensor = 2 }");
  CHECK(meshes(with_mesh({.tensor = 1}), cpus(2)) == "data 2; { tensor = 1 }");
}

TEST_CASE("the keys of the strategy mean the same mesh") {
  auto recipe = small_recipe();
  recipe.strategy = {.name = "ddp", .tensor_parallel_size = 2};
  CHECK(meshes(recipe, cpus(4)) == "data 2 x tensor 2; { tensor = 2 }");
  recipe.strategy.data_parallel_size = 2;
  CHECK(meshes(recipe, cpus(4)) == "data 2 x tensor 2; { data = 2, tensor = 2 }");
  recipe.strategy.data_parallel_size = Recipe::automatic;
  CHECK(meshes(recipe, cpus(8)) == "data 4 x tensor 2; { tensor = 2 }");
  recipe.strategy.tensor_parallel_size = Recipe::automatic;
  CHECK(meshes(recipe, cpus(2, 3)) == "data 3 x tensor 2; { tensor = 2 }");
  recipe.devices.mesh = MeshSizes{.shard = 3};
  recipe.strategy.name = "fsdp";
  CHECK(meshes(recipe, cpus(2, 3)) == "data 3 x tensor 2; { shard = 3, tensor = 2 }");
}

TEST_CASE("a recipe's size \"auto\" of the tensor axis is checked when the devices are known") {
  RecipePlace place(
      "[strategy]\nname = \"model_parallel\"\ndata_parallel_size = \"auto\"\ntensor_parallel_size = \"auto\"\n");
  const auto recipe = place.load();
  CHECK(recipe.strategy.tensor_parallel_size == Recipe::automatic);
  CHECK(meshes(recipe, cpus(2)) == "tensor 2; { tensor = 2 }");
  CHECK(problem(recipe, cpus(3)).starts_with("mesh: a tensor axis of 3 ranks: "));
}

TEST_CASE("a pipeline takes the ranks that a mesh leaves over, and says if there are none") {
  CHECK(meshes(with_mesh({.tensor = 2}, "pipeline"), cpus(4)) == "pipeline 2 x tensor 2; { pipeline = 2, tensor = 2 }");
  CHECK(meshes(with_mesh({.pipeline = 1}, "pipeline"), cpus(4)) == "data 4; { pipeline = 1 }");
  auto recipe = with_mesh({.data = 2}, "pipeline");
  CHECK(devices_of(recipe).cpu_processes == 2);
  const auto alone = [](const std::string& name, const std::string& axis) {
    return fmt::format(
        "`{}` divides nothing here, because its {} axis has one rank; devices.cpu_processes, "
        "devices.devices and devices.mesh give it more",
        name, axis);
  };
  CHECK(std::ranges::count(make_plan(recipe, cpus(2), 256).notes, alone("pipeline", "pipeline")) == 1);
  CHECK(std::ranges::count(make_plan(recipe, cpus(4), 256).notes, alone("pipeline", "pipeline")) == 0);
  recipe = small_recipe();
  recipe.strategy.name = "model_parallel";
  CHECK(std::ranges::count(make_plan(recipe, cpus(1), 256).notes, alone("model_parallel", "tensor")) == 1);
}

TEST_CASE("the names of other tools mean the same sizes, with a note") {
  const auto spelled = [](const std::string& line) {
    RecipePlace place("[strategy]\nname = \"ddp\"\n" + line + "\n");
    const auto recipe = place.load();
    return std::pair(meshes(recipe, cpus(4)), recipe.notes);
  };
  const std::string divided = "data 2 x tensor 2; { tensor = 2 }";
  for (const char* name : {"tensor_model_parallel_size", "tensor_parallel_degree", "tp", "tp_size", "autotp_size"}) {
    INFO(name);
    const auto [mesh, notes] = spelled(fmt::format("{} = 2", name));
    CHECK(mesh == divided);
    CHECK(notes == std::vector{fmt::format("`{}`: read as strategy.tensor_parallel_size = 2", name)});
  }
  CHECK(spelled("tp = 2\ndp = 2").first == "data 2 x tensor 2; { data = 2, tensor = 2 }");
  CHECK(RecipePlace("tp_size = 2\nstrategy = \"ddp\"\n").load().strategy.tensor_parallel_size == 2);
  CHECK(RecipePlace("", "[devices]\ntp_size = 2\n").load().strategy.tensor_parallel_size == 2);

  const auto divides_rows = [](const std::string& line) {
    return RecipePlace("[strategy]\nname = \"ddp\"\n" + line + "\n").load().strategy.sequence_parallel;
  };
  CHECK(divides_rows("") == std::nullopt);
  CHECK(divides_rows("enable_sequence_parallel = false") == false);
  CHECK(divides_rows("tp_mode = \"REDUCE_SCATTER\"") == true);
  CHECK(divides_rows("tp_mode = \"all_reduce\"") == false);

  const auto hybrid = RecipePlace("[strategy]\nname = \"fsdp\"\ndevice_mesh = [2, 4]\n").load();
  CHECK(hybrid.devices.mesh == MeshSizes{.replicate = 2, .shard = 4});
}

TEST_CASE("the names of other tools for a context axis and its forms") {
  const auto loaded = [](const std::string& lines) {
    return RecipePlace("[strategy]\nname = \"ddp\"\n" + lines + "\n").load();
  };
  for (const char* name : {"context_parallel_degree", "cp", "cp_size", "context_parallel_size"}) {
    INFO(name);
    CHECK(meshes(loaded(fmt::format("{} = 2", name)), cpus(4)) == "data 2 x context 2; { context = 2 }");
  }
  using Row = std::pair<const char*, const char*>;
  for (const auto& [given, form] : {Row{"p2p", "ring"}, Row{"all_gather", "gather"}, Row{"a2a", "ulysses"}})
    CHECK(loaded(fmt::format("cp_comm_type = \"{}\"", given)).strategy.context_parallel == form);
  const auto deepspeed = loaded("sequence_parallel_size = 2");
  CHECK(deepspeed.strategy.context_parallel_size == 2);
  CHECK(deepspeed.strategy.context_parallel == "ulysses");
  CHECK(RecipePlace("[strategy]\nname = \"ddp\"\ncontext_parallel_size = 2\ncp_comm_type = \"a2a+p2p\"\n").wrong() ==
        "recipe.toml:4:1: error: `cp_comm_type` cannot be \"a2a+p2p\": forms are gather, ring or ulysses\n"
        "    4 | cp_comm_type = \"a2a+p2p\"\n"
        "      | ^~~~~~~~~~~~");
}

TEST_CASE("a context axis that the model or the strategy cannot have is refused") {
  auto recipe = with_mesh({.context = 3}, "single");
  CHECK(make_plan(recipe, cpus(3), 256).part->seq_len * 3 >= make_plan(recipe, cpus(3), 256).model->seq_len);
  recipe.strategy.context_parallel = "ulysses";
  CHECK(problem(recipe, cpus(3)) ==
        "mesh: a context axis of 3 ranks: 3 ranks cannot share 4 heads, as the form \"ulysses\" does; sizes that work: "
        "1, "
        "2, 4");
  CHECK(refusal(with_mesh({.context = 2}, "lua:topk"), cpus(4)).starts_with("a comm hook or a strategy in Lua"));
  const auto shared = [](const MeshSizes& sizes, int ranks) {
    return to_text(mesh_of_plan(make_plan(with_mesh(sizes, "fsdp"), cpus(ranks), 256)));
  };
  CHECK(shared({.shard = 1, .context = 2}, 2) == "shard 2");
  CHECK(shared({.shard = 2, .context = 2}, 4) == "shard 4");
  CHECK(shared({.replicate = 2, .shard = 2, .context = 2}, 8) == "replicate 4 x shard 2");
  recipe = with_mesh({.data = 2});
  recipe.strategy.context_parallel = "ring";
  CHECK(std::ranges::count(make_plan(recipe, cpus(2), 256).notes,
                           "`context_parallel`: nothing to do here: it needs a context axis with several ranks") == 1);
  CHECK(problem(with_mesh({.context = 4}), cpus(6)) ==
        "mesh: the run has 6 ranks, which is no multiple of the 4 of mesh = { context = 4 }; sizes that work, one "
        "at a time: context = 1, context = 2, context = 3 or context = 6");
}

TEST_CASE("the default group of HYBRID_SHARD is the ranks of a node that share parameters") {
  const auto of_plan = [](const MeshSizes& sizes, const Topology& topology) {
    auto recipe = with_mesh(sizes, "fsdp");
    recipe.strategy.options = {{"sharding_strategy", "HYBRID_SHARD"}};
    return to_text(mesh_of_plan(make_plan(recipe, topology, 256)));
  };
  CHECK(of_plan({}, cpus(4, 2)) == "replicate 2 x shard 4");
  CHECK(of_plan({.tensor = 2}, cpus(4, 2)) == "replicate 2 x shard 2 x tensor 2");
  CHECK(of_plan({.context = 2}, cpus(4, 2)) == "replicate 2 x shard 4");
  CHECK(of_plan({.context = 4}, cpus(4, 2)) == "replicate 2 x shard 4");
  CHECK(of_plan({.context = 2, .tensor = 2}, cpus(4, 2)) == "replicate 2 x shard 2 x tensor 2");
}

TEST_CASE("the sizes remain if another strategy replaces that of the recipe") {
  RecipePlace place("[strategy]\nname = \"fsdp\"\nsharding_strategy = \"FULL_SHARD\"\ntensor_parallel_size = 2\n");
  const auto recipe = place.load({"strategy=ddp"});
  CHECK(recipe.strategy.tensor_parallel_size == 2);
  CHECK(recipe.notes == std::vector<std::string>{"the strategy \"ddp\" replaces \"fsdp\", so these have no effect: "
                                                 "strategy.sharding_strategy (" +
                                                 (place.folder.path / "recipe.toml").string() + ":3:1)"});
}

TEST_CASE("a configuration of DeepSpeed gives the size of the tensor axis") {
  const auto size = [](const std::string& block) {
    return RecipePlace(
               "[strategy]\nname = \"deepspeed\"\nconfig = { zero_optimization = { stage = 1 }, tensor_parallel = " +
               block + " }\n")
        .load()
        .strategy.tensor_parallel_size;
  };
  CHECK(size("{ autotp_size = 2 }") == 2);
  CHECK(size("{ tp = { tp_size = 4 } }") == 4);
  CHECK(size("{ autotp_size = 0 }") == std::nullopt);
}

TEST_CASE("model_parallel has Lightning's sizes: the devices of a node, and the nodes") {
  auto recipe = small_recipe();
  recipe.strategy.name = "ModelParallelStrategy";
  CHECK(meshes(recipe, cpus(4)) == "tensor 4; { tensor = 4 }");
  CHECK(meshes(recipe, cpus(4, 2)) == "data 2 x tensor 4; { tensor = 4 }");
  const auto plan = make_plan(recipe, cpus(4, 2), 256);
  CHECK(plan.recipe.strategy.name == "model_parallel");
  CHECK(plan.recipe.strategy.options == nlohmann::json{{"save_distributed_checkpoint", true}});
  CHECK(to_text(mesh_of_plan(plan)) == "shard 2 x tensor 4");
  CHECK(!plan.entry->plan(plan.job).saves_whole);
  recipe.strategy.options = {{"save_distributed_checkpoint", false}};
  const auto whole = make_plan(recipe, cpus(4, 2), 256);
  CHECK(whole.entry->plan(whole.job).saves_whole);
  recipe.strategy.tensor_parallel_size = 2;
  CHECK(meshes(recipe, cpus(4, 2)) == "data 4 x tensor 2; { tensor = 2 }");
  recipe.strategy.data_parallel_size = 3;
  CHECK(problem(recipe, cpus(4, 2)) ==
        "mesh: the run has 8 ranks, not the 6 of data_parallel_size = 3 and tensor_parallel_size = 2; sizes that "
        "work, one at a time: data = 4");
  recipe.strategy.tensor_parallel_size = {};
  CHECK(
      problem(recipe, cpus(4, 2)) ==
      "mesh: the run has 8 ranks, not the 12 of data_parallel_size = 3 and tensor_parallel_size = 4 (the devices of a "
      "node); sizes that work, one at a time: data = 2");
  recipe.strategy.data_parallel_size = {};
  recipe.devices.mesh = MeshSizes{.shard = 8};
  CHECK(meshes(recipe, cpus(4, 2)) == "data 8; { shard = 8 }");
  recipe.devices.mesh = {};
  CHECK(problem(recipe, cpus(3)) ==
        "mesh: a tensor axis of 3 ranks: 3 ranks cannot share 4 heads with 4 key heads; sizes that work: 1, 2, 4");
}

TEST_CASE("model_parallel shards the data axis as fsdp does") {
  auto recipe = with_mesh({.tensor = 2}, "model_parallel");
  const auto own = make_plan(recipe, cpus(8), 256);
  recipe.strategy.name = "fsdp";
  const auto fsdp = make_plan(recipe, cpus(8), 256);
  CHECK(own.memory.total() == fsdp.memory.total());
  CHECK(own.to_json().at("traffic") == fsdp.to_json().at("traffic"));
}

TEST_CASE("sizes that do not multiply to the number of ranks are refused with sizes that do") {
  CHECK(problem(with_mesh({.tensor = 4}), cpus(6)) ==
        "mesh: the run has 6 ranks, which is no multiple of the 4 of mesh = { tensor = 4 }; sizes that work, one "
        "at a time: tensor = 1 or tensor = 2");
  CHECK(
      problem(with_mesh({.shard = 2, .tensor = 2}, "fsdp"), cpus(8)) ==
      "mesh: the run has 8 ranks, not the 4 of mesh = { shard = 2, tensor = 2 }; sizes that work, one at a time: shard "
      "= 4 or tensor = 4");
  CHECK(problem(with_mesh({.replicate = 2, .shard = 4}, "fsdp"), cpus(1)) ==
        "mesh: the run has 1 rank, not the 8 of mesh = { replicate = 2, shard = 4 }");
  auto recipe = small_recipe();
  recipe.strategy = {.name = "ddp", .tensor_parallel_size = 2, .data_parallel_size = 2};
  CHECK(problem(recipe, cpus(6)) ==
        "mesh: the run has 6 ranks, not the 4 of data_parallel_size = 2 and tensor_parallel_size = 2; sizes that "
        "work, one at a time: data = 3");
  recipe.strategy.tensor_parallel_size = Recipe::automatic;
  CHECK(problem(recipe, cpus(4)) ==
        "mesh: the run has 4 ranks, not the 8 of data_parallel_size = 2 and tensor_parallel_size = 4 (the devices of a "
        "node); sizes that work, one at a time: data = 1 or tensor = 2");
}

TEST_CASE("a mesh that is complete decides how many ranks are started") {
  const auto ranks = [](const std::string& tail) {
    const auto devices = devices_of(RecipePlace("strategy = \"fsdp\"\n", tail).load());
    return std::to_string(devices.cpu_processes) + " or " + write_devices(devices.devices);
  };
  CHECK(ranks("[devices]\nmesh = { shard = 2, tensor = 2 }\n") == "4 or 4");
  CHECK(ranks("[devices]\nmesh = { tensor = 2 }\n") == "2 or \"auto\"");
  CHECK(ranks("[devices]\nmesh = { shard = 2, tensor = 2 }\nnum_nodes = 2\n") == "2 or 2");
  CHECK(ranks("[devices]\nmesh = { shard = 2, tensor = 2 }\nnum_nodes = 3\n") == "1 or \"auto\"");
  CHECK(ranks("[devices]\nmesh = { shard = 2, tensor = 2 }\ndevices = 8\n") == "1 or 8");
  CHECK(ranks("[devices]\nmesh = { shard = 2, tensor = 2 }\ncpu_processes = 8\naccelerator = \"cpu\"\n") ==
        "8 or \"auto\"");
  CHECK(ranks("[devices]\nmesh = { shard = 1 }\n") == "1 or \"auto\"");

  // The same for the recipe in the folder of a run, from which the run continues: it has the default of cpu_processes.
  const RecipePlace place("strategy = \"fsdp\"\n",
                          "[devices]\naccelerator = \"cpu\"\nmesh = { shard = 2, tensor = 2 }\n");
  place.write("recipe.toml", print_recipe(place.load()));
  CHECK(devices_of(place.load()).cpu_processes == 4);
  CHECK(devices_of(place.load({"devices.mesh={tensor=2}"})).cpu_processes == 2);
  CHECK(devices_of(place.load({"devices.mesh.tensor=4"})).cpu_processes == 8);
  // A printed recipe contains cpu_processes = 1, the default, and trains on the same ranks.
  CHECK(ranks("[devices]\nmesh = { tensor = 2 }\ncpu_processes = 1\n") == "2 or \"auto\"");
  const std::string on_cpu = "[devices]\nmesh = { shard = 2, tensor = 2 }\naccelerator = \"cpu\"\n";
  const auto recipe = RecipePlace("strategy = \"fsdp\"\n", on_cpu).load();
  const auto again = parse_recipe(print_recipe(recipe), "again.toml", {}, reader_help());
  CHECK(devices_of(recipe).cpu_processes == 4);
  CHECK(devices_of(again).cpu_processes == 4);
  CHECK(write_devices(devices_of(again).devices) == write_devices(devices_of(recipe).devices));
  CHECK(devices_of(place.load({"devices.cpu_processes=1"})).cpu_processes == 1);

  // On a machine with too few accelerators, the message is about the mesh and not about a number that nobody wrote.
  const auto four = with_mesh({.shard = 2, .tensor = 2}, "fsdp");
  CHECK(write_devices(devices_of(four, 8).devices) == "4");
  CHECK(write_devices(devices_of(four, 3).devices) == "\"auto\"");
}

TEST_CASE("both forms of the mesh must agree") {
  const auto said = [](const std::string& strategy, const std::string& mesh) {
    return RecipePlace("[strategy]\nname = \"fsdp\"\n" + strategy, "[devices]\nmesh = " + mesh + "\n").wrong();
  };
  CHECK(said("tensor_parallel_size = 2\n", "{ tensor = 2 }").empty());
  CHECK(said("tensor_parallel_size = 2\ndata_parallel_size = 4\n", "{ shard = 4 }").empty());
  CHECK(said("tensor_parallel_size = 4\n", "{ tensor = 2 }") ==
        "recipe.toml:3:24: error: tensor_parallel_size = 4, but devices.mesh has tensor = 2\n"
        "    3 | tensor_parallel_size = 4\n"
        "      |                        ^\n"
        "recipe.toml:18:8: note: the mesh is set here\n"
        "   18 | mesh = { tensor = 2 }\n"
        "      |        ^~~~~~~~~~~~~~");
  CHECK(said("data_parallel_size = 4\n", "{ replicate = 3, shard = 2 }")
            .starts_with(
                "recipe.toml:3:22: error: data_parallel_size = 4, but devices.mesh has replicate x shard = 6\n"));
}

TEST_CASE("the ranks of a tensor axis have parts of the model and read the same data") {
  auto recipe = with_mesh({.tensor = 2});
  recipe.train.global_batch_size = 16;
  const auto plan = make_plan(recipe, cpus(4), 256);
  CHECK(plan.model->division == TensorDivision());
  CHECK(plan.part->division == TensorDivision{.ranks = 2, .rank = 0});
  CHECK(plan.job.model == plan.part.get());
  const auto parameters = [](const ModelSpec& model, int64_t vocab) { return model.parameter_count() - vocab * 64; };
  CHECK(plan.model->parameter_count() == make_plan(small_recipe(), cpus(1), 256).model->parameter_count());
  CHECK(plan.part->parameter_count() < plan.model->parameter_count());
  // Norms, positions and the biases of row-parallel matrices are whole.
  int64_t whole = 0;
  for (const auto* one : plan.part->parameters())
    if (!one->split) whole += one->numel();
  CHECK(2 * parameters(*plan.part, 128) - whole == parameters(*plan.model, 256));
  CHECK(plan.job.data_ranks() == 2);
  CHECK(plan.job.micro_batch_size == 8);
  CHECK(plan.job.accumulation == 1);
  CHECK(plan.to_json().at("parameters") == plan.model->parameter_count());

  recipe.strategy.sequence_parallel = false;
  CHECK(make_plan(recipe, cpus(4), 256).part->division ==
        TensorDivision{.ranks = 2, .rank = 0, .sequence_parallel = false});
}

TEST_CASE("a rank of a tensor axis of two makes half of the products") {
  const auto whole = make_plan(with_mesh({}, "single"), cpus(1), 256),
             half = make_plan(with_mesh({.tensor = 2}, "single"), cpus(2), 256);
  REQUIRE(half.job.micro_batch_size == whole.job.micro_batch_size);
  const auto work = [](const Plan& plan, Work kind) {
    return step_work(plan.job, nullptr, plan.memory, {}).at(static_cast<size_t>(kind));
  };
  for (const auto kind : {Work::product_flops, Work::logits}) CHECK(2 * work(half, kind) == work(whole, kind));
}

TEST_CASE("each rank has the part of its coordinate") {
  const Mesh mesh(8, {{.axis = Axis::data, .size = 2}, {.axis = Axis::tensor, .size = 4}});
  auto recipe = small_recipe();
  CHECK(division_of(recipe, mesh, 0) == TensorDivision{.ranks = 4, .rank = 0});
  CHECK(division_of(recipe, mesh, 3) == TensorDivision{.ranks = 4, .rank = 3});
  CHECK(division_of(recipe, mesh, 6) == TensorDivision{.ranks = 4, .rank = 2});
  CHECK(division_of(recipe, data_mesh(8), 5) == TensorDivision());
}

TEST_CASE("replicate and shard in the mesh are groups of the strategy") {
  const MeshSizes both{.replicate = 2, .shard = 2, .tensor = 2};
  const auto fsdp = make_plan(with_mesh(both, "fsdp"), cpus(8), 256);
  CHECK(fsdp.recipe.strategy.options.at("sharding_strategy") == "HYBRID_SHARD");
  CHECK(fsdp.recipe.strategy.options.at("hybrid_group_size") == 2);
  CHECK(to_text(mesh_of_plan(fsdp)) == "replicate 2 x shard 2 x tensor 2");
  const auto zero = make_plan(with_mesh(both, "zero"), cpus(8), 256);
  CHECK(zero.recipe.strategy.options.at("mics_shard_size") == 2);
  CHECK(to_text(mesh_of_plan(zero)) == "replicate 2 x shard 2 x tensor 2");
  CHECK(to_text(mesh_of_plan(make_plan(with_mesh({.shard = 4}, "fsdp"), cpus(4), 256))) == "shard 4");
  CHECK(to_text(mesh_of_plan(make_plan(with_mesh({.replicate = 4}, "ddp"), cpus(4), 256))) == "replicate 4");

  CHECK(problem(with_mesh(both, "ddp"), cpus(8)) ==
        "refused: the mesh has replicate = 2 and shard = 2, but ddp has replicate = 4 and shard = 1; `fsdp` or `zero` "
        "can have both");
  CHECK(problem(with_mesh({.replicate = 4}, "fsdp"), cpus(4)) ==
        "refused: the mesh has replicate = 4 and shard = 1, but fsdp FULL_SHARD has replicate = 1 and shard = 4; data "
        "= 4 takes what the strategy has");
  auto against = with_mesh(both, "fsdp");
  against.strategy.options = {{"sharding_strategy", "FULL_SHARD"}};
  CHECK(problem(against, cpus(8)) ==
        "contradiction: sharding_strategy = \"FULL_SHARD\", but devices.mesh means sharding_strategy = "
        "\"HYBRID_SHARD\"");
}

TEST_CASE("hybrid groups are by default the data ranks of a node") {
  auto recipe = with_mesh({.tensor = 2}, "fsdp");
  recipe.strategy.options = {{"sharding_strategy", "HYBRID_SHARD"}};
  CHECK(to_text(mesh_of_plan(make_plan(recipe, cpus(4, 2), 256))) == "replicate 2 x shard 2 x tensor 2");
}

TEST_CASE("a model whose matrices cannot be divided is refused at the key of the mesh") {
  CHECK(problem(with_mesh({.tensor = 3}), cpus(3)) ==
        "mesh: a tensor axis of 3 ranks: 3 ranks cannot share 4 heads with 4 key heads; sizes that work: 1, 2, 4");
  CHECK(RecipePlace("[strategy]\nname = \"ddp\"\ntensor_parallel_size = 8\n").wrong() ==
        "recipe.toml:3:24: error: a tensor axis of 8 ranks: 8 ranks cannot share 4 heads with 4 key heads; sizes that "
        "work: 1, 2, 4\n"
        "    3 | tensor_parallel_size = 8\n"
        "      |                        ^");
  // The key of another size is not meant.
  CHECK(RecipePlace("[devices]\nmesh = { tensor = 8 }\n[strategy]\nname = \"ddp\"\npipeline_parallel_size = 2\n")
            .wrong()
            .starts_with("recipe.toml:2:8: error: a tensor axis of 8 ranks: "));
}

TEST_CASE("what needs complete parameters is refused with a tensor axis") {
  auto recipe = with_mesh({.tensor = 2});
  recipe.optimizer.name = "muon";
  CHECK(refusal(recipe, cpus(2)) ==
        "optimizer.name = \"muon\" needs complete parameters, so it cannot be combined with a tensor axis "
        "(tensor_parallel_size above 1): take adamw, adam, sgd, lion or schedule_free_adamw");
  recipe.optimizer.name = "adamw_8bit";
  CHECK(refusal(recipe, cpus(2)).starts_with("optimizer.name = \"adamw_8bit\" needs blocks of complete parameters"));
  recipe = with_mesh({.tensor = 2});
  recipe.strategy.options = {{"ddp_comm_hook", "lua:topk"}};
  CHECK(refusal(recipe, cpus(4)).starts_with("a comm hook or a strategy in Lua reduces gradients of complete"));
  CHECK(refusal(with_mesh({.tensor = 2}, "lua:topk"), cpus(4)).starts_with("a comm hook or a strategy in Lua"));
  CHECK(refusal(with_mesh({.tensor = 1}, "lua:topk"), cpus(4)).empty());
}

TEST_CASE("notes say when sequence parallelism has no effect and when a tensor axis leaves its node") {
  auto recipe = with_mesh({.data = 2});
  recipe.strategy.sequence_parallel = true;
  CHECK(std::ranges::count(make_plan(recipe, cpus(2), 256).notes,
                           "`sequence_parallel`: nothing to do here: it needs a tensor axis with several ranks") == 1);
  const std::string far =
      "the tensor axis of 4 ranks spans nodes of 2 devices: its ranks communicate several times in each layer, over "
      "the network; it is fast within a node";
  CHECK(std::ranges::count(make_plan(with_mesh({.tensor = 4}), cpus(2, 2), 256).notes, far) == 1);
  CHECK(std::ranges::count(make_plan(with_mesh({.tensor = 4}), cpus(4), 256).notes, far) == 0);
}

TEST_CASE("auto chooses for the data axis, with the memory of a part of the model") {
  auto recipe = with_mesh({.tensor = 2}, "auto");
  CHECK(make_plan(recipe, cpus(2), 256).entry->name == "single");
  const auto divided = make_plan(recipe, cpus(4), 256), whole = make_plan(small_recipe(), cpus(2), 256);
  CHECK(divided.entry->name == "ddp");
  CHECK(divided.reason ==
        "118.5 k parameters are under 500M and there are 2 devices, where ranks that read the same data count "
        "as one");
  CHECK(divided.memory.optimizer < whole.memory.optimizer);
  CHECK(divided.memory.optimizer > whole.memory.optimizer / 2);
  recipe.devices.mesh = MeshSizes{.shard = 2, .tensor = 2};
  const auto sharded = make_plan(recipe, cpus(4), 256);
  CHECK(mesh_of_plan(sharded).size(Axis::shard) == 2);
  CHECK(sharded.reason ==
        "118.5 k parameters are under 500M and there are 2 devices, where ranks that read the same data count as one; "
        "ddp cannot run: the mesh has replicate = 1 and shard = 2, but ddp has replicate = 2 and shard = 1; data = 2 "
        "takes what the strategy has");
}
