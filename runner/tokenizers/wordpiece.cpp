// WordPiece: the longest token that begins a word, then the longest that continues it.
#include "runner/tokenizers/models.hpp"
#include "runner/tokenizers/unicode.hpp"

namespace runner {

namespace {

class WordPiece final : public TokenModel {
 public:
  explicit WordPiece(const JsonPlace& model)
      : vocabulary_(model["vocab"]),
        unknown_text_(model.string_or("unk_token", "[UNK]")),
        prefix_(model.string_or("continuing_subword_prefix", "##")) {
    if (model.has("max_input_chars_per_word"))
      longest_word_ = static_cast<size_t>(model["max_input_chars_per_word"].integer(0, 1 << 30));
    unknown_ = vocabulary_.find(unknown_text_);
    if (unknown_ < 0) model["unk_token"].refuse(fmt::format("\"{}\" is not in the vocabulary", unknown_text_));
    for (int32_t id = 0; id < vocabulary_.id_end(); ++id)
      if (const auto* token = vocabulary_.token(id); token && token->starts_with(prefix_))
        continuations_.put(std::string_view(*token).substr(prefix_.size()), id);
  }

  void tokenize(std::string_view word, ModelSpace& space, std::vector<Token>& out) const override {
    constexpr size_t cached_word_bytes_max = 64;
    const uint64_t hash = hash_of(word);
    std::span<const Token> known;
    if (word.size() <= cached_word_bytes_max && space.cache.find(word, hash, known)) {
      out.insert(out.end(), known.begin(), known.end());
      return;
    }
    const size_t before = out.size();
    if (unicode::count(word) > longest_word_ || !cut(word, out)) {
      out.resize(before);
      out.push_back({unknown_, 0, word.size()});
    }
    if (word.size() <= cached_word_bytes_max) space.cache.put(word, hash, std::span(out).subspan(before));
  }
  std::optional<int32_t> token_to_id(std::string_view token) const override {
    const int32_t id = vocabulary_.find(token);
    return id >= 0 ? std::optional(id) : std::nullopt;
  }
  const std::string* id_to_token(int32_t id) const override { return vocabulary_.token(id); }
  int64_t size() const override { return vocabulary_.size(); }
  int64_t id_end() const override { return vocabulary_.id_end(); }
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

  Vocabulary vocabulary_;
  StringIds continuations_;  ///< without the prefix
  std::string unknown_text_, prefix_;
  size_t longest_word_ = 100;
  int32_t unknown_ = -1;
};

}  // namespace

std::unique_ptr<TokenModel> read_wordpiece(const JsonPlace& model) { return std::make_unique<WordPiece>(model); }

}  // namespace runner
