#include "runner/tokenizers/hf_tokenizer.hpp"

#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/pretrained/model_files.hpp"
#include "runner/tokenizers/hf_impl.hpp"

namespace runner {

namespace {

/// The decoder ByteLevel without a file.
std::unique_ptr<TokenDecoder> byte_level_decoder() {
  static const nlohmann::json json = {{"type", "ByteLevel"}};
  static const fs::path none;
  return read_decoder(JsonPlace(none, json));
}

void check_text(std::string_view text) {
  if (unicode::is_ascii(text)) return;
  if (const auto bad = first_invalid_utf8(text))
    throw usage_error("the text is not UTF-8: byte 0x{:02x} at offset {}", static_cast<unsigned char>(text[*bad]),
                      *bad);
}

/// A token is a string, or an object with the string as `content`. Returns its id, or nothing for null.
std::optional<int32_t> role(const JsonPlace& file, const char* key, const HfTokenizer::Impl& tokenizer) {
  if (!file.has(key)) return {};
  const auto place = file[key];
  const auto content = place.json().is_object() ? place["content"].string() : place.string();
  auto id = tokenizer.added.find(content);
  if (!id) id = tokenizer.model->token_to_id(content);
  if (!id) place.refuse(fmt::format("tokenizer.json has no token \"{}\"", shortened_text(content)));
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

/// Takes the special tokens that tokenizer_config.json and special_tokens_map.json of a folder name.
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

}  // namespace

/// A space for the time of one call.
class HfTokenizer::Impl::Lease {
 public:
  explicit Lease(const Impl& owner) : owner_(owner) {
    const std::lock_guard lock(owner_.mutex);
    if (!owner_.spaces.empty()) {
      space_ = std::move(owner_.spaces.back());
      owner_.spaces.pop_back();
    }
    if (!space_) space_ = std::make_unique<Space>();
  }
  ~Lease() {
    const std::lock_guard lock(owner_.mutex);
    owner_.spaces.push_back(std::move(space_));
  }
  Space& operator*() const { return *space_; }

