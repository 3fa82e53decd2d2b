#include "runner/config/value_check.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runner/base/text.hpp"
#include "runner/config/device_request.hpp"
#include "runner/config/foreign_names.hpp"

namespace runner {

using nlohmann::json;

bool to_integer(json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= std::numeric_limits<int64_t>::max();
  if (value.is_number_integer()) return true;
  if (!value.is_number_float()) return false;
  double number = value.get<double>();
  if (number != std::floor(number) || std::abs(number) > 9e15) return false;
  value = static_cast<int64_t>(number);
  return true;
}

namespace {

bool all_strings(const json& value) {
  return value.is_array() && std::all_of(value.begin(), value.end(), [](const json& item) { return item.is_string(); });
}

bool accumulation_problem(json& value) {
  if (to_integer(value)) return value.get<int64_t>() < 1;
  if (!value.is_object() || value.empty()) return true;
  for (auto& [epoch, factor] : value.items())
    if (epoch.find_first_not_of("0123456789") != std::string::npos || epoch.size() > 9 || !to_integer(factor) ||
        factor.get<int64_t>() < 1)
      return true;
  return false;
}

bool rope_problem(json& value) {
  static const std::vector<std::string> names = {"factor", "low_freq_factor", "high_freq_factor",
                                                 "original_max_position_embeddings", "rope_type"};
  if (!value.is_object()) return true;
  for (auto& [name, item] : value.items()) {
    bool known = std::find(names.begin(), names.end(), name) != names.end();
    bool fits = name == "rope_type"                          ? item.is_string()
                : name == "original_max_position_embeddings" ? to_integer(item)
                                                             : item.is_number();
    if (!known || !fits) return true;
  }
  return false;
}

/// Whether the value is not a list of tables with a pattern. groups_keys_problem() checks the other keys.
bool groups_problem(const json& value) {
  return !value.is_array() || std::any_of(value.begin(), value.end(), [](const json& item) {
    return !item.is_object() || !item.contains("pattern") || !item["pattern"].is_string();
  });
}

/// A value for messages. The reader represents dates and times, which no key takes, as { date = "..." }.
std::string shown(const json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) return fmt::format("{}", value.get<double>());
  bool date = value.is_object() && value.size() == 1 && value.contains("date") && value["date"].is_string();
  return date ? "the date " + value["date"].get<std::string>() : value.dump();
}

std::string type_problem(const Key& key, json& value) {
  using T = KeyType;
  std::string not_it = fmt::format("`{}` must be {}, not {}", key.name, wanted(key), shown(value));
  switch (key.type) {
    case T::boolean:
      return value.is_boolean() ? "" : not_it;
    case T::integer:
      return to_integer(value) ? "" : not_it;
    case T::integer_or_auto:
      return value == "auto" || to_integer(value) ? "" : not_it;
    case T::number:
      return value.is_number() ? "" : not_it;
    case T::text:
    case T::path:
    case T::choice:
      return value.is_string() ? "" : not_it;
    case T::paths:
    case T::texts:
      if (value.is_string()) value = json::array({value});
      return all_strings(value) ? "" : not_it;
    case T::numbers:
      return value.is_array() && value.size() == 2 && value[0].is_number() && value[1].is_number() ? "" : not_it;
    case T::duration:
      return value.is_string() && parse_duration(value.get<std::string>()) ? "" : not_it;
    case T::bytes: {
      if (to_integer(value)) return "";
      auto bytes = value.is_string() ? parse_bytes(value.get<std::string>()) : std::nullopt;
      if (bytes) value = *bytes;
      return bytes ? "" : not_it;
    }
    case T::devices: {
      std::string why;
      return parse_devices(value, why) ? "" : fmt::format("`{}`: {}; it takes {}", key.name, why, wanted(key));
    }
    case T::precision:
      return value.is_string() || value.is_number_integer() ? "" : not_it;
    case T::accumulation:
      return accumulation_problem(value) ? not_it : "";
    case T::table:
      return rope_problem(value) ? not_it : "";
    case T::groups:
      return groups_problem(value) ? not_it : "";
    case T::stopping:
      return value.is_object() ? "" : not_it;
  }
  return "";
}

/// The mistake in a value that has another meaning in Lightning's Trainer, with the way to write it here; empty: none.
std::string lightning_problem(const Key& key, const json& value) {
  const bool fraction = value.is_number_float() && value.get<double>() > 0 && value.get<double>() <= 1;
  std::string here;
  if (key.dotted() == "run.fast_dev_run" && value.is_boolean())
    here = value == true ? "it is a number of steps; 1 for Lightning's True"
                         : "it is a number of steps; 0 for Lightning's False";
  if (key.dotted() == "train.val_check_interval" && fraction)
    here =
        "it counts optimizer steps, and a fraction of an epoch is not supported; without the key, each epoch ends with "
        "a validation";
  if (key.dotted() == "train.limit_val_batches" && fraction)
    here = "it counts global batches, and a fraction of them is not supported; without the key, a validation uses all";
  return here.empty() ? "" : fmt::format("`{}` cannot be {}: {}", key.name, shown(value), here);
}

/// Why a value that exists in other tools is not supported here; empty: it is not such a value.
std::string known_but_not_here(const Key& key, const std::string& text) {
  auto word = lower(text);
  bool other = word == "tpu" || word == "hpu" || word == "ipu" || word == "mps";
  if (key.name == "accelerator" && other)
    return fmt::format("accelerator \"{}\" is not supported yet; cpu and cuda are", word);
  return key.name == "process_group_backend" ? unknown_backend(word) : "";
}

/// Checks choices, and replaces other spellings of a choice.
void choice_problem(const Key& key, json& value, Diagnostic& diagnostic) {
  if (key.type == KeyType::table && value.contains("rope_type") && value["rope_type"] != "llama3") {
    diagnostic.message = fmt::format("`rope_type` cannot be {}", value["rope_type"].dump());
    diagnostic.allowed = {"llama3"};
  }
  if (key.type != KeyType::precision && key.type != KeyType::choice) return;
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  const auto& spellings = spellings_of(key);
  if (auto found = spellings.find(lower(text)); found != spellings.end()) text = found->second;
  for (const auto& choice : key.choices)
    if (lower(choice) == lower(text)) text = choice;
  value = text;
  diagnostic.message = known_but_not_here(key, text);
  const bool elsewhere = !diagnostic.message.empty();
  if (diagnostic.message.empty() && std::find(key.choices.begin(), key.choices.end(), text) == key.choices.end())
    diagnostic.message = fmt::format("`{}` cannot be \"{}\"", key.name, text);
  if (diagnostic.message.empty()) return;
  diagnostic.allowed = key.choices;
  if (key.name == "accelerator")
    for (const auto& [spelling, choice] : spellings) diagnostic.allowed.push_back(spelling);
  if (!elsewhere) diagnostic.suggestion = nearest(text, key.choices);
}

/// Checks train.early_stopping.
void stopping_problem(json& table, Diagnostic& diagnostic) {
  static const std::vector<std::string> names = {"monitor", "patience", "min_delta", "mode"};
  for (auto& [name, value] : table.items()) {
    auto wrong = [&, &name = name, &value = value](const std::string& what) {
      diagnostic.message = fmt::format("`{}` of early_stopping must be {}, not {}", name, what, value.dump());
    };
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      const auto* foreign = find_foreign_name(name);
      const bool answered = foreign && !foreign->refusal.empty();
      diagnostic.message = fmt::format("early_stopping has no `{}`{}", name, answered ? ": " + foreign->refusal : "");
      diagnostic.allowed = names;
      if (!answered) diagnostic.suggestion = nearest(name, names);
    } else if (name == "monitor" && (!value.is_string() || value == "")) {
      wrong("the name of a metric");
    } else if (name == "patience" && (!to_integer(value) || value.get<int64_t>() < 1)) {
      wrong("an integer of at least 1");
    } else if (name == "min_delta" &&
               (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)) {
      wrong("a number of at least 0");
    } else if (name == "mode" && value != "min" && value != "max") {
      wrong("\"min\" or \"max\"");
    }
    if (!diagnostic.message.empty()) return;
  }
}

