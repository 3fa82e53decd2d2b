// `runner lua check`: a tiny training on two ranks calls the functions of a hook or of a strategy, also after a resume and an error.
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>

#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/tiny_training.hpp"
#include "runner/config/config.hpp"
#include "runner/launch/rank_logs.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/lua/bytecode.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/lua/known_metrics.hpp"
#include "runner/lua/strategy_file.hpp"
#include "runner/selection/plan.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

using nlohmann::json;

namespace {

// ---- the lines that ran

constexpr size_t lines_shown = 20;

std::string text_of(const std::string& script) {
  for (const auto* shipped : {&lua::shipped_hooks(), &lua::shipped_strategies()})
    if (const auto found = shipped->find(script); found != shipped->end()) return found->second;
  return read_file(script);
}

/// The lines that ran, of those that the states of the training noted as FILE:LINE.
std::set<int> lines_that_ran(const TinyTraining& training) {
  const std::string own = training.script().ends_with(".lua") ? training.script() : "/" + training.script() + ".lua";
  std::set<int> ran;
  if (!fs::exists(training.lines_file())) return ran;
  for (const auto& line : split(read_file(training.lines_file()), '\n'))
    if (const auto colon = line.rfind(':'); colon != std::string::npos && line.substr(0, colon).ends_with(own))
      ran.insert(std::atoi(line.c_str() + colon + 1));
  return ran;
}

/// Whether a line has more than the end of a block: the jump behind a block belongs to it.
bool has_words(const std::string& line) {
  std::string word;
  for (const char c : line + " ") {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      word += c;
    } else if (!word.empty() && word != "end" && word != "else") {
      return true;
    } else {
      word.clear();
    }
  }
  return false;
}

/// "8-9, 12"
std::string ranges_text(const std::set<int>& lines) {
  std::vector<std::string> parts;
  for (auto line = lines.begin(); line != lines.end();) {
    const int first = *line;
    int last = first;
    while (++line != lines.end() && *line == last + 1) last = *line;
    parts.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last));
  }
  return join(parts, ", ");
}

/// The lines of the training's script that never ran. `everything`: every line ran. `text`: the words for the report, such as "lines
/// that never ran: 8-9, 12".
struct ScriptLines {
  bool everything = false;
  std::string text;
};
ScriptLines describe_lines(const TinyTraining& training) {
  const std::string text = text_of(training.script());
  const auto code = lua::read_bytecode(lua::State().bytecode_of(text, training.script()));
  const auto ran = lines_that_ran(training);
  const auto source = split(text, '\n');
  std::set<int> never, undecided;
  for (const int line : code.runnable_lines())
    if (!ran.contains(line) && has_words(source.at(static_cast<size_t>(line) - 1))) never.insert(line);
  for (const int line : code.undecided_lines())
    if (ran.contains(line)) undecided.insert(line);
  if (!never.empty()) std::printf("never ran:\n");
  size_t shown = 0;
  for (const int line : never) {
    if (shown++ == lines_shown) {
      std::printf("  and %zu more\n", never.size() - lines_shown);
      break;
    }
    std::printf("  %d: %s\n", line, std::string(trim(source.at(static_cast<size_t>(line) - 1))).c_str());
  }
  std::fflush(stdout);
  std::string said = never.empty() ? "every line of it ran" : "lines that never ran: " + ranges_text(never);
  if (undecided.size() == 1)
    said += fmt::format(" (a condition in line {} decides whether a call there ran)", *undecided.begin());
  else if (!undecided.empty())
    said += fmt::format(" (conditions in lines {} decide whether calls there ran)", ranges_text(undecided));
  return {.everything = never.empty(), .text = said};
}

// ---- both kinds of scripts

/// A second hook, which ends the training with an error, so that on_exception is called.
const char* const failing_hook = "return {on_train_batch_end = function() error('an error, as a test') end}";

/// Trains, stops, and continues from the checkpoint.
struct Trained {
  int code = 0;
  int64_t first = 0, more = 0;  ///< steps before and after the stop
};
Trained train_twice(TinyTraining& training, int64_t steps) {
  Trained trained{.code = training.train(steps)};
  if (trained.code != 0) return trained;
  trained.first = training.steps_done();
  trained.code = training.train(2 * steps);
  if (trained.code == 0) trained.more = training.steps_done() - trained.first;
  return trained;
}

/// Prints the lines that never ran, and the result. `missing`: functions that were not called.
void conclude(const std::string& file, const TinyTraining& training, const Trained& trained,
              const std::vector<std::string>& missing = {}) {
  const auto lines = describe_lines(training);
  log::info("{} {}{}{}; two ranks trained {} with it, stopped, and continued from the checkpoint for {} more", file,
            missing.empty() && lines.everything ? "is fine: " : "has no error in what ran; ",
            missing.empty() ? "" : "not called: " + join(missing, ", ") + "; ", lines.text,
            counted(trained.first, "step"), trained.more);
}

