#include "runner/import/tool_importer.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "runner/base/files.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/located_toml.hpp"
#include "runner/config/tool_names.hpp"
#include "runner/config/value_check.hpp"
#include "runner/import/deepspeed_keys.hpp"
#include "runner/import/located_yaml.hpp"
#include "runner/import/recipe_sections.hpp"

namespace runner {

namespace {

/// Whether a whole number of this size is exact.
bool is_countable(double number) { return std::abs(number) < 9e15; }

using nlohmann::json;

constexpr uintmax_t configuration_bytes_max = 1 << 20;

bool has_no_value(const json& value) {
  return value.is_null() || value == "" || (value.is_structured() && value.empty());
}

/// The translation of one file.
class ToolTranslator {
 public:
  explicit ToolTranslator(const ToolNames& tool) : tool_(tool) {}

  Imported all(const LocatedJson& configuration) {
    for (const auto& [name, node] : configuration.members) visit(name, node, nullptr);
    complete();
    check();
    std::ranges::stable_sort(notes_, {}, [](const auto& note) { return note.first; });
    for (auto& [line, text] : notes_) meaning_.notes.push_back(std::move(text));
    find_missing();
    return std::move(meaning_);
  }

 private:
  /// A table with a row, which is reported if one of its keys has none.
  struct Block {
    const ToolName* row;
    const LocatedJson* node;
    std::string path;
  };

  void note(const LocatedJson& node, const std::string& path, const std::string& text) {
    note_at(node.key_place, path, text);
  }
  void note_at(const Origin& place, const std::string& path, const std::string& text) {
    notes_.emplace_back(place.line, fmt::format("{}: `{}`: {}", place_of(place), path, text));
  }

  void set(const std::string& key, const json& value, const LocatedJson& node, const std::string& path) {
    if (value.is_null()) {
      unset_.insert(key);
      return;
    }
    // It is what a recipe has anyway, and the key may be for some models only.
    const Key* known = find_key(key);
    if (value.is_boolean() && known && value == known->default_value && key.starts_with("model.")) return;
    for (auto& before : meaning_.values) {
      if (before.key != key || before.value == value) continue;
      note(node, path, fmt::format("{} = {} is already set by `{}`", key, toml_value(before.value), before.path));
      return;
    }
    meaning_.values.push_back({.key = key, .value = value, .place = node.key_place, .path = path});
  }

  std::optional<ImportedValue> value_of(const std::string& key) const {
    const auto found = std::ranges::find(meaning_.values, key, &ImportedValue::key);
    return found == meaning_.values.end() ? std::nullopt : std::optional(*found);
  }

  void visit(const std::string& path, const LocatedJson& node, const Block* block) {
    const auto* row = tool_.find(path);
    if (!node.is_object || node.members.empty()) {
      if (row)
        apply(*row, path, node);
      else
        without_row(path, node, block);
      return;
    }
    const Block own{row, &node, path};
    for (const auto& [name, member] : node.members) visit(path + "." + name, member, row ? &own : block);
  }

  void apply(const ToolName& row, const std::string& path, const LocatedJson& node) {
    const auto& name = row.name;
    const NameConversion as = row.as;
    const json value = node.plain();
    if (has_no_value(value)) return;
    if (as == NameConversion::first || as == NameConversion::second) return item(name.key, as, node, path);
    if (as == NameConversion::steps || as == NameConversion::decay) {
      shares_.emplace_back(&row, &node, path);
      return;
    }
    if (as == NameConversion::datasets && read_datasets(name.key, node, path)) return;
    const auto meant = name.meaning ? name.meaning(value) : std::nullopt;
    if (!meant) return note(node, path, fmt::format("not translated: {}", name.refusal));
    for (const auto& [key, its_value] : *meant) set(key, its_value, node, path);
    const bool off = value == false || value == 0;
    if (meant->empty() && name.key.empty() && !off && name.note.starts_with("nothing to do: ") &&
        row.name.refusal.empty())
      note(node, path, name.note);
  }