/// Checks the keys of [[optimizer.groups]] and their types, and that each group sets something.
void groups_keys_problem(const json& groups, Diagnostic& diagnostic) {
  static const std::vector<std::string> names = {"pattern", "lr", "weight_decay"};
  for (const auto& group : groups) {
    for (const auto& [name, value] : group.items()) {
      const auto of = fmt::format("`{}` of the group {}", name, group["pattern"].dump());
      if (std::find(names.begin(), names.end(), name) == names.end()) {
        diagnostic.message = fmt::format("unknown key {}", of);
        diagnostic.allowed = names;
        diagnostic.suggestion = nearest(name, names);
        return;
      }
      if (name == "pattern" || value.is_number()) continue;
      diagnostic.message = fmt::format("{} must be a number, not {}", of, shown(value));
      return;
    }
    if (group.size() > 1) continue;
    diagnostic.message = fmt::format("the group {} sets neither lr nor weight_decay", group["pattern"].dump());
    return;
  }
}

/// The bounds of lr and weight_decay in [[optimizer.groups]] are those of the keys with these names.
std::string groups_bounds_problem(const json& groups) {
  for (const auto& group : groups)
    for (const char* name : {"lr", "weight_decay"}) {
      if (!group.contains(name)) continue;
      double number = group[name].get<double>();
      auto what = fmt::format("`{}` of the group {}", name, group["pattern"].dump());
      if (!std::isfinite(number)) return what + " must be finite";
      if (number < 0) return fmt::format("{} must be at least 0, not {}", what, group[name].dump());
    }
  return "";
}

