// Names of other tools in [strategy]: options of their strategies, and settings that are in another section here.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "tests/config/foreign_support.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

TEST_CASE("names of Lightning in [strategy] are read as the corresponding keys") {
  auto recipe = read_foreign(R"([strategy]
name = "ddp"
parallel_devices = ["cuda:0", "cuda:3"]
cluster_environment = "SLURM"
precision_plugin = "bf16-mixed"
accelerator = "gpu"
activation_checkpointing = true
)");
  CHECK(recipe.devices.devices.indices == std::vector<int>{0, 3});
  CHECK(recipe.devices.cluster == "slurm");
  CHECK(recipe.precision.mode == "bf16-mixed");
  CHECK(recipe.devices.accelerator == "cuda");
  CHECK(recipe.activation_checkpointing.mode == "all");
  CHECK(recipe.strategy.options.empty());
  CHECK(recipe.origin("devices.cluster").line == 4);
  REQUIRE(recipe.notes.size() == 5);
  CHECK(recipe.notes[4] == "`precision_plugin`: read as precision.mode = \"bf16-mixed\"");
}

TEST_CASE("switches of other tools for a mesh are accepted as they are here, and refused otherwise") {
  const auto says = [](const std::string& line) {
    const auto text = "[strategy]\nname = \"fsdp\"\n" + line + "\n";
    const auto why = wrong(text);
    if (why != "nothing") return why;
    const auto notes = read_foreign(text).notes;
    return notes.empty() ? "no note" : notes.front();
  };
  const std::vector<std::pair<std::string, std::string>> answers = {
      {"disable_loss_parallel = false",
       "`disable_loss_parallel`: ranks of a tensor axis always divide the vocabulary, also in the loss"},
      {"enable_loss_parallel = false",
       "`enable_loss_parallel` cannot be false: ranks of a tensor axis always divide the vocabulary, also in the loss"},
      {"ep = 1", "`ep`: there are no models with experts, so there is no axis for them"},
      {"expert_parallel_degree = 2",
       "`expert_parallel_degree` cannot be 2: there are no models with experts, so there is no axis for them"},
      {"virtual_pipeline_model_parallel_size = 2",
       "`virtual_pipeline_model_parallel_size`: read as strategy.virtual_stages = 2"},
      {"pipeline_parallel_microbatch_size = 2",
       "`pipeline_parallel_microbatch_size`: read as train.micro_batch_size = 2"},
      {"num_pp_microbatches = 2",
       "`num_pp_microbatches` is not an option here: train.micro_batch_size is the number of sequences of a "
       "micro-batch, and train.accumulate_grad_batches the number of micro-batches of a step"},
      {"use_distributed_optimizer = true",
       "`use_distributed_optimizer` is not an option here: it is stage 1 of ZeRO, a strategy of its own (runner "
       "strategies)"},
      {"data_parallel_shard_degree = -1",
       "`data_parallel_shard_degree` is not an option here: it is `shard` of devices.mesh = { replicate = 2, shard = 4 "
       "}; leave both out for what the other axes leave over (torchtitan's -1)"},
      {"decoder_first_pipeline_num_layers = 2",
       "`decoder_first_pipeline_num_layers` is not an option here: strategy.stages has the numbers of blocks of the "
       "stages, or their first blocks"}};
  for (const auto& [line, answer] : answers) CHECK(says(line) == answer);
}

TEST_CASE("activation_checkpointing_policy accepts layer classes or block names") {
  auto settings = [](const std::string& policy) {
    return read_foreign("[strategy]\nname = \"fsdp\"\nactivation_checkpointing_policy = " + policy + "\n")
        .activation_checkpointing;
  };
  CHECK(settings("[\"nn.TransformerEncoderLayer\", \"GPTBlock\"]").mode == "all");
  CHECK(settings("\"TransformerBlock\"").mode == "all");
  auto named = settings("[\"blocks.0\"]");
  CHECK(named.mode == "named");
  CHECK(named.blocks == std::vector<std::string>{"blocks.0"});
  CHECK(wrong("[strategy]\nname = \"fsdp\"\nactivation_checkpointing_policy = 3\n") ==
        "`activation_checkpointing_policy` cannot be 3: it is a list of layer classes such as "
        "[\"TransformerEncoderLayer\"], or of block names");
}

