// Names of other tools: read as our keys, accepted with a note, or refused with the key to use.
#include "runner/config/foreign_names.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/text.hpp"
#include "runner/config/key_table.hpp"
#include "tests/config/foreign_support.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

TEST_CASE("torchrun's nnodes is a number of nodes, or makes the run elastic") {
  CHECK(read_foreign("[devices]\nnnodes = 4\n").devices.num_nodes == 4);
  CHECK_FALSE(read_foreign("[devices]\nnnodes = \"4\"\n").devices.elastic());
  const auto devices = read_foreign("[devices]\nnnodes = \"2:4\"\n").devices;
  CHECK(devices.min_nodes == 2);
  CHECK(devices.max_nodes == 4);
  CHECK(devices.num_nodes == 4);
  for (const char* value : {"\"2:\"", "\"2:3:4\"", "\"two\"", "\"0:2\"", "true"})
    CHECK_THAT(wrong(std::string("[devices]\nnnodes = ") + value + "\n"),
               ContainsSubstring("it is a number of nodes, or \"MIN:MAX\" for an elastic run"));
  CHECK_THAT(wrong("[devices]\nmin_np = 2\n"),
             ContainsSubstring("Horovod counts processes, and devices.min_nodes counts nodes"));
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
  auto loader =
      parse_recipe(small_recipe + "persistent_workers = true\nnum_workers = 4\npin_memory = true\n", "recipe.toml");
  REQUIRE(loader.notes.size() == 3);
  CHECK(loader.notes[0] == "`num_workers`: read as data.num_workers = 4");
  CHECK(loader.data.num_workers == 4);
  CHECK_THAT(read_foreign("use_distributed_sampler = false\n").notes.at(0),
             ContainsSubstring("data.order = \"FILE.lua\""));
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
  for (const auto& [given, answer] : {std::pair{"check_val_every_n_epoch=5", "train.val_check_interval"},
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
  const auto suggested = [](const std::string& given) {
    return first_mistake("", {given}).suggestion.value_or("nothing");
  };
  CHECK(suggested("train.limit_train_batches=5") == "train.max_steps");
  CHECK(suggested("train.precision=bf16-mixed") == "precision.mode");
  CHECK(suggested("train.strategy=ddp") == "strategy.name");
  CHECK(suggested("train.optimizer=adamw") == "optimizer.name");
  CHECK(read_foreign("", {"scale_batch_size=power"}).train.micro_batch_size == Recipe::automatic);
  CHECK(read_foreign("", {"train.per_device_eval_batch_size=4"}).notes.size() == 1);
  for (const char* name : {"deterministic", "benchmark", "fast_dev_run"})
    CHECK(suggested(fmt::format("train.{}=1", name)) == fmt::format("run.{}", name));
  CHECK(suggested("log_every_n_steps=5") == "train.log_every_n_steps");
}

TEST_CASE("sections and switches of loggers are read as [logging], or refused with its lines") {
  const auto recipe = read_foreign("[wandb]\nproject = \"p\"\nentity = \"me\"\n");
  CHECK(recipe.logging.loggers == std::vector<std::string>{"wandb"});
  CHECK(recipe.logging.wandb_project == "p");
  CHECK(recipe.logging.wandb_entity == "me");
  REQUIRE(recipe.notes.size() == 1);
  CHECK(recipe.notes[0] ==
        "`wandb`: read as logging.loggers = [\"wandb\"], logging.wandb_entity = \"me\", logging.wandb_project = \"p\"; "
        "the ledger keeps every step in any case");
  CHECK(read_foreign("", {"logging.tensorboard=true"}).logging.loggers == std::vector<std::string>{"tensorboard"});
  CHECK(read_foreign("[mlflow]\nuri = \"http://127.0.0.1:5000\"\n").logging.mlflow_uri == "http://127.0.0.1:5000");
  CHECK(read_foreign("[csv_monitor]\nenabled = false\n").logging.loggers.empty());
  CHECK(wrong("[wandb]\nproject = \"p\"\ngroup = \"g\"\n") ==
        "`wandb` cannot be { group = \"g\", project = \"p\" }: in a recipe: logging.loggers = [\"wandb\"], "
        "logging.wandb_entity = \"...\", logging.wandb_project = \"...\"");
  for (const char* name : {"comet", "neptune", "aim", "clearml"})
    CHECK_THAT(
        wrong(std::string("[") + name + "]\nproject = \"p\"\n"),
        ContainsSubstring("cannot be { project = \"p\" }: logging.loggers has csv, tensorboard, mlflow and wandb"));
}

TEST_CASE("keys of training scripts are answered with the key, hook or strategy that has them") {
  const auto answer = [](const std::string& given) {
    const auto first = first_mistake("", {given});
    return first.suggestion.value_or(first.message) + " | " + first.other_message;
  };
  const std::vector<std::pair<std::string, std::string>> answers = {
      {"train.ema=true", "hooks.files | hooks.files = [\"ema\"] averages the weights"},
      {"train.swa=true", "hooks.files | hooks.files = [\"swa\"]"},
      {"train.z_loss=1e-4", "hooks.files | hooks.files = [\"label_smoothing\"] has it: z_loss = 1e-4 in"},
      {"train.compile=true", "strategy.name | strategy.name = \"xla\" compiles the whole step"},
      {"train.amp=true", "precision.mode | precision.mode = \"bf16-mixed\""},
      {"train.ddp=true", "strategy.name | in a recipe: strategy.name = \"ddp\""},
      {"train.mixed_precision=bf16", "precision.mode | in a recipe: precision.mode = \"bf16-mixed\""},
      {"train.clip_grad_norm=1.0", "train.gradient_clip_val | in a recipe: train.gradient_clip_val = 1.0"},
      {"optimizer.clip=1.0", "train.gradient_clip_val | in a recipe: train.gradient_clip_val = 1.0"},
      {"train.grad_accum=2", "train.accumulate_grad_batches | in a recipe: train.accumulate_grad_batches = 2"},
      {"train.eval_every=5", "train.val_check_interval | in a recipe: train.val_check_interval = 5"},
      {"checkpoint.save_every=5", "checkpoint.every_n_steps | in a recipe: checkpoint.every_n_steps = 5"},
      {"checkpoint.steps=5", "checkpoint.every_n_steps | in a recipe: checkpoint.every_n_steps = 5"},
      {"train.checkpointing_steps=5", "checkpoint.every_n_steps | in a recipe: checkpoint.every_n_steps = 5"},
      {"eval.every=5", "train.val_check_interval | [train] has the keys of validations; train.val_check_interval is"},
      {"logging.every_n_steps=5", "train.log_every_n_steps | in a recipe: train.log_every_n_steps = 5"},
      {"train.every=5", "`train.every` is not an option here: train.log_every_n_steps is the number of steps between"},
      {"run.every=5", "checkpoint.every | checkpoint.every: `every` must be a duration such as \"30m\" or"},
      {"train.print_every=5", "train.print_every_n_steps | in a recipe: train.print_every_n_steps = 5"},
      {"checkpoint.keep=3", "checkpoint.keep_last | in a recipe: checkpoint.keep_last = 3"},
      {"logging.log_every=5", "train.log_every_n_steps | in a recipe: train.log_every_n_steps = 5"},
      {"optimizer.warmup=5", "lr_scheduler.warmup_steps | in a recipe: lr_scheduler.warmup_steps = 5"},
      {"optimizer.beta1=0.9", "optimizer.betas | it is the first item of optimizer.betas"},
      {"lr_scheduler.min_lr=1e-5", "lr_scheduler.min_lr_ratio | lr_scheduler.min_lr_ratio is a part of optimizer.lr"},
      {"train.patience=3", "train.early_stopping | it is `patience` of train.early_stopping = { monitor"},
      {"data.path=a.txt", "data.train | in a recipe: data.train = [\"a.txt\"]"},
      {"data.max_seq_len=8", "data.seq_len | in a recipe: data.seq_len = 8"},
      {"model.type=gpt", "model.name | in a recipe: model.name = \"gpt\""},
      {"model.num_experts=8", "`num_experts` cannot be 8: there are no models with experts | "},
      {"train.resume=true", "`resume` cannot be true: `runner resume RUN` continues a run"},
      {"checkpoint.dir=x", "`checkpoint.dir` is not an option here: runs are in the nearest .runner"},
  };
  for (const auto& [given, wanted] : answers) {
    INFO(given);
    CHECK_THAT(answer(given), StartsWith(wanted));
  }
  CHECK(read_foreign("", {"train.profile=true"}).run.profiler == "trace");
}

TEST_CASE("a section of another tool is reported once for several --set of its keys") {
  std::vector<std::string> messages;
  try {
    read_foreign("", {"trainer.max_epochs=2", "trainer.precision=bf16-mixed"});
  } catch (const RecipeError& error) {
    for (const auto& diagnostic : error.diagnostics()) messages.push_back(diagnostic.message);
  }
  CHECK(messages == std::vector<std::string>{"unknown section `trainer`", "unknown key `max_epochs` in [trainer]",
                                             "unknown key `precision` in [trainer]"});
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
        "not finite");
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
  for (const auto& name :
       split("parallel_devices cluster_environment checkpoint_io precision_plugin accelerator device logging_level "
             "sync_batchnorm num_workers pin_memory persistent_workers profiler use_distributed_sampler ddp_comm_state "
             "broadcast_buffers zero_allow_untested_optimizer logging_batch_size_per_gpu start_method learning_rate "
             "d_model",
             ' ')) {
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
