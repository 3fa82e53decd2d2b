#include "runner/import/tool_importer.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "runner/base/files.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/import/deepspeed_config.hpp"
#include "runner/import/tool_translator.hpp"

namespace runner {

using nlohmann::json;

namespace {

bool has_no_value(const json& value) {
  return value.is_null() || value == "" || (value.is_structured() && value.empty());
}

/// Whether it is "0:45:00".
bool is_time_of_day(const std::string& text) {
  return std::ranges::count(text, ':') == 2 && text.find_first_not_of("0123456789:") == std::string::npos;
}

/// The arguments of a class that is given as class_path and init_args; anything else as it is.
const json& class_arguments(const json& value) {
  const auto found = value.is_object() ? value.find("init_args") : value.end();
  return found == value.end() || has_no_value(*found) ? value : *found;
}

/// Adds to `before` what another name says of the key: more loggers, or other fields of a table. False: the names contradict each other.
bool joined(const std::string& key, json& before, const json& value) {
  if (key == "logging.loggers" && before.is_array() && value.is_array()) {
    for (const auto& logger : value)
      if (std::find(before.begin(), before.end(), logger) == before.end()) before.push_back(logger);
    return true;
  }
  if (!before.is_object() || !value.is_object()) return false;
  for (const auto& [field, its_value] : value.items())
    if (before.contains(field)) return false;
  before.update(value);
  return true;
}

}  // namespace

Imported ToolTranslator::all(const LocatedJson& configuration, const RecipeCheck& of_strategy) {
  configuration_ = &configuration;
  for (const auto& one : tool_.switches)
    if (auto why = one.why_off([&](const auto& name) { return given(name); })) off_.emplace_back(&one, *why);
  for (const auto& [name, node] : configuration.members) visit(name, node, nullptr);
  complete();
  check(of_strategy);
  std::ranges::stable_sort(notes_, {}, [](const auto& note) { return note.first; });
  for (auto& [line, text] : notes_) meaning_.notes.push_back(std::move(text));
  find_missing();
  return std::move(meaning_);
}

void ToolTranslator::note(const LocatedJson& node, const std::string& path, const std::string& text) {
  note_at(node.key_place, path, text);
}

void ToolTranslator::note_at(const Origin& place, const std::string& path, const std::string& text) {
  notes_.emplace_back(place.line, fmt::format("{}: `{}`: {}", place_of(place), path, text));
}

void ToolTranslator::refuse(const ForeignName& name, const LocatedJson& node, const std::string& path) {
  std::string why = name.refusal;
  const std::string quoted = "`" + name.name + "`";
  if (const auto at = why.find(quoted); at != std::string::npos)
    why.replace(at, quoted.size(), shortened_text(toml_value(node.plain())));
  note(node, path, "not translated: " + why);
}

void ToolTranslator::set(const std::string& key, const json& value, const LocatedJson& node, const std::string& path) {
  if (value.is_null()) {
    unset_.insert(key);
    return;
  }
  // It is what a recipe has anyway, and the key may be for some models only.
  const Key* known = find_key(key);
  if (value.is_boolean() && known && value == known->default_value && key.starts_with("model.")) return;
  for (auto& before : meaning_.values) {
    if (before.key == key && joined(key, before.value, value)) return;
    if (before.key != key || before.value == value) continue;
    note(node, path, fmt::format("{} = {} is already set by `{}`", key, toml_value(before.value), before.path));
    return;
  }
  meaning_.values.push_back({.key = key, .value = value, .place = node.key_place, .path = path});
}

std::optional<ImportedValue> ToolTranslator::value_of(const std::string& key) const {
  const auto found = std::ranges::find(meaning_.values, key, &ImportedValue::key);
  return found == meaning_.values.end() ? std::nullopt : std::optional(*found);
}

json ToolTranslator::given(const std::string& path) const {
  const LocatedJson* node = configuration_;
  for (const auto& name : split(path, '.'))
    if (node) node = node->find(name);
  return node && !has_no_value(node->plain()) ? node->plain() : json();
}

bool ToolTranslator::is_switched_off(const ToolName* row, const std::string& path, const LocatedJson& node) {
  const auto off = std::ranges::find_if(off_, [&](const auto& one) { return one.first->has(path); });
  if (off == off_.end()) return false;
  const bool says = !has_no_value(node.plain()) && node.value != false && node.value != 0;
  if (says && (!row || !row->name.key.empty() || row->name.note.empty())) note(node, path, off->second);
  return true;
}

void ToolTranslator::visit(const std::string& path, const LocatedJson& node, const Block* block) {
  const auto* row = tool_.find(path);
  if (node.is_object && path == "trainer.strategy" && tool_.tool == "lightning") return read_strategy(node, path);
  if (!node.is_object || node.members.empty() || (row && row->as == NameConversion::callbacks)) {
    if (is_switched_off(row, path, node)) return;
    if (row)
      apply(*row, path, node);
    else
      without_row(path, node, block);
    return;
  }
  const Block own{row, &node, path};
  for (const auto& [name, member] : node.members) visit(path + "." + name, member, row ? &own : block);
}

void ToolTranslator::apply(const ToolName& row, const std::string& path, const LocatedJson& node) {
  const auto& name = row.name;
  const NameConversion as = row.as;
  const json value = node.plain();
  // Null switches clipping off in Hugging Face's files. axolotl passes it on as "not set".
  if (has_no_value(value)) {
    if (value.is_null() && as == NameConversion::positive && tool_.tool == "huggingface") answered_.insert(name.key);
    return;
  }
  if (as == NameConversion::positive || as == NameConversion::count) answered_.insert(name.key);
  if (as == NameConversion::first || as == NameConversion::second) return item(name.key, as, node, path);
  if (as == NameConversion::shard || as == NameConversion::replicate) {
    if (!value.is_number_integer()) return refuse(name, node, path);
    (as == NameConversion::shard ? shard_ : replicate_) = {value.get<int64_t>(), &node, path};
    return;
  }
  const bool part = as == NameConversion::count && value.is_number_float() && value > 0.0 && value < 1.0;
  if (part || as == NameConversion::steps || as == NameConversion::decay || as == NameConversion::per_epoch) {
    answered_.insert(name.key);
    shares_.emplace_back(&row, &node, path);
    return;
  }
  if (as == NameConversion::datasets && read_datasets(name.key, node, path)) return;
  const auto meant = name.meaning ? name.meaning(value) : std::nullopt;
  if (!meant && as != NameConversion::callbacks && name.key == "logging.loggers") {
    const json loggers = value.is_string() ? json(split(value.get<std::string>(), ',')) : value;
    LocatedJson one = node;
    if (loggers.is_array() && loggers.size() > 1) {
      for (const auto& logger : loggers) one.value = logger, apply(row, path, one);
      return;
    }
  }
  if (!meant && as == NameConversion::callbacks) return read_callbacks(name, node, path);
  if (!meant) {
    answered_.insert(name.key);
    return refuse(name, node, path);
  }
  for (const auto& [key, its_value] : *meant) set(key, its_value, node, path);
  const bool off = value == false || value == 0;
  if (meant->empty() && name.key.empty() && !off && name.note.starts_with("nothing to do: ") &&
      row.name.refusal.empty())
    note(node, path, name.note);
}

void ToolTranslator::without_row(const std::string& path, const LocatedJson& node, const Block* block) {
  if (has_no_value(node.value)) return;
  const std::string leaf = path.substr(path.rfind('.') + 1);
  const auto* foreign = find_foreign_name(leaf);
  if (tool_.tool == "lightning" && path.starts_with("trainer.") && foreign && !foreign->only_suggested)
    return apply({.name = *foreign}, path, node);
  if (block && !reported_.insert(block->path).second) return;
  if (block) {
    const auto& name = block->row->name;
    return note(*block->node, block->path, name.refusal.empty() ? name.note : "not translated: " + name.refusal);
  }
  if (find_key(path)) return set(path, node.value, node, path);
  const Key* key = tool_.tool == "lightning" && path.starts_with("trainer.") ? key_named(leaf) : nullptr;
  if (key) return set(key->dotted(), node.value, node, path);
  note(node, path, fmt::format("not translated: no such name of {} is known", tool_.title));
}

const Key* ToolTranslator::key_named(const std::string& name) {
  const auto& keys = key_table();
  const auto found = std::ranges::find(keys, name, [](const Key& key) { return key.name; });
  return found == keys.end() ? nullptr : &*found;
}

void ToolTranslator::item(const std::string& key, NameConversion as, const LocatedJson& node, const std::string& path) {
  const auto* tools = default_for(key);
  json list = tools && tools->value.is_array() ? tools->value : find_key(key)->default_value;
  for (const auto& before : meaning_.values)
    if (before.key == key) list = before.value;
  list[as == NameConversion::first ? 0 : 1] = node.value;
  std::erase_if(meaning_.values, [&](const auto& value) { return value.key == key; });
  set(key, list, node, path);
}

bool ToolTranslator::read_datasets(const std::string& key, const LocatedJson& node, const std::string& path) {
  static const std::map<std::string, const char*> formats = {
      {".jsonl", "jsonl"}, {".json", "jsonl"}, {".parquet", "parquet"}, {".txt", "text"}, {".csv", "csv"}};
  static const std::map<std::string, const char*> layouts = {
      {"alpaca", "alpaca"}, {"sharegpt", "sharegpt"}, {"chat_template", "messages"}, {"completion", "text"}};
  json files = json::array();
  std::set<std::string> format, layout, types;
  for (const auto& entry : node.value.is_array() ? node.value : json::array({node.value})) {
    const std::string file = entry.is_string() ? entry.get<std::string>()
                             : entry.is_object() && entry.contains("path") && entry["path"].is_string()
                                 ? entry["path"].get<std::string>()
                                 : "";
    const auto suffix = formats.find(fs::path(file).extension().string());
    if (suffix == formats.end()) {
      note(node, path,
           fmt::format("not translated: {} is no file that data.format reads; download a data set of the "
                       "Hugging Face Hub (hf download {} --repo-type dataset --local-dir DIR)",
                       toml_value(file), shell_word(file)));
      return true;
    }
    files.push_back(file);
    format.insert(suffix->second);
    const std::string type =
        entry.is_object() && entry.contains("type") && entry["type"].is_string() ? entry["type"] : "";
    types.insert(type);
    list_untranslated(entry, file, node, path);
    if (const auto found = layouts.find(type); found != layouts.end())
      layout.insert(found->second);
    else if (!type.empty())
      note(node, path,
           fmt::format("type = \"{}\" is not translated: data.layout has text, messages, prompt_completion, "
                       "alpaca and sharegpt",
                       type));
  }
  if (files.empty()) return false;
  set(key, files, node, path);
  if (format.size() == 1) set("data.format", *format.begin(), node, path);
  if (format.size() > 1) note(node, path, "not translated: data.format is the same for all files");
  if (types.size() > 1) note(node, path, "not translated: `type`: data.layout is the same for all files");
  if (types.size() == 1 && layout.size() == 1) set("data.layout", *layout.begin(), node, path);
  return true;
}

void ToolTranslator::list_untranslated(const json& entry, const std::string& file, const LocatedJson& node,
                                       const std::string& path) {
  std::vector<std::string> names;
  if (!entry.is_object()) return;
  for (const auto& [name, value] : entry.items())
    if (name != "path" && (name != "type" || !value.is_string()) && !has_no_value(value))
      names.push_back(fmt::format("`{}`", name));
  if (!names.empty()) note(node, path, fmt::format("{}: not translated: {}", file, runner::join(names, ", ")));
}

void ToolTranslator::read_callbacks(const ForeignName& callbacks, const LocatedJson& node, const std::string& path) {
  const json given = node.plain();
  for (const auto& entry : given.is_array() ? given : json::array({given})) {
    const json named = entry.is_object() ? entry.value("class_path", json()) : entry;
    const std::string word = named.is_string() ? named.get<std::string>() : toml_value(named);
    const std::string kind = shortened_text(word.substr(word.rfind('.') + 1)), own = path + "." + kind;
    const auto* row = tool_.find(own);
    if (!row || row->as == NameConversion::hint || !row->name.note.empty()) {
      const bool noted = row && !row->name.note.empty();
      note(node, own, noted ? row->name.note : "not translated: " + (row ? row->name : callbacks).refusal);
      continue;
    }
    if (row->name.key == "logging.loggers") {
      const auto loggers = row->name.meaning(kind);
      for (const auto& [key, value] : loggers.value()) set(key, value, node, own);
    }
    json arguments = entry.is_object() ? entry.value("init_args", json()) : json();
    if (!arguments.is_object()) arguments = json::object();
    if (row->name.key == "train.early_stopping") stop_early(arguments, node, own);
    LocatedJson argument, &table = arguments_.emplace_back();
    table.is_object = true;
    table.key_place = argument.key_place = node.key_place;
    for (const auto& [name, value] : arguments.items()) {
      argument.value = value;
      table.members.emplace_back(name, argument);
    }
    visit(own, table, nullptr);
  }
}

void ToolTranslator::read_strategy(const LocatedJson& node, const std::string& path) {
  const LocatedJson *name = node.find("class_path"), *arguments = node.find("init_args");
  if (node.members.empty()) return;
  if (!name || !name->value.is_string()) return refuse(tool_.find(path)->name, node, path);
  const std::string word = name->value.get<std::string>();
  set("strategy.name", word.substr(word.rfind('.') + 1), *name, path + ".class_path");
  if (!arguments) return;
  // A file of DeepSpeed replaces all other arguments. It may lack a loss scale, and has no process group.
  static const std::set<std::string> kept = {"config",      "timeout",           "process_group_backend", "initial_scale_power",
                                             "loss_scale",  "loss_scale_window", "hysteresis",            "min_loss_scale"};
  const bool configured = deepspeed_importer().takes(word.substr(word.rfind('.') + 1)) &&
                          !given(path + ".init_args.config").is_null();
  for (const auto& [argument, its] : arguments->members) {
    const std::string own = path + ".init_args." + argument;
    json value = its.plain();
    if (argument == "timeout" && value.is_string() && is_time_of_day(value.get<std::string>()))
      value = "0:" + value.get<std::string>();  // Python's timedelta, without days
    const auto* known = find_foreign_name(argument, find_argument);
    if (has_no_value(value)) continue;
    if (known && known->in_strategy && !known->only_suggested)
      apply({.name = *known}, own, its);
    else if (configured && !kept.contains(argument))
      note(its, own, "no effect beside `config`");
    else  // an argument may be a class, too, as mixed_precision
      set("strategy." + argument, class_arguments(value), its, own);
  }
}

void ToolTranslator::stop_early(json& arguments, const LocatedJson& node, const std::string& path) {
  json rule = json::object();
  for (const char* name : {"monitor", "patience", "min_delta", "mode"}) {
    json value = arguments.value(name, json());
    arguments.erase(name);
    if (!value.is_null()) rule[name] = std::move(value);
  }
  const auto* monitor = tool_.find("trainer.callbacks.ModelCheckpoint.monitor");
  if (rule.contains("monitor")) rule["monitor"] = monitor->name.meaning(rule["monitor"])->front().second;
  if (!rule.empty()) set("train.early_stopping", rule, node, path);
}

namespace {

const ToolNames& tool_called(const std::string& tool) {
  const auto found = std::ranges::find(tool_names(), tool, &ToolNames::tool);
  RUNNER_CHECK(found != tool_names().end(), "{}", tool);
  return *found;
}

}  // namespace

std::string tool_as_recipe(const std::string& tool, const LocatedJson& configuration, const RecipeCheck& check) {
  return as_sections(ToolTranslator(tool_called(tool)).all(configuration, check));
}

}  // namespace runner
