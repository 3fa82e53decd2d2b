// Names of other tools: read as our keys, accepted with a note, or refused with the key to use; also in [strategy].
#include "runner/config/foreign_names.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"
#include "runner/selection/strategy_options.hpp"

using namespace runner;
using nlohmann::json;

namespace {

const std::string rest = R"([model]
name = "gpt"
n_layers = 2
dim = 64
n_heads = 4
max_seq_len = 32
[data]
format = "text"
train = ["a.txt"]
[train]
max_steps = 10
)";

Recipe read_foreign(const std::string& more, const std::vector<std::string>& overrides = {}) {
  return parse_recipe(more + rest, "recipe.toml", overrides, reader_help());
}

std::string wrong(const std::string& more, const std::vector<std::string>& overrides = {}) {
  try {
    read_foreign(more, overrides);
  } catch (const RecipeError& error) {
    return error.diagnostics().at(0).message;
  }
  return "nothing";
}

std::string suggested(const std::vector<std::string>& overrides) {
  try {
    read_foreign("", overrides);
  } catch (const RecipeError& error) {
    return error.diagnostics().at(0).suggestion.value_or("nothing");
  }
  return "no error";
}

}  // namespace

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

TEST_CASE("torchrun's nnodes is a number of nodes, or makes the run elastic") {
  CHECK(read_foreign("[devices]\nnnodes = 4\n").devices.num_nodes == 4);
  CHECK_FALSE(read_foreign("[devices]\nnnodes = \"4\"\n").devices.elastic());
  const auto devices = read_foreign("[devices]\nnnodes = \"2:4\"\n").devices;
  CHECK(devices.min_nodes == 2);
  CHECK(devices.max_nodes == 4);
  CHECK(devices.num_nodes == 4);
  for (const char* value : {"\"2:\"", "\"2:3:4\"", "\"two\"", "\"0:2\"", "true"})
    CHECK(wrong(std::string("[devices]\nnnodes = ") + value + "\n")
              .find("it is a number of nodes, or \"MIN:MAX\" for an elastic run") != std::string::npos);
  CHECK(wrong("[devices]\nmin_np = 2\n").find("Horovod counts processes, and devices.min_nodes counts nodes") !=
        std::string::npos);
}

TEST_CASE("the numbers of nodes of an elastic run have defaults") {
  const auto nodes = [](const std::string& lines) {
    const auto devices = read_foreign("[devices]\n" + lines).devices;
    return std::vector<int64_t>{devices.elastic(), devices.least_nodes(), devices.num_nodes, devices.most_nodes()};
  };
  CHECK(nodes("num_nodes = 3\n") == std::vector<int64_t>{0, 3, 3, 3});
  CHECK(nodes("max_nodes = 4\n") == std::vector<int64_t>{1, 1, 1, 4});
  CHECK(nodes("min_nodes = 2\n") == std::vector<int64_t>{1, 2, 2, 2});
  CHECK(nodes("min_nodes = 2\nnum_nodes = 3\n") == std::vector<int64_t>{1, 2, 3, 3});
  CHECK(nodes("min_nodes = 2\nmax_nodes = 4\nnum_nodes = 3\n") == std::vector<int64_t>{1, 2, 3, 4});
}