// ---- hooks

/// The recipe, or an empty one, with this hook as the only hook, and the recipe's options for it.
Recipe recipe_for(const std::string& file, const std::string& recipe_file) {
  Recipe recipe;
  if (!recipe_file.empty()) recipe = load_whole_recipe(recipe_file, {});
  recipe.hooks.files = {file};
  recipe.hooks.on_error = "stop";
  recipe.train.early_stopping.reset();
  recipe.origins.erase("hooks.files");
  std::vector<Diagnostic> diagnostics;
  lua::State state;
  auto hook = lua::load_hook_file(state, {file, {}}, diagnostics);
  if (!hook) throw RecipeError(diagnostics);
  auto options = recipe.hooks.options.value(hook->name, json::object());
  recipe.hooks.options = json::object();
  if (!options.empty()) recipe.hooks.options[hook->name] = options;
  return recipe;
}

void describe(const lua::HookSet::Hook& hook) {
  std::printf("hook %s%s\n", hook.file.name.c_str(), hook.file.about.empty() ? "" : (": " + hook.file.about).c_str());
  for (const auto& option : hook.file.options)
    std::printf(
        "  %s = %s%s\n", option.name.c_str(),
        hook.option_values.contains(option.name) ? toml_value(hook.option_values[option.name]).c_str() : "(unset)",
        option.help.empty() ? "" : ("  # " + option.help).c_str());
  std::fflush(stdout);
}

/// Continues the training with a second hook that fails, so that on_exception is called. Returns whether the hook's on_exception
/// failed, or another error than that of the second hook happened.
bool fails_in_exception(TinyTraining& training, const std::string& hook, int64_t steps) {
  const auto failing = (training.folder() / "error_of_the_check.lua").string();
  write_file_atomic(failing, failing_hook);
  bool expected = false, failed = false;
  const int code =
      training.train(steps, {"hooks.files=" + json{training.script(), failing}.dump()}, [&](const std::string& line) {
        if (line.find(fmt::format("hook {} failed in on_exception", hook)) != std::string::npos) failed = true;
        const bool ours = line.find("error, as a test") != std::string::npos && line.starts_with("error: ");
        expected |= ours;
        return ours;
      });
  return failed || (code != 0 && !expected);
}

/// Prints how often each function of the hook was called, and the metrics. Returns the functions that were not called.
std::vector<std::string> describe_calls(const TinyTraining& training, const lua::HookSet::Hook& hook) {
  std::map<std::string, int64_t> calls;
  Ledger ledger(training.home(), Ledger::Mode::read);
  const auto run = ledger.find_run("last");
  const json shown = ledger.show(run);
  for (const auto& event : shown.at("events"))
    if (event.at("event") == "hook" && event.at("hook") == hook.file.name)
      for (const auto& [function, count] : event.at("calls").items()) calls[function] += count.get<int64_t>();
  std::vector<std::string> missing, functions(lua::moment_names().begin(), lua::moment_names().end());
  functions.push_back("loss");
  for (const auto& name : functions) {
    if (!hook.file.functions.contains(name)) continue;
    if (calls[name] > 0)
      std::printf("%s: %s\n", name.c_str(), counted(calls[name], "call").c_str());
    else
      missing.push_back(name);
  }
  for (const auto& name : ledger.metric_names(run)) {
    if (std::ranges::count(lua::trainer_metrics(), name)) continue;
    const auto points = ledger.points(run, name);
    const auto [step, value] = points.back();
    std::printf("  log %s = %s at step %lld, %s\n", name.c_str(), exact_metric_text(value).c_str(),
                static_cast<long long>(step), counted(static_cast<int64_t>(points.size()), "value").c_str());
  }
  for (const auto& artifact : shown.at("artifacts"))
    if (artifact.at("kind") == "artifact")
      std::printf("  artifact %s\n", fs::path(artifact.at("path").get<std::string>()).filename().c_str());
  std::fflush(stdout);
  return missing;
}

ExitCode check_hook(const std::string& file, const std::string& recipe_file) {
  const Recipe given = recipe_for(file, recipe_file);
  lua::HookSet hooks(given);
  const auto& hook = hooks.hooks().front();
  describe(hook);
  if (auto known = lua::known_metrics(given); !known.mistake.empty()) throw Error(ExitCode::run_failed, known.mistake);
  TinyTraining training(file);
  training.recipe.hooks = given.hooks;
  training.recipe.hooks.files = {training.script()};
  training.recipe.strategy.name = "fsdp";
  training.recipe.model.loss_chunk_tokens = given.model.loss_chunk_tokens;
  const int64_t steps = steps_to_train(hook.file.options, hook.option_values, 6);
  const auto trained = train_twice(training, steps);
  if (trained.code != 0) return static_cast<ExitCode>(trained.code);
  const bool failed =
      hook.file.functions.contains("on_exception") && fails_in_exception(training, hook.file.name, 2 * steps + 1);
  const auto missing = describe_calls(training, hook);
  if (failed) return ExitCode::run_failed;
  conclude(file, training, trained, missing);
  return ExitCode::done;
}

