#include "runner/commands/preflight.hpp"

#include <algorithm>

#include "runner/base/environment_text.hpp"
#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/adapter_files.hpp"
#include "runner/checkpoint/hf.hpp"
#include "runner/commands/checkpoint_plugin.hpp"
#include "runner/config/config.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/located_json.hpp"
#include "runner/config/model_families.hpp"
#include "runner/data/data.hpp"
#include "runner/data/data_check.hpp"
#include "runner/data/image_folder.hpp"
#include "runner/devices/devices.hpp"
#include "runner/launch/cluster_plugin.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/lua/known_metrics.hpp"
#include "runner/lua/script_file.hpp"
#include "runner/models/models.hpp"
#include "runner/report/recommendation.hpp"
#include "runner/selection/data_fit.hpp"
#include "runner/selection/precision_part.hpp"
#include "runner/selection/strategy_options.hpp"
#include "runner/sweep/lua_sweep.hpp"

namespace runner {

namespace {

std::string section_of(const std::string& key) { return key.substr(0, key.find('.')); }

void report(const Recipe& recipe, const std::string& key, const std::string& code, const std::string& message,
            std::vector<Diagnostic>& diagnostics) {
  Diagnostic diagnostic{recipe.origin(key), code, message};
  diagnostic.section = section_of(key);
  diagnostics.push_back(std::move(diagnostic));
}

/// Reports mistakes in [data]. A message about the length of a sample gets a note where the recipe sets that length.
void report(const Recipe& recipe, const std::vector<DataProblem>& problems, std::vector<Diagnostic>& diagnostics) {
  const std::string length = recipe.data.seq_len ? "data.seq_len" : "model.max_seq_len";
  for (const auto& problem : problems) {
    report(recipe, problem.key, "data", problem.message, diagnostics);
    if (problem.message.find("data.seq_len = ") == std::string::npos) continue;
    diagnostics.back().other = recipe.origin(length);
    diagnostics.back().other_message = fmt::format("{} sets the length of a sample", length);
  }
}

/// Compares the folder's config.json and the names and shapes of its tensors with the model.
void check_init_from(const Recipe& recipe, int64_t vocab_size, int64_t seq_len, std::vector<Diagnostic>& diagnostics) {
  try {
    HfSource(*recipe.model.init_from, recipe.model, make_spec(recipe.model, vocab_size, seq_len));
  } catch (const Error& error) {
    return report(recipe, "model.init_from", "init-from", fmt::format("model.init_from: {}", error.what()),
                  diagnostics);
  }
  if (!recipe.fine_tune.adapts() || !recipe.fine_tune.adapter) return;
  try {
    AdapterFolder(*recipe.fine_tune.adapter, recipe, make_spec(recipe, vocab_size, seq_len));
  } catch (const Error& error) {
    report(recipe, "fine_tune.adapter", "adapter", error.what(), diagnostics);
  }
}

/// Loads the file of data.order.
void check_order(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  if (!recipe.data.order) return;
  lua::State state(lua::script_state_options(recipe));
  lua::load_order_file(state, recipe, diagnostics);
}

/// Checks what hooks log and generate, and the metric of early stopping.
void check_metrics(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  const auto& stopping = recipe.train.early_stopping;
  const std::string metric = stopping ? stopping->monitor : "";
  const bool open = stopping && !lua::trainer_records(recipe, metric);
  if (!open && recipe.hooks.files.empty()) return;
  const auto known = lua::known_metrics(recipe);
  if (!known.mistake.empty() && recipe.hooks.on_error == "stop")
    return report(recipe, "hooks.files", "hook", known.mistake, diagnostics);
  if (!open) return;
  if (known.recorded(metric) != lua::KnownMetrics::Recorded::no) return;
  report(recipe, "train.early_stopping", "unknown-metric",
         fmt::format("early_stopping watches `{}`, which this training never reports", metric), diagnostics);
  diagnostics.back().allowed = known.names;
  diagnostics.back().suggestion = nearest(metric, known.names);
}

/// The names of the classes in config.json, in the order of their ids.
std::vector<std::string> class_names_of(const fs::path& folder) {
  std::vector<std::string> names;
  const auto config = nlohmann::json::parse(read_file(folder / "config.json"));
  const auto named = config.value("id2label", nlohmann::json::object());
  for (size_t id = 0; named.contains(std::to_string(id)); ++id) names.push_back(named.at(std::to_string(id)));
  return names;
}

/// The labels of the model that training starts from; empty: it has none, or a mistake that check_init_from() reports.
std::vector<std::string> labels_of_base(const Recipe& recipe) {
  if (!recipe.model.init_from || !(recipe.data.labels_texts() || recipe.data.is_images())) return {};
  try {
    if (recipe.data.is_images()) return class_names_of(*recipe.model.init_from);
    return model_of_hf_folder(*recipe.model.init_from).labels;
  } catch (const std::exception&) {
    return {};
  }
}

/// Checks what a model of rows needs: its data, and a folder of weights.
void check_rows(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  const auto problems = find_data_problems(recipe.data, 1, 1, data_cache());
  report(recipe, problems, diagnostics);
  if (!problems.empty()) return;
  const Recipe known = with_data_facts(recipe);
  check_metrics(known, diagnostics);
  auto measured = validation_metrics(known);  // the number of classes decides
  measured.insert(measured.begin(), {metric::val_loss, metric::loss});
  const auto& monitor = recipe.checkpoint.monitor;
  if (std::ranges::find(measured, monitor) == measured.end()) {
    report(recipe, "checkpoint.monitor", "unknown-metric", fmt::format("the training does not measure {}", monitor),
           diagnostics);
    diagnostics.back().allowed = measured;
  }
  if (recipe.model.init_from && known.model.num_labels) check_init_from(known, *known.model.num_labels, 1, diagnostics);
}

/// Variables that notifications need when they are sent. Commands that train nothing do not ask for them.
void check_variables(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  for (const auto& target : recipe.logging.notify)
    for (const auto& name : missing_variables(target.command.value_or("") + target.webhook.value_or("")))
      diagnostics.push_back(
          {recipe.origin("logging.notify"), "missing-env",
           fmt::format("the environment variable `{}` is not set (${{env:{}:-default}} would give it a "
                       "default, and --unset logging.notify does without notifications)",
                       name, name)});
}

/// The number of tokens, if it is known before the tokenizer is trained.
std::optional<int64_t> known_vocabulary(const Recipe& recipe) {
  if (recipe.model.vocab_size) return recipe.model.vocab_size;
  const bool trains_tokenizer = needs_tokenizing(recipe.data) && recipe.data.tokenizer == "sentencepiece";
  const auto vocab = trains_tokenizer ? std::nullopt : tokenizer_vocab_size(recipe.data, data_cache());
  return vocab ? vocab : recipe.data.tokenizer_vocab_size;
}

bool has_mistake_in(const std::string& section, const std::vector<Diagnostic>& diagnostics) {
  return std::ranges::any_of(diagnostics, [&](const Diagnostic& diagnostic) {
    return diagnostic.section == section || diagnostic.section.empty();
  });
}

/// Mistakes in the data of a recipe that has others, as far as the keys that the search depends on are sound.
void check_data_of_unsound(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  if (recipe.data.train.empty() || has_mistake_in("data", diagnostics)) return;
  const bool model_sound = !has_mistake_in("model", diagnostics);
  auto problems = find_missing_data(recipe.data);
  if (problems.empty() && model_sound && !recipe.data.is_plugin()) {
    const bool rows = recipe.data.has_rows();
    const auto vocab = rows ? 1 : known_vocabulary(recipe);
    const auto seq_len = rows ? 1 : recipe.data.seq_len.value_or(recipe.model.max_seq_len);
    if (vocab) problems = find_data_problems(recipe.data, seq_len, *vocab, data_cache());
  }
  report(recipe, problems, diagnostics);
}

/// A note if the labels of model.init_from have other names.
std::string other_labels_note(const Recipe& known) {
  const auto before = labels_of_base(known);
  const auto now = known.data.is_images() ? image_classes(known.data) : known.model.labels;
  if (before.empty() || before == now || before.front() == "LABEL_0") return "";
  return fmt::format(
      "the head of {} was trained for the labels {}, and those of the data are {}: it is trained further",
      *known.model.init_from, join(before, ", "), join(now, ", "));
}

/// A note if the head of model.init_from does not fit.
std::string new_head_note(const Recipe& recipe) {
  const Recipe known = with_data_facts(recipe);
  const int64_t outputs = known.model.num_labels.value_or(1);
  const bool reads_tokens = is_language_model(known.model.name);
  const auto vocab = !reads_tokens            ? outputs
                     : known.model.vocab_size ? *known.model.vocab_size
                                              : tokenizer_vocab_size(known.data, data_cache()).value();
  const auto seq_len = reads_tokens ? known.data.seq_len.value_or(known.model.max_seq_len) : 1;
  const auto spec = make_base_spec(known, vocab, seq_len);
  const HfSource source(*recipe.model.init_from, known.model, spec);
  if (source.other_head().empty()) return other_labels_note(known);
  return fmt::format(
      "{} has {}, and the model has {}: the head is replaced by a new one, which begins with random weights",
      *recipe.model.init_from, source.other_head(), counted(outputs, "output"));
}

/// A note if the files of model.init_from lack the model's head.
void note_new_head(const Recipe& recipe, std::vector<std::string>& notes) {
  if (!recipe.model.init_from || !recipe.model.vocab_size || recipe.data.labels_texts()) return;
  const auto seq_len = recipe.data.seq_len.value_or(recipe.model.max_seq_len);
  const auto spec = make_spec(recipe.model, *recipe.model.vocab_size, seq_len);
  const HfSource source(*recipe.model.init_from, recipe.model, spec);
  int64_t missing = 0;
  for (size_t slot = 0; slot < spec.parameters().size(); ++slot) missing += source.has(slot) ? 0 : spec.numel(slot);
  if (missing > 0)
    notes.push_back(
        fmt::format("{} has no head for data.objective = \"{}\": its {} parameters start from random values",
                    *recipe.model.init_from, recipe.data.objective, format_parameters(missing)));
}

}  // namespace

Recipe with_data_facts(Recipe recipe) {
  const bool open = !recipe.train.loss;
  const auto known = recipe.model.label_order.empty() ? labels_of_base(recipe) : recipe.model.label_order;
  try {
    take_data_facts(recipe, known);
  } catch (const Error& error) {
    const std::string text = error.what();
    const auto key = text.substr(0, text.find_first_of(" :"));
    throw RecipeError({{recipe.origin(key), "data", text}});
  }
  if (open && recipe.train.label_smoothing > 0 && recipe.train.loss.value_or("cross_entropy") != "cross_entropy") {
    Diagnostic diagnostic{recipe.origin("train.label_smoothing"), "contradiction",
                          fmt::format("label_smoothing is for cross_entropy, and the loss is {}, which follows from {}",
                                      *recipe.train.loss, recipe.origin("train.loss").note)};
    diagnostic.section = "train";
    throw RecipeError({diagnostic});
  }
  return recipe;
}

std::string data_cache() { return (fs::absolute(ledger_home()) / "cache").string(); }

void check_inputs(const Recipe& given, std::vector<Diagnostic>& diagnostics) {
  Recipe recipe = given;
  check_variables(recipe, diagnostics);
  if (!diagnostics.empty()) return check_data_of_unsound(recipe, diagnostics);
  auto add = [&](const std::vector<DataProblem>& problems) { report(recipe, problems, diagnostics); };
  check_plugins(recipe, diagnostics);
  check_order(recipe, diagnostics);
  auto missing = find_missing_data(recipe.data);
  if (!missing.empty()) {
    check_metrics(recipe, diagnostics);
    return add(missing);
  }
  const auto cache = data_cache();
  if (recipe.data.is_plugin()) {
    try {
      recipe = with_data_facts(std::move(recipe));
    } catch (const RecipeError& error) {
      diagnostics.insert(diagnostics.end(), error.diagnostics().begin(), error.diagnostics().end());
      return;
    }
  }
  if (recipe.data.has_rows()) return check_rows(recipe, diagnostics);
  if (!recipe.data.labels_texts()) check_metrics(recipe, diagnostics);
  const auto vocab = known_vocabulary(recipe);
  if (!vocab) return check_lengths(recipe, diagnostics);
  const auto seq_len = recipe.data.seq_len.value_or(recipe.model.max_seq_len);
  const auto problems = find_data_problems(recipe.data, seq_len, *vocab, cache);
  add(problems);
  if (recipe.data.labels_texts() && !problems.empty()) return;
  const Recipe known = recipe.data.labels_texts() ? with_data_facts(recipe) : recipe;
  if (recipe.data.labels_texts()) check_metrics(known, diagnostics);
  if (recipe.model.init_from) check_init_from(known, *vocab, seq_len, diagnostics);
}

std::vector<std::string> input_notes(const Recipe& recipe) {
  auto notes = data_notes(recipe.data);
  note_new_head(recipe, notes);
  const bool tokens = is_language_model(recipe.model.name);
  const auto tokenizer =
      tokens && recipe.model.init_from ? unused_tokenizer(*recipe.model.init_from, recipe.data) : fs::path();
  if (!tokenizer.empty())
    notes.push_back(
        fmt::format("data.tokenizer = {} is not the tokenizer of model.init_from ({}): its weights were trained with "
                    "other token ids. `runner init --from-hf` shows how to use the model's own tokenizer",
                    toml_value(recipe.data.tokenizer), tokenizer.string()));
  if (!predicts_tokens(recipe) && recipe.model.init_from)
    if (auto note = new_head_note(recipe); !note.empty()) notes.push_back(std::move(note));
  if (!recipe.train.early_stopping) return notes;
  const auto& metric = recipe.train.early_stopping->monitor;
  if (!lua::trainer_records(recipe, metric) &&
      lua::known_metrics(recipe).recorded(metric) == lua::KnownMetrics::Recorded::maybe)
    notes.push_back(fmt::format(
        "early_stopping watches `{}`, a name that is in no hook, but hooks compute names; the run fails at the "
        "first validation if no hook has logged it by then",
        metric));
  return notes;
}

Recipe load_ready_recipe(const std::string& file, const std::vector<std::string>& overrides) {
  return load_whole_recipe(file, overrides, check_inputs);
}

sweep::SweepFile load_ready_sweep(const std::string& file, std::vector<std::string>& notes) {
  sweep::SweepFile sweep = sweep::load_sweep(file);
  Recipe base = load_ready_recipe(sweep.recipe, sweep.overrides);
  for (const auto& note : input_notes(base)) notes.push_back(note);
  sweep::check_recipes(sweep, check_inputs);
  for (const auto& note : {sweep::metric_note(sweep, base), sweep::budget_note(sweep)})
    if (!note.empty()) notes.push_back(note);
  return sweep;
}

bool is_sweep_file(const std::string& file) {
  try {
    if (!fs::is_regular_file(file)) return false;
    if (sweep::is_lua_sweep(file)) return sweep::read_lua_sweep(read_file(file), file).find("recipe") != nullptr;
    return parse_located_toml(read_file(file), file).find("sweep") != nullptr;
  } catch (const RecipeError&) {
    return false;  // the caller reads it as a recipe, which reports the error
  }
}

void check_plugins(const Recipe& recipe, std::vector<Diagnostic>& diagnostics) {
  AskedOptions asked;
  const size_t before = diagnostics.size();
  const auto look = [&](const std::optional<std::string>& path, auto&& open) {
    if (!path) return;
    try {
      open();
    } catch (const RecipeError& error) {
      diagnostics.insert(diagnostics.end(), error.diagnostics().begin(), error.diagnostics().end());
    }
  };
  look(recipe.plugins.cluster_environment, [&] { open_cluster_plugin(recipe, process_environment(), asked); });
  asked.add(check_checkpoint_io(recipe, diagnostics));
  std::optional<std::set<std::string>> of_accelerator = std::set<std::string>();
  look(recipe.plugins.accelerator, [&] { of_accelerator = options_of_accelerator(recipe); });
  const auto of_precision = options_of_precision(recipe);
  if (diagnostics.size() > before || !of_precision || !of_accelerator) return;  // not all options are known
  asked.add(*of_precision);
  asked.add(*of_accelerator);
  try {
    asked.check(recipe.plugins.options, "plugins.options");
  } catch (const Error& error) {
    diagnostics.push_back({.place = recipe.origin("plugins.options"),
                           .code = "unknown-option",
                           .message = error.what(),
                           .section = "plugins"});
  }
}

void refuse_bad_plugins(const Recipe& recipe) {
  const auto& plugins = recipe.plugins;
  if (!plugins.cluster_environment && !plugins.checkpoint_io && !plugins.accelerator) return;
  std::vector<Diagnostic> diagnostics;
  check_plugins(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(std::move(diagnostics));
}

}  // namespace runner
