// The common parts of the models: vocabularies, the cache of words, and the choice of a model. The models WordLevel and WordPiece.
#include "runner/tokenizers/models.hpp"

#include "runner/base/foreign_json.hpp"
#include "runner/base/limits.hpp"
#include "runner/tokenizers/unicode.hpp"

namespace runner {

namespace {

constexpr size_t cache_slots = size_t{1} << 16;
constexpr size_t cached_words_max = cache_slots / 2;
constexpr size_t cached_bytes_max = size_t{2} << 20;
constexpr size_t cached_tokens_max = size_t{1} << 18;

/// Each word is a token, or unknown.
class WordLevel final : public TokenModel {
 public:
  explicit WordLevel(const JsonPlace& model)
      : TokenModel(Vocabulary(model["vocab"])), unknown_text_(model.string_or("unk_token", "<unk>")) {
    unknown_ = vocabulary_.find(unknown_text_);
  }
  void tokenize(std::string_view word, ModelSpace&, std::vector<Token>& out) const override {
    int32_t id = vocabulary_.find(word);
    if (id < 0) id = unknown_;
    if (id < 0)
      throw usage_error("the tokenizer has neither a token for \"{}\" nor the token {} for unknown words",
                        shortened_text(std::string(word)), shortened_text(unknown_text_));
    out.push_back({id, 0, word.size()});
  }
  std::optional<std::string> unknown_token() const override { return unknown_text_; }

 private:
  std::string unknown_text_;
  int32_t unknown_ = -1;
};

/// The longest token that begins a word, then the longest that continues it.
class WordPiece final : public TokenModel {
 public:
  explicit WordPiece(const JsonPlace& model)
      : TokenModel(Vocabulary(model["vocab"])),
        unknown_text_(model.string_or("unk_token", "[UNK]")),
        prefix_(model.string_or("continuing_subword_prefix", "##")) {
    if (model.has("max_input_chars_per_word"))
      longest_word_ = static_cast<size_t>(model["max_input_chars_per_word"].integer(0, 1 << 30));
    unknown_ = vocabulary_.find(unknown_text_);
    if (unknown_ < 0)
      model["unk_token"].refuse(fmt::format("\"{}\" is not in the vocabulary", shortened_text(unknown_text_)));
    for (int32_t id = 0; id < vocabulary_.id_end(); ++id)
      if (const auto* token = vocabulary_.token(id); token && token->starts_with(prefix_))
        continuations_.put(std::string_view(*token).substr(prefix_.size()), id);
  }

  void tokenize(std::string_view word, ModelSpace& space, std::vector<Token>& out) const override {
    space.cache.append(word, out, [&] {
      const size_t before = out.size();
      if (unicode::count(word) <= longest_word_ && cut(word, out)) return;
      out.resize(before);
      out.push_back({unknown_, 0, word.size()});
    });
  }
  std::optional<std::string> unknown_token() const override { return unknown_text_; }

 private:
  bool cut(std::string_view word, std::vector<Token>& out) const {
    for (size_t begin = 0; begin < word.size();) {
      size_t end = word.size();
      int32_t id = -1;
      for (; end > begin; end = unicode::previous(word, end)) {
        const auto piece = word.substr(begin, end - begin);
        id = begin == 0 ? vocabulary_.find(piece) : continuations_.find(piece);
        if (id >= 0) break;
      }
      if (id < 0) return false;
      out.push_back({id, begin, end});
      begin = end;
    }
    return true;
  }

  StringIds continuations_;  ///< without the prefix
  std::string unknown_text_, prefix_;
  size_t longest_word_ = 100;
  int32_t unknown_ = -1;
};

}  // namespace

std::string too_long_token(std::string_view token) {
  return fmt::format("a token has {} bytes; at most {} are allowed", token.size(), token_bytes_max);
}

bool WordCache::find(std::string_view word, uint64_t hash, std::span<const Token>& tokens) const {
  if (slots_.empty()) return false;
  for (size_t i = hash & (cache_slots - 1);; i = (i + 1) & (cache_slots - 1)) {
    const Slot& slot = slots_[i];
    if (slot.generation != generation_) return false;
    if (slot.hash == hash && std::string_view(words_).substr(slot.word, slot.word_size) == word) {
      tokens = {tokens_.data() + slot.tokens, slot.count};
      return true;
    }
  }
}

void WordCache::put(std::string_view word, uint64_t hash, std::span<const Token> tokens) {
  if (slots_.empty()) slots_.resize(cache_slots);
  if (used_ >= cached_words_max || words_.size() + word.size() > cached_bytes_max ||
      tokens_.size() + tokens.size() > cached_tokens_max) {
    ++generation_;
    used_ = 0;
    words_.clear();
    tokens_.clear();
  }
  size_t i = hash & (cache_slots - 1);
  while (slots_[i].generation == generation_) i = (i + 1) & (cache_slots - 1);
  slots_[i] = {hash,
               static_cast<uint32_t>(words_.size()),
               static_cast<uint32_t>(word.size()),
               static_cast<uint32_t>(tokens_.size()),
               static_cast<uint32_t>(tokens.size()),
               generation_};
  words_ += word;
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  ++used_;
}

Vocabulary::Vocabulary(const JsonPlace& vocab) {
  if (!vocab.json().is_object()) vocab.refuse("the vocabulary must be an object: {\"token\": id, ...}");
  ids_.reserve(vocab.json().size());
  // Real vocabularies have few ids without a token, and each id takes memory.
  constexpr int64_t holes = int64_t{1} << 20, spread = 8;
  const int64_t entries = std::ssize(vocab.json()), usual = holes + spread * entries;
  for (const auto& [token, id] : vocab.json().items()) {
    constexpr int64_t most = int64_t{1} << 28;
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > most)
      (void)vocab[token].integer(0, most);
    if (id.get<int64_t>() > usual)
      vocab[token].refuse(
          fmt::format("the id {} is far above the number of entries, {}: the file is damaged", id.dump(), entries));
    if (token.size() > token_bytes_max) vocab.refuse(too_long_token(token));
    put(token, id.get<int32_t>());
  }
}

void Vocabulary::put(const std::string& token, int32_t id) {
  ids_.put(token, id);
  if (std::ssize(tokens_) <= id) tokens_.resize(static_cast<size_t>(id) + 1);
  tokens_[static_cast<size_t>(id)] = token;
}

const std::string* Vocabulary::token(int32_t id) const {
  if (id < 0 || id >= id_end()) return nullptr;
  const auto& token = tokens_[static_cast<size_t>(id)];
  return token ? &*token : nullptr;
}

std::unique_ptr<TokenModel> read_model(const JsonPlace& model) {
  size_t kind = 0;
  if (model.has("type"))
    kind = model["type"].choice({"BPE", "WordPiece", "Unigram", "WordLevel"});
  else if (!model.has("merges"))  // old files do not name the type
    kind = model.has("continuing_subword_prefix") ? 1 : model["vocab"].json().is_array() ? 2 : 3;
  switch (kind) {
    case 0:
      return read_bpe(model);
    case 1:
      return std::make_unique<WordPiece>(model);
    case 2:
      return read_unigram(model);
    default:
      return std::make_unique<WordLevel>(model);
  }
}

}  // namespace runner