 private:
  const Impl& owner_;
  std::unique_ptr<Space> space_;
};

void HfTokenizer::Impl::finish() {
  origins_needed = pre_tokenizer && pre_tokenizer->needs_origin() && normalizer && !normalizer->keeps_start();
  rules = find_cut_rules(*this);
  if (pre_tokenizer && pre_tokenizer->ends_with_bytes() && model->take_bytes()) pre_tokenizer->leave_bytes();
}

const std::string* HfTokenizer::Impl::token_text(int32_t id) const {
  if (const auto* token = added.token(id)) return &token->content;
  return model->id_to_token(id);
}

/// `out` receives the tokens.
template <typename Out>
void HfTokenizer::Impl::encode_part(Draft& draft, Space& space, bool continues, Out&& out) const {
  if (draft.text().empty()) return;
  auto& pieces = space.drafts.pieces;
  pieces.assign(1, {0, draft.text().size(), draft.origin_of(0)});
  if (pre_tokenizer) pre_tokenizer->apply(draft, space.drafts, continues);
  const auto text = draft.text();
  for (const TextPiece& piece : pieces) {
    space.tokens.clear();
    model->tokenize(text.substr(piece.begin, piece.end - piece.begin), space.model, space.tokens);
    for (Token token : space.tokens) {
      if (draft.tracked() && piece.begin + token.end <= piece.end && token.begin < token.end) {
        const auto [begin, end] = draft.place(piece.begin + token.begin, piece.begin + token.end);
        token.begin = begin;
        token.end = end;
      }
      out(token);
    }
  }
}

template <typename Out>
void HfTokenizer::Impl::encode(std::string_view text, bool tracked, bool continues, Out&& out) const {
  const Lease lease(*this);
  Space& space = *lease;
  space.drafts.pattern_time = PatternTime(text.size());
  auto& sections = space.sections;
  sections.clear();
  if (added.raw().empty())
    sections.push_back({0, text.size(), nullptr});
  else
    added.raw().find(text, sections);
  for (const TextSection& section : sections) {
    if (section.token) {
      out(Token{section.token->id, section.begin, section.end});
      continue;
    }
    Draft& draft = space.draft;
    draft.reset(text.substr(section.begin, section.end - section.begin), section.begin, tracked);
    const bool first = continues && section.begin == 0;
    if (normalizer && !draft.text().empty()) normalizer->apply(draft, space.drafts, first);
    if (added.normalized().empty()) {
      encode_part(draft, space, first, out);
      continue;
    }
    space.inner.clear();
    added.normalized().find(draft.text(), space.inner);
    for (const TextSection& inner : space.inner) {
      if (inner.token) {
        Token token{inner.token->id, 0, 0};
        if (tracked) {
          const auto [begin, end] = draft.place(inner.begin, inner.end);
          token.begin = begin;
          token.end = end;
        }
        out(token);
      } else {
        space.part.take(draft, inner.begin, inner.end);
        encode_part(space.part, space, first && inner.begin == 0, out);
      }
    }
  }
}

HfTokenizer::HfTokenizer(const fs::path& file) : impl_(std::make_unique<Impl>()) {
  auto& impl = *impl_;
  const auto json = read_json_file(file);
  const JsonPlace root(file, json);
  if (!json.is_object() || !json.contains("model")) root.refuse("this is not a tokenizer.json: it has no `model`");
  const auto part = [&](const char* key) {
    static const nlohmann::json null;
    return json.contains(key) ? root[key] : JsonPlace(file, null);
  };
  impl.normalizer = read_normalizer(part("normalizer"));
  impl.pre_tokenizer = read_pre_tokenizer(part("pre_tokenizer"));
  impl.model = read_model(root["model"]);
  impl.post_processor = read_post_processor(part("post_processor"));
  impl.decoder = read_decoder(part("decoder"));
  if (root.has("added_tokens")) impl.added.read(root["added_tokens"], *impl.model, impl.normalizer.get());
  if (vocab_size() == 0) root["model"]["vocab"].refuse("the vocabulary is empty");
  impl.hash = xxh3_hex(read_model_file(file));
  impl.files = tokenizer_files(file);
  if (file.filename() == "tokenizer.json") read_token_roles(file.has_parent_path() ? file.parent_path() : ".", impl);
  if (const auto unknown = impl.model->unknown_token(); unknown && !impl.roles.unk)
    impl.roles.unk = token_to_id(*unknown);
  for (const char* usual : {"[MASK]", "<mask>"})
    if (!impl.roles.mask) impl.roles.mask = token_to_id(usual);
  impl.finish();
}

HfTokenizer::HfTokenizer(Parts parts) : impl_(std::make_unique<Impl>()) {
  auto& impl = *impl_;
  impl.model = std::move(parts.model);
  const nlohmann::json split = {
      {"type", "Sequence"},
      {"pretokenizers",
       {{{"type", "Split"}, {"pattern", {{"Regex", parts.expression}}}, {"behavior", "Isolated"}, {"invert", false}},
        {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}};
  static const fs::path none;
  impl.pre_tokenizer = read_pre_tokenizer(JsonPlace(none, split));
  static const nlohmann::json nfc = {{"type", "NFC"}};
  if (parts.nfc) impl.normalizer = read_normalizer(JsonPlace(none, nfc));
  impl.decoder = byte_level_decoder();
  for (const auto& [content, id] : parts.special)
    impl.added.put({.id = id, .content = content, .normalized = false, .special = true});
  impl.added.finish(nullptr);
  impl.roles = parts.roles;
  if (!parts.before.empty()) impl.post_processor = make_frame(parts.before, {});
  impl.hash = std::move(parts.hash);
  impl.files = std::move(parts.files);
  impl.finish();
}

HfTokenizer::~HfTokenizer() = default;

TokenFrame HfTokenizer::frame(bool pair) const {
  auto parts = text_frame(pair);
  if (impl_->post_processor) impl_->post_processor->frame(pair, parts);
  return parts;
}

int64_t HfTokenizer::vocab_size() const { return std::max<int64_t>(impl_->model->id_end(), impl_->added.id_end()); }

std::vector<int32_t> HfTokenizer::encode(std::string_view text, bool add_special_tokens) const {
  check_text(text);
  std::vector<int32_t> ids, after;
  ids.reserve(text.size() / 4 + 8);
  if (add_special_tokens && impl_->post_processor) impl_->post_processor->around(ids, after);
  impl_->encode(text, impl_->origins_needed, false, [&](const Token& token) { ids.push_back(token.id); });
  ids.insert(ids.end(), after.begin(), after.end());
  return ids;
}

std::vector<int32_t> HfTokenizer::encode_continuation(std::string_view text) const {
  check_text(text);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);
  impl_->encode(text, impl_->origins_needed, true, [&](const Token& token) { ids.push_back(token.id); });
  return ids;
}

std::vector<Token> HfTokenizer::encode_with_offsets(std::string_view text, bool add_special_tokens) const {
  check_text(text);
  std::vector<int32_t> before, after;
  if (add_special_tokens && impl_->post_processor) impl_->post_processor->around(before, after);
  std::vector<Token> tokens;
  const auto add = [&](const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) tokens.push_back({id, 0, 0, /*added=*/true});
  };
  add(before);
  impl_->encode(text, true, false, [&](const Token& token) { tokens.push_back(token); });
  add(after);
  return tokens;
}

std::string HfTokenizer::decode(std::span<const int32_t> tokens, bool skip_special_tokens) const {
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  for (int32_t id : tokens) {
    const auto* text = impl_->token_text(id);
    if (!text) throw usage_error("token {} is not in the tokenizer's vocabulary of {}", id, vocab_size());
    if (!skip_special_tokens || !is_special(id)) texts.push_back(*text);
  }
  if (!impl_->decoder) return join(texts, " ");
  impl_->decoder->apply(texts);
  return join(texts, "");
}

std::optional<int32_t> HfTokenizer::token_to_id(std::string_view token) const {
  const auto id = impl_->added.find(token);
  return id ? id : impl_->model->token_to_id(token);
}

std::optional<std::string> HfTokenizer::id_to_token(int32_t id) const {
  const auto* text = impl_->token_text(id);
  return text ? std::optional(*text) : std::nullopt;
}

SpecialTokens HfTokenizer::special_tokens() const { return impl_->roles; }
bool HfTokenizer::is_special(int32_t id) const { return impl_->added.is_special(id); }
const std::string& HfTokenizer::hash() const { return impl_->hash; }
std::vector<Tokenizer::File> HfTokenizer::files() const { return impl_->files; }

std::optional<size_t> HfTokenizer::safe_split(std::string_view text, size_t at_most) const {
  return find_cut(impl_->rules, text, at_most);
}

}  // namespace runner
