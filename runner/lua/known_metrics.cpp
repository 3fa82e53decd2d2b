#include "runner/lua/known_metrics.hpp"

#include <algorithm>
#include <array>
#include <cctype>

#include "runner/base/files.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/metric_text.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/config/validation_metrics.hpp"
#include "runner/lua/dry_run.hpp"
#include "runner/lua/error.hpp"
#include "runner/lua/hook_set.hpp"

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
constexpr const char* name_is_reserved = "log: the trainer itself records a metric named ";
constexpr const char* column_is_reserved = "log: a table of metrics has another column named ";
/// The columns of metrics.csv and of exported tables that are no metrics.
constexpr std::array<std::string_view, 5> columns_of_tables = {"step", "run", "name", "run_id", "run_name"};
}  // namespace

void check_metric_name(std::string_view name) {
  if (name.empty()) throw ScriptMistake("log: the name is empty");
  if (first_invalid_utf8(name))
    throw ScriptMistake(fmt::format("log: the name \"{}\" is not UTF-8 text", escape_invalid_utf8(name)));
  const char* reserved = std::ranges::count(trainer_metrics(), name)          ? name_is_reserved
                         : std::ranges::count(columns_of_tables, lower(name)) ? column_is_reserved
                                                                              : nullptr;
  if (reserved)
    throw ScriptMistake(fmt::format("{}\"{}\"; take another name, such as \"hook/{}\"", reserved, name, name));
}

std::string nonfinite_note(const std::string& hook, const std::string& name, double value, int64_t step) {
  return fmt::format("hook {} logs {} = {} at step {}, maybe after a division by zero; the value is recorded unchanged",
                     hook, name, exact_metric_text(value), step);
}

namespace {

bool contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// Whether the common prefix of two names contains a separator: "norm/head" and "norm/blocks.0".
bool begin_alike(const std::string& a, const std::string& b) {
  auto differs = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
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
  for (const auto& known : names)
    if (!of_trainer(known) && begin_alike(name, known)) return Recorded::yes;
  for (const auto& text : texts)
    if (text.find(name) != std::string::npos) return Recorded::yes;
  return complete ? Recorded::no : Recorded::maybe;
}

namespace {

/// Whether the text after `:log` is a call whose first argument is a plain string.
bool logs_plain_name(std::string_view text) {
  text = trim(text);
  if (text.empty() || text.front() != '(') return false;
  text = trim(text.substr(1));
  if (text.empty() || (text.front() != '"' && text.front() != '\'')) return false;
  const size_t end = text.find(text.front(), 1);
  if (end == std::string_view::npos || text.substr(0, end).find('\\') != std::string_view::npos) return false;
  return trim(text.substr(end + 1)).starts_with(',');
}

}  // namespace

bool computes_names(std::string_view text) {
  if (text.find("require") != std::string_view::npos) return true;
  auto in_word = [](char byte) { return byte == '_' || std::isalnum(static_cast<unsigned char>(byte)); };
  constexpr std::string_view log = "log";
  for (size_t at = text.find(log); at != std::string_view::npos; at = text.find(log, at + 1)) {
    const auto before = trim(text.substr(0, at)), after = text.substr(at + log.size());
    if (before.empty() || in_word(text[at - 1]) || (!after.empty() && in_word(after.front()))) continue;
    if (before.back() == ':' && !logs_plain_name(after)) return true;
    const bool named = before.back() == '.' || before.back() == '"' || before.back() == '\'';
    if (named && !before.ends_with("math.")) return true;
  }
  return false;
}

KnownMetrics known_metrics(const Recipe& recipe) {
  KnownMetrics known;
  for (const auto& name : trainer_metrics())
    if (trainer_records(recipe, name)) known.names.push_back(name);
  for (const auto& name : validation_metrics(recipe))
    if (trainer_records(recipe, name)) known.names.push_back(name);
  if (recipe.hooks.files.empty()) return known;
  if (recipe.hooks.trusted) {  // a dry run could write files
    known.complete = false;
    return known;
  }
  Recipe hooked = recipe;
  hooked.train.early_stopping.reset();  // it logs nothing
  hooked.hooks.on_error = "stop";
  for (const auto& file : recipe.hooks.files) {
    auto shipped = shipped_hooks().find(file);
    known.texts.push_back(shipped != shipped_hooks().end() ? shipped->second : read_file(file));
  }
  known.complete = std::none_of(known.texts.begin(), known.texts.end(), computes_names);
  known.texts.push_back(recipe.hooks.options.dump());
  try {
    HookSet hooks(hooked);
    DryRun training(hooks.state(), hooked);
    training.run(hooks);
    const auto logged = training.metrics();
    for (const auto& [name, value] : logged.items())
      if (!contains(trainer_metrics(), name)) known.names.push_back(name);
  } catch (const Error& error) {
    known.complete = false;
    const std::string what = error.what();
    for (const char* certain : {name_is_reserved, column_is_reserved, no_tokenizer})
      if (what.find(certain) != std::string::npos) known.mistake = what;
  }
  return known;
}

}  // namespace runner::lua
