#include "runner/checkpoint/adapter_files.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// Keys of LoraConfig whose settings change the network in a way that is not built here.
constexpr const char* unsupported_keys[] = {
    "alora_invocation_tokens", "alora_invocation_string", "arrow_config", "layer_replication",
    "trainable_token_indices", "target_parameters",       "use_qalora",   "use_bdlora"};

/// Keys that are read, and keys that do not change a trained adapter. The rows are filled by hand.
// clang-format off
constexpr std::string_view known_keys[] = {
    "alpha_pattern", "auto_mapping", "base_model_name_or_path", "bias", "corda_config", "ensure_weight_tying", "eva_config",
    "exclude_modules", "fan_in_fan_out", "inference_mode", "init_lora_weights", "layers_pattern", "layers_to_transform",
    "loftq_config", "lora_alpha", "lora_bias", "lora_dropout", "lora_ga_config", "megatron_config", "megatron_core",
    "modules_to_save", "peft_type", "peft_version", "qalora_group_size", "r", "rank_pattern", "revision", "runtime_config",
    "target_modules", "task_type", "use_dora", "use_rslora"};
// clang-format on

}  // namespace

AdapterConfig::AdapterConfig(const fs::path& folder) : path_(folder / "adapter_config.json") {
  if (!fs::exists(path_)) throw usage_error("fine_tune.adapter: {} has no adapter_config.json", folder.string());
  values_ = read_json_object(path_);
}

template <typename T>
T AdapterConfig::get(const char* key, T otherwise) const {
  const auto found = values_.find(key);
  if (found == values_.end() || found->is_null()) return otherwise;
  try {
    return found->get<T>();
  } catch (const json::exception&) {
    throw usage_error("{}: {} = {} has another type than PEFT writes", path_.string(), key, shortened_json(*found));
  }
}

bool AdapterConfig::has(const std::string& key) const {
  const auto value = values_.value(key, json());
  return !value.is_null() && value != false && value != "" && !(value.is_structured() && value.empty());
}

std::string AdapterConfig::other_factor(const std::string& module, const Recipe::FineTune& fine_tune) const {
  const auto of_module = [&](const char* key, double otherwise) {
    const json patterns = get(key, json::object());
    for (const auto& [name, value] : patterns.items())
      if (module == name || module.ends_with("." + name)) return value.get<double>();
    return otherwise;
  };
  const double rank = of_module("rank_pattern", static_cast<double>(fine_tune.rank));
  const double alpha = of_module("alpha_pattern", fine_tune.alpha);
  const double factor = alpha / (fine_tune.rslora ? std::sqrt(rank) : rank);
  if (std::abs(factor - fine_tune.scale()) <= 1e-6 * fine_tune.scale()) return "";
  return fmt::format("`{}` has rank {} and lora_alpha {}, so its factor is {} instead of {}", module, rank, alpha,
                     factor, fine_tune.scale());
}

void AdapterConfig::check_keys() const {
  for (const char* key : unsupported_keys)
    if (has(key))
      throw usage_error("{}: {} = {} is not supported: the adapter is not a plain LoRA", path_.string(), key,
                        shortened_json(values_[key]));
  std::vector<std::string> unknown;
  for (const auto& [key, value] : values_.items())
    if (std::ranges::find(known_keys, key) == std::end(known_keys) && has(key))
      unknown.push_back(fmt::format("`{}`", shortened_text(escape_invalid_utf8(key))));
  if (!unknown.empty())
    log::warning("{}: keys that are not known have no effect: {}", path_.string(), first_ten(unknown));
}

void AdapterConfig::check_patterns() const {
  for (const char* key : {"rank_pattern", "alpha_pattern"}) {
    const json patterns = get(key, json::object());
    for (const auto& [pattern, value] : patterns.items())
      if (!value.is_number() || pattern.find_first_of("^$*+?()[]{}|\\") != std::string::npos)
        throw usage_error("{}: {} has \"{}\", which is not the end of a module's name", path_.string(), key,
                          shortened_text(pattern));
  }
}

std::string AdapterConfig::choices() const {
  std::vector<std::string> given;
  for (const char* key : {"layers_to_transform", "exclude_modules", "modules_to_save"})
    if (has(key)) given.push_back(fmt::format("{} = {}", key, shortened_json(values_[key])));
  return given.empty() ? "" : fmt::format(" (adapter_config.json has {})", join(given, ", "));
}

void AdapterConfig::check(const Recipe::FineTune& fine_tune) const {
  check_keys();
  check_patterns();
  if (const auto type = get<std::string>("peft_type", ""); type != "LORA")
    throw usage_error("{}: peft_type is \"{}\"; only LORA is read", path_.string(), shortened_text(type));
  if (const bool dora = get("use_dora", false); dora != fine_tune.has_magnitudes())
    throw usage_error("{}: use_dora is {}, and fine_tune.method is \"{}\"; set fine_tune.method = \"{}\"",
                      path_.string(), dora, fine_tune.method, dora ? "dora" : "lora");
  const auto rank = get<int64_t>("r", 8);
  if (rank != fine_tune.rank)
    throw usage_error("{}: r is {}, and fine_tune.rank is {}; set fine_tune.rank = {}", path_.string(), rank,
                      fine_tune.rank, rank);
  if (const auto init = values_.value("init_lora_weights", json()); init.is_string() && init != "gaussian")
    throw usage_error(
        "{}: init_lora_weights is {}: the adapter belongs to changed base weights; save it with PEFT as a plain LoRA "
        "(path_initial_model_for_weight_conversion)",
        path_.string(), shortened_json(init));
  const auto alpha = get<double>("lora_alpha", 8);
  const bool rslora = get("use_rslora", false);
  if (alpha != fine_tune.alpha || rslora != fine_tune.rslora)
    throw usage_error("{}: lora_alpha is {} and use_rslora is {}; set fine_tune.alpha = {} and fine_tune.rslora = {}",
                      path_.string(), alpha, rslora, alpha, rslora);
}

}  // namespace runner
