#include "runner/import/deepspeed_keys.hpp"

#include <map>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/tool_names.hpp"

namespace runner {

namespace {

using nlohmann::json;
using Type = Option::Type;
using Fate = DeepSpeedKey::Fate;

constexpr std::pair<const char*, Fate> fates[] = {
    {"recipe", Fate::recipe},   {"option", Fate::option},   {"handled", Fate::handled}, {"checked", Fate::checked},
    {"ignored", Fate::ignored}, {"refused", Fate::refused}, {"block", Fate::block},     {"inner", Fate::inner}};

Fate fate_of(const json& row) {
  for (const auto& [word, fate] : fates)
    if (row.contains(word) && row[word].is_string()) return fate;
  throw std::logic_error("schemas/names/deepspeed.toml: no fate in " + row.dump());
}

Type type_of(const std::string& word) {
  return word == "boolean" ? Type::boolean : word == "choice" ? Type::choice : Type::other;
}

DeepSpeedKey key_of(Fate fate, const std::string& path) {
  DeepSpeedKey key{{.name = path.substr(path.rfind('.') + 1), .type = Type::other, .may_be_infinite = true}};
  key.fate = fate;
  key.path = path;
  return key;
}

/// Adds a row of schemas/names/deepspeed.toml.
void add_row(const json& row, std::vector<DeepSpeedKey>& keys) {
  const Fate fate = fate_of(row);
  DeepSpeedKey key = key_of(fate, row.at(fates[static_cast<size_t>(fate)].first));
  key.default_value = row.value("value", json());
  key.note = row.value("why", "");
  key.target = row.value("target", fate == Fate::option ? key.name : "");
  key.old_name_of = row.value("old_name_of", "");
  key.open = row.value("open", false);
  if (row.contains("type")) {
    key.type = type_of(row["type"]);
    key.may_be_infinite = false;
    key.choices = row.value("choices", std::vector<std::string>());
  }
  if (fate == Fate::ignored || fate == Fate::refused)
    for (const auto& name : row.value("inner", std::vector<std::string>()))
      keys.push_back(key_of(Fate::inner, key.path + "." + name));
  keys.push_back(std::move(key));
}

}  // namespace

const std::vector<DeepSpeedKey>& deepspeed_keys() {
  static const auto table = [] {
    std::vector<DeepSpeedKey> keys;
    const json file = parse_names(deepspeed_text, "deepspeed");
    for (const auto& row : file.at("keys")) add_row(row, keys);
    return keys;
  }();
  return table;
}

const DeepSpeedKey* find_deepspeed_key(const std::string& path) {
  for (const auto& key : deepspeed_keys())
    if (key.path == path) return &key;
  return nullptr;
}

std::optional<std::string> refused_optimizer(const std::string& type) {
  constexpr const char* exact =
      "gradients are sent uncompressed; \"AdamW\" with communication_data_type \"bf16\" halves the size of float32";
  constexpr const char* no_mup =
      "learning rates do not scale with the model's width; use \"AdamW\" or \"SGD\" with groups in [optimizer]";
  constexpr const char* not_here = "it is not implemented here; use \"AdamW\"";
  constexpr const char* own_muon =
      "its parameters are not translated; optimizer.name = \"muon\" in a recipe is this optimizer";
  static const std::map<std::string, const char*> types = {
      {"lamb", not_here},    {"adagrad", not_here}, {"muon", own_muon},  {"onebitadam", exact}, {"zerooneadam", exact},
      {"onebitlamb", exact}, {"muadam", no_mup},    {"muadamw", no_mup}, {"musgd", no_mup},
  };
  auto found = types.find(lower(type));
  return found == types.end() ? std::nullopt : std::optional<std::string>(found->second);
}

std::optional<std::string> refused_scheduler(const std::string& type) {
  const std::string instead =
      "it is not implemented here; use \"WarmupDecayLR\" or \"WarmupCosineLR\", or a recipe's [lr_scheduler] (" +
      join(find_key("lr_scheduler.name")->choices, ", ") + ")";
  auto small = lower(type);
  return small == "onecycle" || small == "lrrangetest" ? std::optional(instead) : std::nullopt;
}

}  // namespace runner