TEST_CASE("DeepSpeed's switches for activation checkpointing are read in [strategy]") {
  auto recipe = read_foreign(
      "[strategy]\nname = \"deepspeed\"\nactivation_checkpointing = true\ncpu_checkpointing = true\n"
      "partition_activations = true\n");
  CHECK(recipe_to_json(recipe).at("activation_checkpointing").at("cpu_checkpointing") == true);
  CHECK(recipe.strategy.options.empty());
  CHECK(recipe.notes.size() == 3);
}

TEST_CASE("another tool's name must not contradict our key in the same file, and a higher layer overrides it") {
  const std::string four = "[strategy]\nname = \"ddp\"\nparallel_devices = 4\n";
  CHECK(read_foreign(four + "[devices]\ndevices = 4\n").devices.devices.count == 4);
  CHECK(wrong(four + "[devices]\ndevices = 2\n") ==
        "`parallel_devices` means devices.devices = 4, and devices.devices = 2");
  CHECK(read_foreign(four, {"devices=2"}).devices.devices.count == 2);
  CHECK(read_foreign("devices = 2\n", {"strategy.parallel_devices=3"}).devices.devices.count == 3);
}

TEST_CASE("a new strategy name drops the values that options of the old one set") {
  const std::string fsdp = "[strategy]\nname = \"fsdp\"\nactivation_checkpointing = true\npersistent_workers = true\n";
  CHECK(read_foreign(fsdp).notes.size() == 2);
  auto ddp = read_foreign(fsdp, {"strategy=ddp"});
  CHECK(ddp.activation_checkpointing.mode == "none");
  CHECK(ddp.notes == std::vector<std::string>{"the strategy \"ddp\" replaces \"fsdp\", so these have no effect: "
                                              "activation_checkpointing.mode (recipe.toml:3:1)"});
  CHECK(read_foreign("[strategy]\ncpu_offload = true\n", {"strategy=fsdp"}).notes ==
        std::vector<std::string>{"the strategy \"fsdp\" replaces \"auto\", so these have no effect: "
                                 "strategy.cpu_offload (recipe.toml:2:1)"});
  CHECK(read_foreign("[strategy]\ncpu_offload = true\n", {"strategy=auto"}).strategy.options.size() == 1);
  auto same = read_foreign(fsdp, {"strategy=FSDP"});
  CHECK(same.activation_checkpointing.mode == "all");
  CHECK(same.notes.size() == 2);
}

TEST_CASE("a name whose counterpart has another form is refused, and the error names the counterpart") {
  auto in_ddp = [](const std::string& option) { return wrong("[strategy]\nname = \"ddp\"\n" + option + "\n"); };
  CHECK_THAT(in_ddp("activation_checkpointing = [\"Block\"]"), ContainsSubstring("activation_checkpointing_policy"));
  CHECK_THAT(in_ddp("checkpoint_io = \"MyIO\""), ContainsSubstring("checkpoint.async"));
  CHECK_THAT(wrong("", {"strategy={name=\"zero\",zero_optimization=false}"}), ContainsSubstring("name = \"ddp\""));
}

TEST_CASE("options of Horovod and Bagua are read as our options") {
  auto recipe = read_foreign(
      "[strategy]\nname = \"horovod\"\nop = \"Average\"\ncompression = \"fp16\"\n"
      "backward_passes_per_step = 2\n");
  CHECK(recipe.strategy.options == json{{"op", "Average"}, {"compression", "fp16"}});
  CHECK(recipe.train.accumulate_grad_batches == AccumulationSchedule{{0, 2}});
  auto bagua = read_foreign("[strategy]\nname = \"bagua\"\nalgorithm = \"gradient_allreduce\"\nflatten = true\n");
  CHECK(bagua.strategy.options == json{{"algorithm", "gradient_allreduce"}});
  CHECK(read_foreign("", {"strategy={name=\"horovod\",compression=\"Compression.fp16\",groups=2,num_groups=2}"})
            .strategy.options == json{{"compression", "Compression.fp16"}});
  CHECK(wrong("groups = 2\n") == "unknown key `groups`");
  for (const std::string name : {"process_set", "process_sets"})
    CHECK(wrong("[strategy]\nname = \"horovod\"\n" + name + " = 1\n") ==
          "`" + name +
              "` is not an option here: process sets are named groups of ranks, which the function `setup` of a "
              "strategy in Lua makes: ctx.world:group(\"NAME\", {{0, 1}, {2, 3}}) has the collectives of "
              "ctx.world (recipes/strategies_lua/README.md)");
}

