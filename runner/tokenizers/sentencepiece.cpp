// SentencePiece models.
#include <sentencepiece_processor.h>

#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/tokenizers/first_chunk.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"
#include "runner/tokenizers/json_place.hpp"

namespace runner {

namespace {

/// The model with add_dummy_prefix off. Protocol buffers merge concatenated messages, so appending a ModelProto that
/// contains only normalizer_spec (field 3) { add_dummy_prefix (field 3) = false } sets that one field.
std::string without_dummy_prefix(std::string model) { return model.append("\x1a\x02\x18\x00", 4); }

/// Calls `use(number, bytes)` for the fields of a protocol buffer that have bytes. False if it is damaged.
template <typename Use>
bool for_each_field(std::string_view message, const Use& use) {
  const auto number = [&](uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && !message.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(message[0]);
      message.remove_prefix(1);
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  };
  uint64_t tag = 0, length = 0;
  while (!message.empty()) {
    if (!number(tag)) return false;
    const auto kind = tag & 7;
    length = kind == 1 ? 8 : kind == 5 ? 4 : 0;
    if (kind == 2 || kind == 0 ? !number(length) : length == 0) return false;
    if (kind == 0) continue;
    if (length > message.size()) return false;
    if (kind == 2) use(tag >> 3, message.substr(0, length));
    message.remove_prefix(length);
  }
  return true;
}

/// Whether no text leads out of a character map: a trie in a double array, and the texts. The library does not check this.
bool is_sound_map(std::string_view map) {
  uint32_t size = 0;
  if (map.size() >= 4) std::memcpy(&size, map.data(), 4);
  if (map.size() < 4 || size == 0 || size % 1024 != 0 || size >= map.size() - 4 || map.back() != '\0') return false;
  std::vector<uint32_t> units(size / 4);
  std::memcpy(units.data(), map.data() + 4, size);
  const auto texts = map.size() - 4 - size;
  const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
  std::vector<bool> seen(units.size());
  std::vector<uint32_t> open{offset(units[0])};
  while (!open.empty()) {
    const auto node = open.back();
    open.pop_back();
    if (node >= units.size()) return false;
    if (seen[node]) continue;
    seen[node] = true;
    for (uint32_t label = 0; label < 256; ++label) {
      const auto unit = units[node ^ label];
      if ((unit & (1u << 31 | 0xffu)) != label) continue;
      const auto next = (node ^ label) ^ offset(unit);
      if (next >= units.size() || ((unit >> 8 & 1) != 0 && (units[next] & ((1u << 31) - 1)) >= texts)) return false;
      open.push_back(next);
    }
  }
  return true;
}

bool has_sound_maps(std::string_view model) {
  constexpr uint64_t normalizer = 3, denormalizer = 5, map = 2;
  bool sound = true;
  const auto in_spec = [&](uint64_t number, std::string_view bytes) {
    if (number == map && !bytes.empty()) sound = sound && is_sound_map(bytes);
  };
  const auto in_model = [&](uint64_t number, std::string_view bytes) {
    if (number == normalizer || number == denormalizer) sound = for_each_field(bytes, in_spec) && sound;
  };
  return for_each_field(model, in_model) && sound;
}

void load(sentencepiece::SentencePieceProcessor& processor, const std::string& model, const fs::path& path) {
  if (auto status = processor.LoadFromSerializedProto(model); !status.ok())
    throw usage_error("{} is not a SentencePiece model", path.string());
}

std::vector<int32_t> encode_with(const sentencepiece::SentencePieceProcessor& processor, std::string_view text) {
  std::vector<int> tokens;
  if (auto status = processor.Encode({text.data(), text.size()}, &tokens); !status.ok())
    throw environment_error("SentencePiece cannot encode the text: {}", status.ToString());
  return tokens;
}

std::optional<int32_t> existing(int id) { return id >= 0 ? std::optional<int32_t>(id) : std::nullopt; }

class SentencePieceTokenizer final : public Tokenizer {
 public:
  explicit SentencePieceTokenizer(const fs::path& model) : path_(model) {
    check_tokenizer_size(model, fs::file_size(model));
    std::string bytes = read_file(model);
    if (!has_sound_maps(bytes)) throw usage_error("{} is not a SentencePiece model", model.string());
    load(processor_, bytes, model);
    // A model that drops line ends treats them as spaces between words. Then the prefix of a part is that space.
    load(continuation_, without_dummy_prefix(bytes), model);
    if (encode_with(continuation_, "\n").empty()) load(continuation_, bytes, model);
    hash_ = xxh3_hex(bytes);
  }

