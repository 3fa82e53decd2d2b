#include "runner/lua/known_metrics.hpp"

#include <algorithm>
#include <array>

#include "runner/base/files.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/lua/bytecode.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/lua/training.hpp"

namespace runner::lua {

const std::vector<std::string>& trainer_metrics() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& metric : metric_table())
      if (metric.of != MetricInfo::Of::task) list.emplace_back(metric.name);
    return list;
  }();
  return names;
}

namespace {
/// The columns of metrics.csv and of exported tables that are no metrics.
constexpr std::array<std::string_view, 5> columns_of_tables = {"step", "run", "name", "run_id", "run_name"};
}  // namespace

void check_metric_name(std::string_view name) {
  if (name.empty()) throw ScriptMistake("log: the name is empty");
  if (first_invalid_utf8(name))
    throw ScriptMistake(fmt::format("log: the name \"{}\" is not UTF-8 text", escape_invalid_utf8(name)));
  const char* reserved = std::ranges::count(trainer_metrics(), name)          ? "the trainer itself records a metric"
                         : std::ranges::count(columns_of_tables, lower(name)) ? "a table of metrics has another column"
                                                                              : nullptr;
  if (reserved)
    throw ScriptMistake(
        fmt::format("log: {} named \"{}\"; take another name, such as \"hook/{}\"", reserved, name, name));
}

std::string nonfinite_note(const std::string& hook, const std::string& name, double value, int64_t step) {
  return fmt::format("hook {} logs {} = {} at step {}, maybe after a division by zero; the value is recorded unchanged",
                     hook, name, exact_metric_text(value), step);
}

namespace {

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether the text has a string that begins as the name does, up to one of / . _ -: "norm/" for "norm/head".
bool has_beginning(const std::string& text, const std::string& name) {
  for (size_t at = name.find_first_of("/._-"); at != std::string::npos; at = name.find_first_of("/._-", at + 1))
    for (const char quote : {'"', '\''})
      if (text.find(quote + name.substr(0, at + 1)) != std::string::npos) return true;
  return false;
}

/// Whether the common beginning of two names has a separator: "norm/head" and "norm/blocks.0".
bool begin_alike(const std::string& a, const std::string& b) {
  const auto differs = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return std::string(a.begin(), differs).find_first_of("/._-") != std::string::npos;
}

}  // namespace

bool trainer_records(const Recipe& recipe, std::string_view name) {
  const bool validates = recipe.data.validates();
  if (contains(validation_metrics(recipe), name)) return validates;
  const bool of_tokens = name == metric::tokens_per_s || name == metric::tokens;
  if (of_tokens || name == metric::samples_per_s || name == metric::samples)
    return predicts_tokens(recipe) == of_tokens || family_kind(recipe.model.name) == "plugin";
  return contains(trainer_metrics(), name) && (name != metric::val_loss || validates);
}

KnownMetrics::Recorded KnownMetrics::recorded(const std::string& name) const {
  if (contains(names, name)) return Recorded::yes;
  // Hooks do not log the trainer's metrics.
  const auto of_trainer = [](const std::string& metric) {
    return contains(trainer_metrics(), metric) || contains(all_validation_metrics(), metric);
  };
  if (of_trainer(name)) return Recorded::no;
  for (const auto& text : texts)
    if (text.find(name) != std::string::npos || (!complete && has_beginning(text, name))) return Recorded::yes;
  for (const auto& known : names)
    if (complete && !of_trainer(known) && begin_alike(name, known)) return Recorded::yes;
  return complete ? Recorded::no : Recorded::maybe;
}

/// Adds the names that a hook with this text logs, and its mistakes. `has_tokens`: the data are tokens already.
static void add_logged(const std::string& file, const std::string& text, bool has_tokens, KnownMetrics& known) {
  try {
    const auto logged = read_bytecode(State().bytecode_of(text, file)).logged();
    known.complete = known.complete && logged.complete;
    for (const auto& [name, line, of_parameter] : logged.names) {
      try {
        check_metric_name(name);
        known.names.push_back(name);
      } catch (const ScriptMistake& mistake) {
        if (of_parameter && !logged.defines_log) known.mistake = fmt::format("{}:{}: {}", file, line, mistake.what());
      }
    }
    if (has_tokens && logged.text_prompt_line > 0)
      known.mistake = fmt::format("{}:{}: {}", file, logged.text_prompt_line, no_tokenizer);
  } catch (const LuaError&) {  // reported when the file is loaded
    known.complete = false;
  }
}

KnownMetrics known_metrics(const Recipe& recipe) {
  KnownMetrics known;
  for (const auto& name : trainer_metrics())
    if (trainer_records(recipe, name)) known.names.push_back(name);
  for (const auto& name : validation_metrics(recipe))
    if (trainer_records(recipe, name)) known.names.push_back(name);
  const bool has_tokens = recipe.data.has_token_ids();
  for (const auto& file : recipe.hooks.files) {
    const auto shipped = shipped_hooks().find(file);
    known.texts.push_back(shipped != shipped_hooks().end() ? shipped->second : read_file(file));
    add_logged(file, known.texts.back(), has_tokens, known);
    if (has_tokens && file == "sample_generation") known.mistake = fmt::format("{}: {}", file, no_tokenizer);
  }
  known.complete = known.complete && !recipe.hooks.trusted;
  known.texts.push_back(recipe.hooks.options.dump());
  return known;
}

}  // namespace runner::lua
