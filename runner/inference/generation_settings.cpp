#include "runner/inference/generation_settings.hpp"

#include <algorithm>
#include <set>
#include <type_traits>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/hf.hpp"
#include "runner/pretrained/model_files.hpp"

namespace runner {

namespace {

using nlohmann::json;

template <class Value>
void put(json& object, const char* key, const std::optional<Value>& value) {
  if (value) object[key] = *value;
}
template <class Value>
void take(const json& object, const char* key, std::optional<Value>& value) {
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return;
  constexpr bool flag = std::is_same_v<Value, bool>, whole = std::is_integral_v<Value>;
  const bool right = flag ? found->is_boolean() : whole ? found->is_number_integer() : found->is_number();
  if (!right)
    throw usage_error("{} = {}: must be {}", key, shortened_json(*found),
                      flag    ? "true or false"
                      : whole ? "a whole number"
                              : "a number");
  value = found->get<Value>();
}

json read_object(const fs::path& file) {
  return file.empty() || !has_model_file(file) ? json::object() : read_json_object(file);
}

/// Whether a setting of generation_config.json changes what transformers generates. Most have no effect if they are 0, 1, false or empty.
bool has_effect(const std::string& key, const json& value) {
  static const std::set<std::string> lengths = {"no_repeat_ngram_size", "min_new_tokens", "min_length"};
  static const std::set<std::string> ids = {"forced_bos_token_id", "forced_eos_token_id"};
  if (value.is_null() || value == false || value == "" || value.empty()) return false;
  if (value == 0) return ids.contains(key);
  return value != 1 || ids.contains(key) || lengths.contains(key);
}

/// Says which settings of generation_config.json are not used here, although they have an effect in transformers.
void note_unused(const json& config, const fs::path& file) {
  static const std::set<std::string> known = {
      "max_new_tokens", "do_sample",          "temperature",          "top_k",        "top_p",
      "min_p",          "repetition_penalty", "bos_token_id",         "eos_token_id", "pad_token_id",
      "use_cache",      "_from_model_config", "transformers_version", "chat_format",  "decoder_start_token_id"};
  std::vector<std::string> unused;
  for (const auto& [key, value] : config.items())
    if (!known.contains(key) && has_effect(key, value))
      unused.push_back(fmt::format("{} = {}", shortened_text(escape_invalid_utf8(key)), shortened_json(value)));
  if (!unused.empty()) log::warning("{}: these settings are not used: {}", file.string(), first_ten(unused));
}

/// The ids of eos_token_id: a number, a list, or nothing.
std::optional<std::vector<int32_t>> ends_of(const json& config, const fs::path& file) {
  const auto found = config.find("eos_token_id");
  if (found == config.end() || found->is_null()) return {};
  if (found->is_number_integer()) return std::vector{found->get<int32_t>()};
  const auto number = [](const json& item) { return item.is_number_integer(); };
  if (!found->is_array() || !std::all_of(found->begin(), found->end(), number))
    throw usage_error("{}: eos_token_id is neither a number nor a list of numbers", file.string());
  return found->get<std::vector<int32_t>>();
}

std::vector<int32_t> ends_of(const fs::path& folder, const Tokenizer& tokenizer) {
  if (!folder.empty())
    for (const char* name : {"generation_config.json", "config.json"})
      if (const auto ends = ends_of(read_object(folder / name), folder / name)) return *ends;
  const auto eos = tokenizer.special_tokens().eos;
  return eos ? std::vector{*eos} : std::vector<int32_t>();
}

void check(const GenerationSettings& settings) {
  const auto& sampling = settings.sampling;
  const auto refuse = [](const char* option, auto value, const char* allowed) {
    throw usage_error("{} {}: must be {}", option, value, allowed);
  };
  if (settings.max_new_tokens < 1) refuse("--max-new-tokens", settings.max_new_tokens, "at least 1");
  if (!(sampling.temperature >= 0)) refuse("--temperature", sampling.temperature, "0 (greedy) or more");
  if (sampling.top_k < 0) refuse("--top-k", sampling.top_k, "0 (all tokens) or more");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1)) refuse("--top-p", sampling.top_p, "above 0 and at most 1");
  if (!(sampling.min_p >= 0 && sampling.min_p <= 1)) refuse("--min-p", sampling.min_p, "from 0 to 1");
  if (!(sampling.repetition_penalty > 0)) refuse("--repetition-penalty", sampling.repetition_penalty, "above 0");
  for (const auto& text : settings.stop)
    if (text.empty()) throw usage_error("--stop: a stop text must not be empty");
}

}  // namespace