TEST_CASE("several device_ids are those of DataParallel, and one is that of a rank") {
  const auto devices = [](const std::string& strategy, const std::string& ids) {
    return read_foreign("[strategy]\nname = \"" + strategy + "\"\ndevice_ids = " + ids + "\n").devices.devices;
  };
  CHECK(devices("dp", "[0, 2]").indices == std::vector{0, 2});
  CHECK(devices("ddp", "[1]").kind == DeviceRequest::Kind::automatic);
}

TEST_CASE("options of FairScale are read as our options") {
  const auto sharded =
      read_foreign("[strategy]\nname = \"ddp_sharded\"\nreduce_fp16 = true\nreduce_buffer_size = 8388608\n");
  CHECK(sharded.strategy.options == json{{"communication_data_type", "fp16"}, {"reduce_bucket_size", 8388608}});
  CHECK(read_foreign("[strategy]\nname = \"ddp_sharded\"\nbroadcast_fp16 = false\n").strategy.options.empty());
  CHECK_THAT(wrong("[strategy]\nname = \"ddp_sharded\"\nbroadcast_fp16 = true\n"),
             ContainsSubstring("masters stay in float32"));
  const auto fully = read_foreign(
      "[strategy]\nname = \"ddp_fully_sharded\"\nreshard_after_forward = false\nmove_params_to_cpu = true\n"
      "flatten_parameters = true\nfp32_reduce_scatter = true\nstate_dict_to_cpu = true\n");
  CHECK(fully.strategy.options == json{{"sharding_strategy", "SHARD_GRAD_OP"}, {"cpu_offload", true}});
  CHECK_THAT(wrong("[strategy]\nname = \"ddp_fully_sharded\"\ncompute_dtype = \"float16\"\n"),
             ContainsSubstring("param_dtype"));
  CHECK(
      wrong("[strategy]\nname = \"ddp_fully_sharded\"\nprocess_group_reduce_scatter = 1\n") ==
      "`process_group_reduce_scatter` is not an option here: collectives of a rank follow one another in the group of "
      "all ranks; reductions overlap with backward without a group of their own");
}

TEST_CASE("broadcast_buffers is accepted, and its note says what happens to running statistics") {
  for (const std::string value : {"true", "false"}) {
    const auto recipe = read_foreign("[strategy]\nname = \"ddp\"\nbroadcast_buffers = " + value + "\n");
    CHECK(recipe.strategy.options.empty());
    CHECK(std::ranges::find(recipe.notes,
                            "`broadcast_buffers`: nothing to do: running statistics of BatchNorm follow the mean over "
                            "all ranks after each step, so they are equal on all ranks, also with false") !=
          recipe.notes.end());
  }
}

TEST_CASE("DeepSpeed's keys in [strategy] have the answers of the table of its keys") {
  auto in_zero = [](const std::string& option) { return "[strategy]\nname = \"zero\"\n" + option + "\n"; };
  auto recipe =
      read_foreign(in_zero("sparse_gradients = false\nwall_clock_breakdown = true\nelastic_checkpoint = true\n"
                           "number_checkpoints = 4\nlegacy_stage1 = true\n"));
  CHECK(recipe.strategy.options.empty());
  CHECK(recipe.notes.size() == 5);
  CHECK(wrong(in_zero("sparse_gradients = true")) ==
        "`sparse_gradients` cannot be true: gradients of embeddings are dense");
  CHECK_THAT(wrong(in_zero("zero_hpz_partition_size = 8")), ContainsSubstring("mics_shard_size"));
  CHECK(wrong(in_zero("torch_autocast = true")).starts_with("`torch_autocast` is not an option here: "));
}

TEST_CASE("foreign names stay ordinary options in a strategy in Lua") {
  auto recipe = read_foreign("[strategy]\nname = \"lua:mine.lua\"\nop = \"max\"\nalgorithm = \"own\"\n");
  CHECK(recipe.strategy.options == json{{"op", "max"}, {"algorithm", "own"}});
}