// ---- strategies

/// Whether a file returns the table of a strategy, or a bare name is that of a shipped strategy and not of a shipped hook.
bool is_strategy(const std::string& file) {
  if (lua::names_script(file)) return true;
  if (!file.ends_with(".lua")) return !lua::shipped_hooks().contains(file) && lua::shipped_strategies().contains(file);
  lua::State state;
  try {
    auto returned = state.load_file(file).reference;
    if (!returned.is_table()) return false;
    const auto& kind = lua::strategy_kind();
    for (const auto& key : state.keys(returned))  // hooks also have `setup` and `memory`
      if (key != "setup" && key != "memory" &&
          (std::ranges::count(kind.functions, key) || std::ranges::count(kind.fields, key)))
        return true;
  } catch (const Error&) {
    return false;  // the caller loads it as a hook, which reports the error
  }
  return false;
}

/// Takes the script limits of `recipe_file`, and its strategy options if it uses the same strategy.
void use_strategy(Recipe& recipe, const std::string& name, const std::string& recipe_file) {
  recipe.strategy.name = name;
  if (recipe_file.empty()) return;
  Recipe given = load_whole_recipe(recipe_file, {});
  if (given.strategy.name == name) recipe.strategy.options = given.strategy.options;
  recipe.hooks = given.hooks;
  recipe.hooks.files.clear();
  recipe.hooks.options = json::object();
}

void describe(const Entry& entry, const Recipe& recipe) {
  std::printf("strategy %s: %s\n", recipe.strategy.name.c_str(), entry.summary.c_str());
  Topology topology;
  topology.devices_per_node = 2;
  topology.cores = 2;
  Plan plan = make_plan(recipe, topology, 256);
  if (memory_known(entry))
    std::printf("  memory of %s parameters: %s a rank\n", format_parameters(plan.model->parameter_count()).c_str(),
                format_bytes(plan.memory.total()).c_str());
  for (const auto& part : plan.traffic)
    std::printf("  traffic of a step: %lld x %s, %s\n", static_cast<long long>(part.calls), part.collective.c_str(),
                format_bytes(part.payload_bytes).c_str());
  for (const auto& note : plan.notes) std::printf("  %s\n", note.c_str());
  std::fflush(stdout);
}

/// Prints the log of rank 0, which contains the output of the script.
void show_prints(const TinyTraining& training) {
  std::error_code none;
  for (const auto& run : fs::directory_iterator(fs::path(training.home()) / "runs", none)) {
    RankLogReader(0, run.path() / "logs" / "rank-0.log")
        .read(
            [](const RankLogLine& line) {
              if (!line.text.empty()) std::printf("  rank 0: %s\n", line.text.c_str());
            },
            /*to_end=*/true);
  }
}

ExitCode check_strategy(const std::string& given, const std::string& recipe_file) {
  const auto file = lua::names_script(given) ? given.substr(given.find(':') + 1) : given;
  TinyTraining training(file);
  Recipe& recipe = training.recipe;
  use_strategy(recipe, "lua:" + training.script(), recipe_file);
  std::vector<Diagnostic> diagnostics;
  const Entry* entry = learn_script_strategy(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  describe(*entry, recipe);
  const auto trained =
      train_twice(training, steps_to_train({entry->options.begin(), entry->options.end()}, recipe.strategy.options, 3));
  show_prints(training);
  if (trained.code == 0) conclude(file, training, trained);
  return static_cast<ExitCode>(trained.code);
}

/// Trains with the script in a temporary folder, and prints its options, the calls of a hook and the metrics that it logs, or the predicted
/// costs of a strategy. If `recipe_file` is given, takes the options and the script limits from it, and model.loss_chunk_tokens for a hook.
/// Throws RecipeError for mistakes in the file and its options. If the training fails, it prints the error, and its exit code is returned.
ExitCode check_script(const std::string& file, const std::string& recipe_file) {
  return is_strategy(file) ? check_strategy(file, recipe_file) : check_hook(file, recipe_file);
}

}  // namespace

Action setup_lua(CLI::App& app) {
  auto verb = std::make_shared<std::string>(), file = std::make_shared<std::string>(),
       recipe = std::make_shared<std::string>();
  app.add_option("verb", *verb, "check: trains a tiny model on two ranks with a hook or a strategy")
      ->required()
      ->check(CLI::IsMember({"check"}));
  app.add_option("file", *file, "The file of a hook or a strategy, or the name of a shipped one")->required();
  app.add_option("--recipe", *recipe, "Use the options and limits of this recipe");
  return [=, kept = verb] {  // keeps `verb` alive: the option is bound to it
    if (file->ends_with(".lua") && !fs::exists(*file)) throw usage_error("there is no file {}", *file);
    return check_script(*file, *recipe);
  };
}

}  // namespace runner
