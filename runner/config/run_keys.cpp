// The keys of [run], [strategy], [selection], [hooks] and [plugins].
#include "runner/base/text.hpp"
#include "runner/config/key_adder.hpp"
#include "strategies/mesh/mesh.hpp"
#include "strategies/pipeline/schedule.hpp"

// The rows of the tables are wrapped by hand.
// clang-format off

namespace runner::keys {

using nlohmann::json;

namespace {

std::string refused_dev_run(const json& value) {
  if (!value.is_boolean()) return "";
  return fmt::format("`fast_dev_run` cannot be {}: it is a number of steps; {}", value_text(value),
                     value == true ? "1 for Lightning's True" : "0 for Lightning's False");
}

/// The division of a model into stages, by numbers of blocks or by names of blocks.
std::optional<std::string> stages_problem(json& value) {
  if (value == "balanced") return std::nullopt;
  if (!value.is_array() || value.empty()) return "";
  const bool named = value[0].is_string();
  for (auto& item : value)
    if (named ? !item.is_string() : !to_integer(item) || item < 1) return "";
  return std::nullopt;
}

std::optional<GivenStages> stages_from(const json& value) {
  if (value.is_string()) return std::nullopt;
  if (value[0].is_string()) return value.get<std::vector<std::string>>();
  return value.get<std::vector<int>>();
}

std::optional<std::string> whole_numbers(json& steps) {
  for (auto& step : steps)
    if (!to_integer(step)) return "";
  return std::nullopt;
}

}  // namespace

void add_run(std::vector<Key>& keys) {
  Adder add(keys, "run", &Recipe::run);
  using R = Recipe::Run;
  add({.name = "name", .type = T::text, .help = "Name of the run in listings. Default: a memorable one, like quiet-otter-12."}, &R::name);
  add({.name = "seed", .type = T::integer, .help = "Determines initial weights, sample order and dropout.",
       .minimum = 0}, &R::seed);
  add({.name = "deterministic", .type = T::boolean,
       .help = "Refuse operations that are not deterministic."}, &R::deterministic);
  add({.name = "benchmark", .type = T::boolean,
       .help = "Let cuDNN choose its algorithms by measuring them."}, &R::benchmark);
  add({.name = "fast_dev_run", .type = T::integer,
       .help = "If above 0: run this many optimizer steps and validation batches, and keep nothing.",
       .minimum = 0, .refuses = refused_dev_run}, &R::fast_dev_run);
  add({.name = "tags", .type = T::texts, .help = "Words by which the run can be found."}, &R::tags);
  add({.name = "notes", .type = T::text, .help = "Free text for the ledger."}, &R::notes);
  add({.name = "group", .type = T::text, .help = "Runs of one group are listed and compared together."}, &R::group);
  add({.name = "profiler", .type = T::choice,
       .help = "Measures where the time goes. simple: a table of phases, blocks and collectives at the end of the run and in runner "
               "show. trace: the table, and trace.json in the run's folder for Perfetto, with what each rank does in the steps of "
               "profile_steps. On GPUs the host waits for the device after each block, so steps take longer.",
       .choices = {"off", "simple", "trace"}, .spellings = {{"pytorch", "trace"}}}, &R::profiler);
  add({.name = "profile_steps", .type = T::numbers,
       .help = "The steps in the trace. Default: the third and the fourth of each attempt.",
       .minimum = 1, .wanted = "a list of step numbers", .fits = whole_numbers}, &R::profile_steps,
      {.needs = {.key = "run.profiler", .values = {"trace"}}});
}

void add_strategy(std::vector<Key>& keys) {
  Adder add(keys, "strategy", &Recipe::strategy);
  using S = Recipe::Strategy;
  add({.name = "name", .type = T::text,
       .help = "Name or alias of a strategy (see runner strategies), or \"auto\"."}, &S::name);
  add.or_auto({.name = "tensor_parallel_size",
               .help = "The same as tensor in devices.mesh. \"auto\": the devices of a node. Default: 1, with model_parallel and no "
                       "devices.mesh \"auto\".",
               .minimum = 1, .maximum = 512}, &S::tensor_parallel_size, Recipe::automatic);
  add({.name = "pipeline_parallel_size", .type = T::integer,
       .help = "The same as pipeline in devices.mesh. Default: 1, with strategy.name = \"pipeline\" all ranks that are left over.",
       .minimum = 1, .maximum = 512}, &S::pipeline_parallel_size);
  add({.name = "context_parallel_size", .type = T::integer,
       .help = "The same as context in devices.mesh: the number of ranks that divide the tokens of each row. Default: 1.",
       .minimum = 1, .maximum = 512}, &S::context_parallel_size);
  add.or_auto({.name = "data_parallel_size",
               .help = "The same as data in devices.mesh. Default: \"auto\", the ranks that are left over.",
               .minimum = 1, .maximum = 65536}, &S::data_parallel_size, Recipe::automatic);
  add({.name = "sequence_parallel", .type = T::boolean,
       .help = "Ranks of the tensor axis also divide the rows between the matrix products, which saves memory. Default: true."},
      &S::sequence_parallel);
  add({.name = "context_parallel", .type = T::choice,
       .help = "How ranks of the context axis compute attention. gather: each gathers all keys and values. ring: keys and values go from "
               "rank to rank. ulysses: each gathers all tokens of some heads. Default: gather.",
       .choices = context_form_names()}, &S::context_parallel);
  add({.name = "virtual_stages", .type = T::integer,
       .help = "Stages of each rank of a pipeline. With more than 1, ranks wait less and send more. Default: 1.",
       .minimum = 1, .maximum = 64}, &S::virtual_stages);
  add({.name = "pipeline_schedule", .type = T::choice,
       .help = "The order in which the ranks of a pipeline compute micro-batches. Default: 1f1b, with several virtual_stages "
               "interleaved_1f1b.",
       .choices = pipeline_schedule_names()}, &S::pipeline_schedule);
  add.add({.name = "stages", .type = T::other,
           .help = "The blocks of each stage of a pipeline: \"balanced\" (the default: equal times, if they fit the memory), numbers of "
                   "blocks such as [4, 6], or the first block of each stage such as [\"embedding\", \"blocks.2\"]. A layer is two blocks.",
           .wanted = "\"balanced\", a list of numbers of blocks from 1, or a list of the first blocks", .fits = stages_problem},
          {.schema = {{"anyOf", {{{"enum", {"balanced"}}}, {{"type", "array"}, {"items", {{"type", "integer"}, {"minimum", 1}}}},
                                 {{"type", "array"}, {"items", {{"type", "string"}}}}}}}},
          [](S& strategy, const json& value) { strategy.stages = stages_from(value); },
          [](const S& strategy) {
            return strategy.stages ? std::visit([](const auto& list) { return json(list); }, *strategy.stages) : json();
          });
}

void add_selection(std::vector<Key>& keys) {
  Adder add(keys, "selection", &Recipe::selection);
  using S = Recipe::Selection;
  add({.name = "policy", .type = T::choice,
       .help = "How strategy = \"auto\" chooses. documented: the rule table, unless its choice does not fit; fastest: "
               "lowest predicted step time, unless the documented choice is at most 5 % slower; smallest: least memory; "
               "offload: DeepSpeed with offloading, for the "
               "largest model or micro-batch.",
       .choices = {"documented", "fastest", "smallest", "offload"}}, &S::policy);
  add({.name = "prefer", .type = T::choice,
       .help = "Whether \"auto\" uses FSDP or DeepSpeed's ZeRO where both do the same.",
       .choices = preferences()}, &S::prefer);
}

void add_hooks(std::vector<Key>& keys) {
  Adder add(keys, "hooks", &Recipe::hooks);
  using H = Recipe::Hooks;
  add({.name = "files", .type = T::paths,
       .help = "Lua files. They are called in this order. Paths are relative to the recipe, and a bare name is a "
               "shipped hook. The options of each hook are in [hooks.NAME]."}, &H::files);
  add({.name = "trusted", .type = T::boolean,
       .help = "Run hooks without the sandbox: they may use all of Lua's libraries (files, processes)."}, &H::trusted);
  add({.name = "on_error", .type = T::choice,
       .help = "What to do when a hook fails: stop the run, or continue without the hook. A hook that has changed "
               "parameters always stops the run.", .choices = {"stop", "disable"}}, &H::on_error);
  add({.name = "memory_limit", .type = T::bytes, .help = "Limit on the memory of all hooks of a rank together.",
       .minimum = 1 << 20}, &H::memory_limit);
  add({.name = "instruction_limit", .type = T::integer, .help = "Limit on the Lua instructions in one call of a hook.",
       .minimum = 1000}, &H::instruction_limit);
  add({.name = "time_limit", .type = T::number,
       .help = "Limit on the seconds of one call of a hook, without the time that the trainer needs for it.",
       .minimum = 0, .above_minimum = true}, &H::time_limit);
}

namespace {

std::optional<std::string> no_file(nlohmann::json& value) {
  return value == "" ? std::optional<std::string>("") : std::nullopt;
}

}  // namespace

void add_plugins(std::vector<Key>& keys) {
  Adder add(keys, "plugins", &Recipe::plugins);
  using P = PluginPaths;
  add({.name = "cluster_environment", .type = T::path,
       .help = "Says where the ranks of the job run, instead of devices.cluster: a library, or a .lua file.",
       .wanted = "the file of a library, or a .lua file", .fits = no_file},
      &P::cluster_environment, {.quiet = true});
  add({.name = "checkpoint_io", .type = T::path,
       .help = "A second place for checkpoints, such as an object store: a library, or a .lua file with "
               "hooks.trusted.",
       .wanted = "the file of a library, or a .lua file", .fits = no_file},
      &P::checkpoint_io, {.quiet = true});
  add({.name = "precision", .type = T::path,
       .help = "Dtypes, and what the computation gets of each parameter, instead of precision.mode: a library.",
       .wanted = "the file of a library", .fits = no_file},
      &P::precision, {.quiet = true});
  add({.name = "accelerator", .type = T::path,
       .help = "The devices that ranks compute on, instead of devices.accelerator: a library.",
       .wanted = "the file of a library", .fits = no_file},
      &P::accelerator, {.quiet = true});
  add({.name = "options", .type = T::other,
       .help = "The options of these plug-ins: numbers, strings, true, false, and lists.",
       .wanted = "a table such as { bucket = \"/mnt/store\" }", .fits = not_a_table}, &P::options,
      {.quiet = true, .schema = {{"type", "object"}}});
}

}  // namespace runner::keys