std::string bounds_problem(const Key& key, const json& value) {
  std::vector<double> numbers;
  if (value.is_number()) numbers.push_back(value.get<double>());
  if (key.type == KeyType::numbers) numbers = value.get<std::vector<double>>();
  for (double number : numbers) {
    if (key.minimum && (number < *key.minimum || (key.above_minimum && number == *key.minimum)))
      return fmt::format("`{}` must be {} {}, not {}", key.name, key.above_minimum ? "above" : "at least",
                         number_text(key, *key.minimum),
                         key.type == KeyType::bytes ? number_text(key, number) : shown(value));
    if (key.maximum && number > *key.maximum)
      return fmt::format("`{}` must be at most {}, not {}", key.name, *key.maximum, shown(value));
    if (!std::isfinite(number)) return fmt::format("`{}` must be finite", key.name);
  }
  return key.type == KeyType::groups ? groups_bounds_problem(value) : "";
}

}  // namespace

std::string unknown_backend(const std::string& name) {
  if (name == "mpi")
    return "LibTorch is built without the \"mpi\" backend; \"gloo\" connects CPU ranks, \"nccl\" CUDA devices";
  if (name == "hccl") return "the \"hccl\" backend is for Gaudi devices, which are not supported yet";
  return "";
}

std::optional<Diagnostic> check_value(const Key& key, json& value) {
  Diagnostic diagnostic;
  diagnostic.section = key.section;
  diagnostic.code = "wrong-type";
  diagnostic.message = lightning_problem(key, value);
  if (diagnostic.message.empty()) diagnostic.message = type_problem(key, value);
  if (diagnostic.message.empty()) {
    diagnostic.code = "not-allowed";
    choice_problem(key, value, diagnostic);
    if (key.type == KeyType::stopping) stopping_problem(value, diagnostic);
    if (key.type == KeyType::groups) groups_keys_problem(value, diagnostic);
  }
  if (diagnostic.message.empty()) {
    diagnostic.code = "out-of-bounds";
    diagnostic.message = bounds_problem(key, value);
  }
  return diagnostic.message.empty() ? std::nullopt : std::optional(diagnostic);
}

}  // namespace runner