void to_json(json& object, const GenerationRequest& request) {
  object = json::object();
  put(object, "max_new_tokens", request.max_new_tokens);
  put(object, "top_k", request.top_k);
  put(object, "temperature", request.temperature);
  put(object, "top_p", request.top_p);
  put(object, "min_p", request.min_p);
  put(object, "repetition_penalty", request.repetition_penalty);
  object["stop"] = request.stop;
  object["ignore_eos"] = request.ignore_eos;
}

void from_json(const json& object, GenerationRequest& request) {
  take(object, "max_new_tokens", request.max_new_tokens);
  take(object, "top_k", request.top_k);
  take(object, "temperature", request.temperature);
  take(object, "top_p", request.top_p);
  take(object, "min_p", request.min_p);
  take(object, "repetition_penalty", request.repetition_penalty);
  request.stop = object.value("stop", request.stop);
  request.ignore_eos = object.value("ignore_eos", false);
}

std::optional<int64_t> configured_bos(const fs::path& folder) {
  std::optional<int64_t> bos;
  if (!folder.empty()) take(read_object(folder / "config.json"), "bos_token_id", bos);
  if (bos && *bos < 0) bos.reset();  // some write -1 for none
  return bos;
}

GenerationSettings generation_settings(const GenerationRequest& request, const fs::path& folder,
                                       const Tokenizer& tokenizer, int64_t default_new_tokens) {
  GenerationRequest defaults;
  const fs::path file = folder.empty() ? fs::path() : folder / "generation_config.json";
  const json config = read_object(file);
  bool draws = false;
  try {
    take(config, "max_new_tokens", defaults.max_new_tokens);
    std::optional<bool> sampled;
    take(config, "do_sample", sampled);
    draws = sampled.value_or(false);
    if (draws) {
      take(config, "top_k", defaults.top_k);
      take(config, "temperature", defaults.temperature);
      take(config, "top_p", defaults.top_p);
      take(config, "min_p", defaults.min_p);
    }
    take(config, "repetition_penalty", defaults.repetition_penalty);
  } catch (const Error& error) {
    throw usage_error("{}: {}", file.string(), error.what());
  }
  note_unused(config, file);
  const bool user_draws = request.top_k || request.top_p || request.min_p;
  constexpr int64_t usual_top_k = 50;  // of transformers, if generation_config.json asks for sampling
  const auto first = [](const auto& a, const auto& b, auto otherwise) { return a ? *a : b ? *b : otherwise; };
  GenerationSettings settings;
  settings.max_new_tokens = first(request.max_new_tokens, defaults.max_new_tokens, default_new_tokens);
  settings.sampling = {.temperature = first(request.temperature, defaults.temperature, draws || user_draws ? 1.0 : 0.0),
                       .top_k = first(request.top_k, defaults.top_k, draws ? usual_top_k : 0),
                       .top_p = first(request.top_p, defaults.top_p, 1.0),
                       .min_p = first(request.min_p, defaults.min_p, 0.0),
                       .repetition_penalty = first(request.repetition_penalty, defaults.repetition_penalty, 1.0)};
  settings.stop = request.stop;
  if (!request.ignore_eos) settings.eos = ends_of(folder, tokenizer);
  check(settings);
  return settings;
}

}  // namespace runner
