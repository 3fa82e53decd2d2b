#include "runner/inference/sentence_settings.hpp"

#include <nlohmann/json.hpp>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"

namespace runner {

using nlohmann::json;

namespace {

json read_json(const fs::path& file) {
  auto parsed = foreign_json(read_file(file));
  if (parsed.is_discarded()) throw usage_error("{} is not JSON", file.string());
  return parsed;
}

/// sentence_transformers/models/Pooling.py: a switch for each mode, or "pooling_mode".
std::string pooling_of(const fs::path& file) {
  const auto config = read_json(file);
  std::vector<std::string> modes;
  if (config.contains("pooling_mode") && config.at("pooling_mode").is_string())
    modes.push_back(config.at("pooling_mode").get<std::string>());
  for (const auto& [key, value] : config.items())
    if (const std::string prefix = "pooling_mode_"; key.starts_with(prefix) && value == true)
      modes.push_back(key.substr(prefix.size()));
  if (modes.size() == 1 && (modes[0] == "mean_tokens" || modes[0] == "mean")) return "mean";
  if (modes.size() == 1 && (modes[0] == "cls_token" || modes[0] == "cls")) return "cls";
  if (modes.size() == 1 && modes[0] == "lasttoken") return "last";
  throw usage_error(
      "{}: the pooling {} is not supported; mean_tokens, cls_token and lasttoken are, and --pooling chooses one",
      file.string(), modes.empty() ? "is missing, and none" : join(modes, " with "));
}

/// sentence_transformers/SentenceTransformer.py: prompts, and the name of that which is used if none is asked for.
std::string default_prompt(const fs::path& file) {
  const auto config = read_json(file);
  const auto name = config.value("default_prompt_name", json());
  if (!name.is_string()) return "";
  const auto prompts = config.value("prompts", json::object());
  if (!prompts.contains(name.get<std::string>()) || !prompts.at(name.get<std::string>()).is_string())
    throw usage_error("{}: default_prompt_name = {} is not one of the prompts", file.string(), name.dump());
  return prompts.at(name.get<std::string>());
}

}  // namespace

SentenceSettings sentence_settings(const fs::path& folder, bool reads_pooling) {
  SentenceSettings settings;
  if (folder.empty() || !fs::is_regular_file(folder / "modules.json")) return settings;
  const auto file = folder / "modules.json";
  const auto modules = read_json(file);
  if (!modules.is_array()) throw usage_error("{} is not a list of modules", file.string());
  for (const auto& module : modules) {
    const auto type = module.value("type", ""), kind = type.substr(type.rfind('.') + 1);
    if (kind == "Pooling" && reads_pooling)
      settings.pooling = pooling_of(folder / module.value("path", "") / "config.json");
    if (kind == "Normalize") settings.normalize = true;
    if (kind != "Pooling" && kind != "Normalize" && kind != "Transformer")
      throw usage_error("{}: the module {} is not supported; Transformer, Pooling and Normalize are", file.string(),
                        type);
  }
  if (const auto lengths = folder / "sentence_bert_config.json"; fs::is_regular_file(lengths)) {
    const auto config = read_json(lengths);
    if (config.contains("max_seq_length") && config.at("max_seq_length").is_number_integer())
      settings.max_seq_length = config.at("max_seq_length").get<int64_t>();
    if (settings.max_seq_length.value_or(1) < 1)
      throw usage_error("{}: max_seq_length = {} must be at least 1", lengths.string(), *settings.max_seq_length);
    settings.lower_case = config.value("do_lower_case", false);
  }
  if (const auto prompts = folder / "config_sentence_transformers.json"; fs::is_regular_file(prompts))
    settings.prompt = default_prompt(prompts);
  return settings;
}

}  // namespace runner