  int64_t vocab_size() const override { return processor_.GetPieceSize(); }

  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens) const override {
    auto tokens = encode_with(processor_, text);
    if (auto bos = special_tokens().bos; add_special_tokens && bos) tokens.insert(tokens.begin(), *bos);
    return tokens;
  }

  std::vector<int32_t> encode_continuation(std::string_view text) const override {
    return encode_with(continuation_, text);
  }

  std::vector<Token> encode_with_offsets(std::string_view text, bool add_special_tokens) const override {
    std::vector<Token> tokens;
    if (auto bos = special_tokens().bos; add_special_tokens && bos) tokens.push_back({*bos, 0, 0, /*added=*/true});
    const auto pieces = processor_.EncodeAsImmutableProto({text.data(), text.size()});
    // Tokens at the end that are bytes of a character; the library gives its place to the last one only.
    size_t bytes = 0;
    for (const auto& piece : pieces.pieces()) {
      tokens.push_back({static_cast<int32_t>(piece.id()), piece.begin(), piece.end()});
      bytes = processor_.IsByte(static_cast<int>(piece.id())) ? bytes + 1 : 0;
      if (piece.begin() == piece.end()) continue;
      for (; bytes > 1; --bytes) {
        tokens[tokens.size() - bytes].begin = piece.begin();
        tokens[tokens.size() - bytes].end = piece.end();
      }
      bytes = 0;
    }
    return tokens;
  }

  std::string decode(std::span<const int32_t> tokens, bool skip_special_tokens) const override {
    std::vector<int> ids;
    for (int32_t token : tokens) {
      if (token < 0 || token >= vocab_size())
        throw usage_error("token {} is not in the tokenizer's vocabulary of {}", token, vocab_size());
      if (!skip_special_tokens || !is_special(token)) ids.push_back(token);
    }
    std::string text;
    if (auto status = processor_.Decode(ids, &text); !status.ok())
      throw environment_error("SentencePiece cannot decode the tokens: {}", status.ToString());
    return text;
  }

  std::optional<int32_t> token_to_id(std::string_view token) const override {
    const int id = processor_.PieceToId({token.data(), token.size()});
    if (id < 0 || processor_.IdToPiece(id) != token) return {};  // the library returns <unk> for other texts
    return id;
  }

  std::optional<std::string> id_to_token(int32_t id) const override {
    if (id < 0 || id >= vocab_size()) return {};
    return processor_.IdToPiece(id);
  }

  SpecialTokens special_tokens() const override {
    return {existing(processor_.bos_id()), existing(processor_.eos_id()), existing(processor_.pad_id()),
            existing(processor_.unk_id())};
  }

  bool is_special(int32_t id) const override { return processor_.IsControl(id) || processor_.IsUnknown(id); }

  std::optional<size_t> safe_split(std::string_view text, size_t at_most) const override {
    if (text.size() <= at_most) return text.size();
    if (at_most < 4) return {};
    const auto part = first_chunk(text, at_most);
    const bool between_words = text[part.size() - 1] == '\n' || text[part.size()] == ' ';
    return between_words ? std::optional(part.size()) : std::nullopt;
  }

  const std::string& hash() const override { return hash_; }

  std::vector<File> files() const override { return {{path_, "tokenizer.model"}}; }

 private:
  fs::path path_;
  sentencepiece::SentencePieceProcessor processor_, continuation_;
  std::string hash_;
};

}  // namespace

std::unique_ptr<Tokenizer> open_sentencepiece(const fs::path& model) {
  return std::make_unique<SentencePieceTokenizer>(model);
}

}  // namespace runner
