// The special tokens that tokenizer_config.json and special_tokens_map.json name.
#include "runner/pretrained/model_files.hpp"
#include "runner/tokenizers/hf_impl.hpp"

namespace runner {

namespace {

/// A token is a string, or an object with the string as `content`. Returns its id, or nothing for null.
std::optional<int32_t> role(const JsonPlace& file, const char* key, const HfTokenizer::Impl& tokenizer) {
  if (!file.has(key)) return {};
  const auto place = file[key];
  const auto content = place.json().is_object() ? place["content"].string() : place.string();
  auto id = tokenizer.added.find(content);
  if (!id) id = tokenizer.model->token_to_id(content);
  if (!id) place.refuse(fmt::format("tokenizer.json has no token \"{}\"", content));
  return id;
}

/// The tokenizers of Llama and Gemma take the tokens around a text from these settings, and not from tokenizer.json.
void apply_frame(const JsonPlace& file, HfTokenizer::Impl& tokenizer) {
  const auto type = file.string_or("tokenizer_class", "");
  const bool has_settings = file.has("add_bos_token") || file.has("add_eos_token");
  const bool uses_settings = type.starts_with("LlamaTokenizer") || type.starts_with("CodeLlamaTokenizer") ||
                             type.starts_with("GemmaTokenizer");
  if (!has_settings || !uses_settings) return;
  std::vector<int32_t> before, after;
  const auto add = [&](const char* key, bool otherwise, const char* token_key, std::optional<int32_t> id,
                       std::vector<int32_t>& ids) {
    if (!file.boolean_or(key, otherwise)) return;
    if (!id) file.refuse(fmt::format("{} is true, but there is no {}", key, token_key));
    ids.push_back(*id);
  };
  add("add_bos_token", true, "bos_token", tokenizer.roles.bos, before);
  add("add_eos_token", false, "eos_token", tokenizer.roles.eos, after);
  tokenizer.post_processor = make_frame(std::move(before), std::move(after));
}

}  // namespace

void read_token_roles(const fs::path& folder, HfTokenizer::Impl& tokenizer) {
  auto& roles = tokenizer.roles;
  // transformers prefers tokenizer_config.json.
  for (const char* name : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const fs::path file = folder / name;
    if (!has_model_file(file)) continue;
    const auto json = read_json_file(file);
    const JsonPlace root(file, json);
    const auto take = [&](std::optional<int32_t>& id, const char* key) {
      if (const auto found = role(root, key, tokenizer)) id = found;
    };
    take(roles.bos, "bos_token");
    take(roles.eos, "eos_token");
    take(roles.pad, "pad_token");
    take(roles.unk, "unk_token");
    take(roles.mask, "mask_token");
    if (name == std::string_view("tokenizer_config.json")) apply_frame(root, tokenizer);
  }
}

}  // namespace runner