  /// A name without a row: a name of Lightning, a key of recipes, or an unknown one.
  void without_row(const std::string& path, const LocatedJson& node, const Block* block) {
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

  static const Key* key_named(const std::string& name) {
    const auto& keys = key_table();
    const auto found = std::ranges::find(keys, name, [](const Key& key) { return key.name; });
    return found == keys.end() ? nullptr : &*found;
  }

  void item(const std::string& key, NameConversion as, const LocatedJson& node, const std::string& path) {
    json list = find_key(key)->default_value;
    for (const auto& before : meaning_.values)
      if (before.key == key) list = before.value;
    list[as == NameConversion::first ? 0 : 1] = node.value;
    std::erase_if(meaning_.values, [&](const auto& value) { return value.key == key; });
    set(key, list, node, path);
  }

  /// axolotl's list of { path, type, ds_type }. Only files can be read.
  bool read_datasets(const std::string& key, const LocatedJson& node, const std::string& path) {
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

  /// Notes what read_datasets() does not read of an entry.
  void list_untranslated(const json& entry, const std::string& file, const LocatedJson& node, const std::string& path) {
    std::vector<std::string> names;
    if (!entry.is_object()) return;
    for (const auto& [name, value] : entry.items())
      if (name != "path" && (name != "type" || !value.is_string()) && !has_no_value(value))
        names.push_back(fmt::format("`{}`", name));
    if (!names.empty()) note(node, path, fmt::format("{}: not translated: {}", file, runner::join(names, ", ")));
  }

  /// Values that depend on others.
  void complete() {
    const auto steps = value_of("train.max_steps"), epochs = value_of("train.max_epochs");
    const double all = steps && steps->value.is_number() ? steps->value.get<double>() : 0;
    for (const auto& [row, node, path] : shares_) {
      if (!node->value.is_number() || node->value == 0) continue;
      if (all <= 0 || !is_countable(node->value.get<double>() * all)) {
        note(*node, path, fmt::format("not translated: {}", row->name.refusal));
        continue;
      }
      const double share = node->value.get<double>() * all;
      const double count = row->as == NameConversion::decay ? std::round(share)
                           : tool_.tool == "axolotl"        ? std::trunc(share)
                                                            : std::ceil(share);  // each as its tool does
      set(row->name.key, static_cast<int64_t>(count), *node, path);
      if (row->as == NameConversion::decay) set("lr_scheduler.name", "wsd", *node, path);
    }
    if (epochs && steps && tool_.tool != "lightning") {
      note_at(epochs->place, epochs->path, fmt::format("no effect beside `{}`, which counts steps", steps->path));
      unset_.insert("train.max_epochs");
    }
    if (const auto project = value_of("logging.wandb_project"); project && !value_of("logging.loggers"))
      meaning_.values.push_back(
          {.key = "logging.loggers", .value = json::array({"wandb"}), .place = project->place, .path = project->path});
    std::erase_if(meaning_.values, [&](const auto& value) { return unset_.contains(value.key); });
    const auto name = std::ranges::find(meaning_.values, "strategy.name", &ImportedValue::key);
    if (name != meaning_.values.end()) std::rotate(meaning_.values.begin(), name, name + 1);
  }

  /// Values that a recipe would refuse are listed instead.
  void check() {
    std::set<std::string> wrong;
    for (auto& [key, value, place, path] : meaning_.values) {
      const Key* known = find_key(key);
      if (!known) continue;
      const bool whole = value.is_number_float() && value == std::floor(value.get<double>()) && is_countable(value);
      if (whole && known->type == Option::Type::integer) value = static_cast<int64_t>(value.get<double>());
      const json given = value;
      if (const auto mistake = check_value(*known, value)) {
        note_at(place, path, fmt::format("not translated: {} = {}: {}", key, toml_value(given), mistake->message));
        wrong.insert(key);
      }
    }
    std::erase_if(meaning_.values, [&](const auto& value) { return wrong.contains(value.key); });
  }

  void find_missing() {
    const auto family = value_of("model.name");
    std::vector<std::string> missing;
    for (const auto& key : key_table()) {
      const bool asked = key.family.empty() || (family && key.in_family(family->value));
      if (key.required && asked && key.section != "sweep" && !value_of(key.dotted())) missing.push_back(key.dotted());
    }
    if (!value_of("train.max_steps") && !value_of("train.max_epochs"))
      missing.push_back("train.max_steps or train.max_epochs");
    meaning_.notes.push_back(
        fmt::format("what the file leaves out has the defaults of recipes, not those of {}", tool_.title));
    if (!missing.empty())
      meaning_.notes.push_back(
          fmt::format("a recipe also needs {}; `runner init --from-hf FOLDER` writes [model]", join(missing, ", ")));
  }

  const ToolNames& tool_;
  Imported meaning_;
  std::vector<std::pair<int, std::string>> notes_;  ///< with their lines
  std::set<std::string> reported_;                  ///< blocks
  std::set<std::string> unset_;                     ///< keys that must not be set
  std::vector<std::tuple<const ToolName*, const LocatedJson*, std::string>> shares_;
};

const ToolNames& tool_called(const std::string& tool) {
  const auto found = std::ranges::find(tool_names(), tool, &ToolNames::tool);
  RUNNER_CHECK(found != tool_names().end(), "{}", tool);
  return *found;
}

/// How many names of a configuration have a row, and how many there are.
void count_known(const ToolNames& tool, const std::string& path, const LocatedJson& node, int& known, int& all) {
  ++all;
  if (tool.find(path)) ++known;
  for (const auto& [name, member] : node.members) count_known(tool, path + "." + name, member, known, all);
}

}  // namespace

std::vector<std::string> configuration_tools() {
  std::vector<std::string> tools;  // every command lists them; the tables themselves are read when they are needed
  for (const auto& names : names_files)
    if (names.tool != "other") tools.emplace_back(names.tool);
  return tools;
}

LocatedJson read_configuration(const std::string& file, bool is_json) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) throw usage_error("there is no file {}", file);
  if (fs::file_size(file) > configuration_bytes_max)
    throw usage_error("{} has {}; a configuration has at most 1 MiB", file,
                      format_bytes(static_cast<double>(fs::file_size(file))));
  const auto suffix = lower(fs::path(file).extension().string());
  if (is_json || suffix == ".json") return parse_located_json(read_file(file), file);
  if (suffix == ".toml") return parse_located_toml(read_file(file), file);
  if (suffix == ".yaml" || suffix == ".yml") return parse_located_yaml(read_file(file), file);
  throw usage_error("{}: a configuration is a file .json, .toml, .yaml or .yml", file);
}

std::string tool_of(const LocatedJson& configuration) {
  std::string best;
  int most = 1, of_deepspeed = 0, names = 0;
  for (const auto& [name, node] : configuration.members) {
    ++names;
    if (find_deepspeed_key(name)) ++of_deepspeed;
  }
  if (2 * of_deepspeed > names) return "deepspeed";
  for (const auto& tool : configuration_tools()) {
    int known = 0, all = 0;
    for (const auto& [name, node] : configuration.members) count_known(tool_called(tool), name, node, known, all);
    if (known > most && 3 * known >= all) {
      most = known;
      best = tool;
    }
  }
  return best;
}

std::string tool_as_recipe(const std::string& tool, const LocatedJson& configuration) {
  return as_sections(ToolTranslator(tool_called(tool)).all(configuration));
}

}  // namespace runner