TEST_CASE("switches of other tools for a mesh are accepted as they are here, and refused otherwise") {
  const auto says = [](const std::string& line) {
    const auto text = "[strategy]\nname = \"fsdp\"\n" + line + "\n";
    const auto why = wrong(text);
    if (why != "nothing") return why;
    const auto notes = read_foreign(text).notes;
    return notes.empty() ? "no note" : notes.front();
  };
  CHECK(says("disable_loss_parallel = false") ==
        "`disable_loss_parallel`: ranks of a tensor axis always divide the vocabulary, also in the loss");
  CHECK(
      says("enable_loss_parallel = false") ==
      "`enable_loss_parallel` cannot be false: ranks of a tensor axis always divide the vocabulary, also in the loss");
  CHECK(says("ep = 1") == "`ep`: there are no models with experts, so there is no axis for them");
  CHECK(says("expert_parallel_degree = 2") ==
        "`expert_parallel_degree` cannot be 2: there are no models with experts, so there is no axis for them");
  CHECK(says("virtual_pipeline_model_parallel_size = 2") ==
        "`virtual_pipeline_model_parallel_size`: read as strategy.virtual_stages = 2");
  CHECK(says("pipeline_parallel_microbatch_size = 2") ==
        "`pipeline_parallel_microbatch_size`: read as train.micro_batch_size = 2");
  CHECK(says("num_pp_microbatches = 2") ==
        "`num_pp_microbatches` is not an option here: train.micro_batch_size is the number of sequences of a "
        "micro-batch, and train.accumulate_grad_batches the number of micro-batches of a step");
  CHECK(says("use_distributed_optimizer = true") ==
        "`use_distributed_optimizer` is not an option here: it is stage 1 of ZeRO, a strategy of its own (runner "
        "strategies)");
  CHECK(
      says("data_parallel_shard_degree = -1") ==
      "`data_parallel_shard_degree` is not an option here: it is `shard` of devices.mesh = { replicate = 2, shard = 4 "
      "}; leave both out for what the other axes leave over (torchtitan's -1)");
  CHECK(says("decoder_first_pipeline_num_layers = 2") ==
        "`decoder_first_pipeline_num_layers` is not an option here: strategy.stages has the numbers of blocks of the "
        "stages, or their first blocks");
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

TEST_CASE("a device of another tool has no guess, and an unknown key of a group is named") {
  try {
    read_foreign("", {"devices.accelerator=tpu"});
  } catch (const RecipeError& error) {
    CHECK(std::string(error.what()).find("did you mean") == std::string::npos);
  }
  CHECK(wrong("", {"optimizer.groups=[{pattern=\"*\", wd=0.1}]"}) == "the group \"*\" has no `wd`");
  CHECK(wrong("", {"optimizer.groups=[{pattern=\"*\", lr=\"x\"}]"}) ==
        "`lr` of the group \"*\" must be a number, not \"x\"");
  CHECK(wrong("", {"optimizer.groups=[{pattern=\"*\"}]"}) ==
        "the group \"*\" sets none of lr, lr_factor, weight_decay, name and the options of an optimizer");
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

TEST_CASE("options of data loaders and trainers are accepted in the sections where users write them") {
  auto recipe = read_foreign(R"(sync_batchnorm = true
use_distributed_sampler = true
profiler = "simple"
)");
  CHECK(recipe.notes.size() == 3);
  for (const std::string value : {"true", "false"}) {
    const auto ignored = read_foreign("sync_batchnorm = " + value + "\n");
    CHECK(ignored.notes ==
          std::vector<std::string>{"`sync_batchnorm`: ignored: only resnet has batch normalization, and "
                                   "its key is model.sync_batchnorm"});
    const auto images = parse_recipe(
        "[model]\nname = \"resnet\"\n[data]\nformat = \"images\"\ntrain = [\"a\"]\n[train]\nmax_steps = "
        "1\nsync_batchnorm = " +
            value + "\n",
        "recipe.toml");
    CHECK(images.model.sync_batchnorm == (value == "true"));
    CHECK(images.notes == std::vector<std::string>{"`sync_batchnorm`: read as model.sync_batchnorm = " + value});
  }
  auto loader = parse_recipe(rest + "persistent_workers = true\nnum_workers = 4\npin_memory = true\n", "recipe.toml");
  REQUIRE(loader.notes.size() == 3);
  CHECK(loader.notes[0] == "`num_workers`: read as data.num_workers = 4");
  CHECK(loader.data.num_workers == 4);
  CHECK(read_foreign("use_distributed_sampler = false\n").notes.at(0).find("data.order = \"FILE.lua\"") !=
        std::string::npos);
}

TEST_CASE("a name whose counterpart has another form is refused, and the error names the counterpart") {
  auto in_ddp = [](const std::string& option) { return wrong("[strategy]\nname = \"ddp\"\n" + option + "\n"); };
  CHECK(in_ddp("activation_checkpointing = [\"Block\"]").find("activation_checkpointing_policy") != std::string::npos);
  CHECK(in_ddp("checkpoint_io = \"MyIO\"").find("checkpoint.async") != std::string::npos);
  CHECK(wrong("", {"strategy={name=\"zero\",zero_optimization=false}"}).find("name = \"ddp\"") != std::string::npos);
}

TEST_CASE("arguments of Lightning's Trainer and ModelCheckpoint are answered with their counterpart") {
  auto recipe = read_foreign(R"(check_val_every_n_epoch = 1
num_sanity_val_steps = 2
enable_checkpointing = true
enable_progress_bar = false
enable_model_summary = false
inference_mode = true
detect_anomaly = false
barebones = false
[checkpoint]
mode = "max"
)");
  CHECK(recipe.notes.size() == 9);
  struct Row {
    const char *given, *answer;
  };
  for (const auto& [given, answer] : {Row{"check_val_every_n_epoch=5", "train.val_check_interval"},
                                      {"overfit_batches=10", "data.train"},
                                      {"limit_test_batches=3", "runner evaluate RUN --limit N"},
                                      {"sampler=x", "data.order = \"FILE.lua\""},
                                      {"accelerator=MyAccelerator", "plugins.accelerator"},
                                      {"checkpoint_io=MyIO", "plugins.checkpoint_io"},
                                      {"output_dir=out", "RUNNER_HOME"},
                                      {"min_epochs=3", "train.early_stopping"},
                                      {"min_steps=3", "train.early_stopping"},
                                      {"reload_dataloaders_every_n_epochs=1", "data.shuffle"},
                                      {"detect_anomaly=true", "train.on_nonfinite"},
                                      {"enable_checkpointing=false", "checkpoint.save_at_end = false"},
                                      {"default_root_dir=out", "RUNNER_HOME"},
                                      {"barebones=true", "run.fast_dev_run"},
                                      {"logger=tensorboard", "runner metrics"},
                                      {"callbacks=[]", "[hooks]"},
                                      {"plugins=[]", "devices.cluster"},
                                      {"model_registry=x", "runner export"},
                                      {"ckpt_path=last", "runner resume"},
                                      {"tpu_cores=8", "devices.devices"},
                                      {"collate_fn=f", "data.seq_len"},
                                      {"save_weights_only=true", "runner export"},
                                      {"filename=best", "checkpoints/step-000100"},
                                      {"stopping_threshold=1.0", "ctx:stop"},
                                      {"ignored_modules=[]", "model.frozen"},
                                      {"exclude_frozen_parameters=true", "model.frozen"},
                                      {"process_group=x", "hybrid_group_size"},
                                      {"process_set=x", "ctx.world:group"},
                                      {"process_sets=x", "ctx.world:group"},
                                      {"checkpoint.filename=best", "checkpoints/step-000100"},
                                      {"checkpoint.dirpath=out", "RUNNER_HOME"},
                                      {"checkpoint.every_n_epochs=1", "checkpoint.every_n_steps"}}) {
    INFO(given);
    const bool anywhere = !std::string(given).starts_with("checkpoint.");
    for (const std::string section : {"", "train."})
      if (anywhere || section.empty()) CHECK(wrong("", {section + given}).find(answer) != std::string::npos);
  }
  CHECK(read_foreign("", {"activation_checkpointing.partition_activations=true"}).notes.size() == 1);
  for (const char* given : {"data.filename=a.txt", "run.verbose=true", "data.amp=true", "model.flatten=true"})
    CHECK(wrong("", {given}).starts_with("unknown key `"));
  CHECK(suggested({"train.limit_train_batches=5"}) == "train.max_steps");
  CHECK(suggested({"train.precision=bf16-mixed"}) == "precision.mode");
  CHECK(suggested({"train.strategy=ddp"}) == "strategy.name");
  CHECK(suggested({"train.optimizer=adamw"}) == "optimizer.name");
  CHECK(read_foreign("", {"scale_batch_size=power"}).train.micro_batch_size == Recipe::automatic);
  CHECK(read_foreign("", {"train.per_device_eval_batch_size=4"}).notes.size() == 1);
  for (const char* name : {"deterministic", "benchmark", "fast_dev_run"})
    CHECK(suggested({fmt::format("train.{}=1", name)}) == fmt::format("run.{}", name));
  CHECK(suggested({"log_every_n_steps=5"}) == "train.log_every_n_steps");
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
  CHECK(wrong("[strategy]\nname = \"ddp_sharded\"\nbroadcast_fp16 = true\n").find("masters stay in float32") !=
        std::string::npos);
  const auto fully = read_foreign(
      "[strategy]\nname = \"ddp_fully_sharded\"\nreshard_after_forward = false\nmove_params_to_cpu = true\n"
      "flatten_parameters = true\nfp32_reduce_scatter = true\nstate_dict_to_cpu = true\n");
  CHECK(fully.strategy.options == json{{"sharding_strategy", "SHARD_GRAD_OP"}, {"cpu_offload", true}});
  CHECK(wrong("[strategy]\nname = \"ddp_fully_sharded\"\ncompute_dtype = \"float16\"\n").find("param_dtype") !=
        std::string::npos);
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

TEST_CASE("a name of another tool sets the key with the same meaning, and an error names both") {
  auto recipe = read_foreign("", {"seed_everything=7", "auto_scale_batch_size=power",
                                  "checkpoint.train_time_interval=30m", "activation_checkpointing=true"});
  CHECK(recipe.run.seed == 7);
  CHECK(recipe.train.micro_batch_size == Recipe::automatic);
  CHECK(recipe.checkpoint.every == std::chrono::minutes(30));
  CHECK(recipe.activation_checkpointing.mode == "all");
  CHECK(read_foreign("", {"activation_checkpointing=all"}).activation_checkpointing.mode == "all");
  CHECK(wrong("precision_plugin = \"MixedPrecision\"\n") ==
        "`precision_plugin` cannot be \"MixedPrecision\": it is a mode such as bf16-mixed; plugins.precision = "
        "\"FILE.so\" is one of your own");
  CHECK(wrong("cluster_environment = \"MyEnvironment\"\n") ==
        "`cluster_environment` cannot be \"MyEnvironment\": it is a launcher such as slurm; "
        "plugins.cluster_environment = \"FILE.lua\" is one of your own");
  CHECK(wrong("cluster_environment = \"MPI\"\n") ==
        "`cluster_environment` means devices.cluster: `cluster` cannot be \"MPI\"");
  CHECK(wrong("", {"train.early_stopping={monitor=\"val_loss\",check_finite=true}"}) ==
        "early_stopping has no `check_finite`: leave it out: train.on_nonfinite determines what happens when a loss is "
        "not "
        "finite");
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
  CHECK(wrong(in_zero("zero_hpz_partition_size = 8")).find("mics_shard_size") != std::string::npos);
  CHECK(wrong(in_zero("torch_autocast = true")).starts_with("`torch_autocast` is not an option here: "));
}

TEST_CASE("foreign names stay ordinary options in a strategy in Lua") {
  auto recipe = read_foreign("[strategy]\nname = \"lua:mine.lua\"\nop = \"max\"\nalgorithm = \"own\"\n");
  CHECK(recipe.strategy.options == json{{"op", "max"}, {"algorithm", "own"}});
}

TEST_CASE("choices are accepted in any letter case, and clusters also with Lightning's names") {
  for (auto [given, meant] : {std::pair{"TorchElastic", "torchrun"},
                              {"SLURM", "slurm"},
                              {"SLURMEnvironment", "slurm"},
                              {"LSF", "lsf"},
                              {"Kubeflow", "kubeflow"},
                              {"LightningEnvironment", "local"}})
    CHECK(read_foreign("", {std::string("devices.cluster=") + given}).devices.cluster == meant);
  CHECK(read_foreign("", {"optimizer=AdamW"}).optimizer.name == "adamw");
  CHECK(wrong("", {"devices.process_group_backend=mpi"}) ==
        "LibTorch is built without the \"mpi\" backend; \"gloo\" connects CPU ranks, \"nccl\" CUDA devices");
}

TEST_CASE("every foreign name gives a note or an error, and every key that it stands for exists") {
  for (const char* name : {"parallel_devices",
                           "cluster_environment",
                           "checkpoint_io",
                           "precision_plugin",
                           "accelerator",
                           "device",
                           "logging_level",
                           "sync_batchnorm",
                           "num_workers",
                           "pin_memory",
                           "persistent_workers",
                           "profiler",
                           "use_distributed_sampler",
                           "ddp_comm_state",
                           "broadcast_buffers",
                           "zero_allow_untested_optimizer",
                           "logging_batch_size_per_gpu",
                           "start_method",
                           "learning_rate",
                           "d_model"}) {
    INFO(name);
    const auto* foreign = find_foreign_name(name, find_argument);
    REQUIRE(foreign);
    CHECK((foreign->only_suggested || !foreign->note.empty() || !foreign->refusal.empty() || foreign->meaning));
    bool option = foreign->key.starts_with("strategy.");
    CHECK((foreign->key.empty() || option || find_key(foreign->key)));
  }
  CHECK(key_meant_by("learning_rate") == "optimizer.lr");
  CHECK(key_meant_by("lr") == "optimizer.lr");
  CHECK_FALSE(key_meant_by("nonsense"));
}
