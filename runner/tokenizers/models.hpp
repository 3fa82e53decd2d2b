// The models of tokenizer.json: they turn a word into tokens. References: Sennrich et al. 2016 (BPE), Schuster and Nakajima 2012
// (WordPiece), Kudo 2018 (Unigram).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runner/tokenizers/flat_map.hpp"
#include "runner/tokenizers/json_place.hpp"
#include "runner/tokenizers/tokenizer.hpp"

namespace runner {

/// The message of a token of more than token_bytes_max.
std::string too_long_token(std::string_view token);

/// The last words and their tokens, bounded. It is emptied when it is full.
class WordCache {
 public:
  /// Returns false if the word is not known.
  bool find(std::string_view word, uint64_t hash, std::span<const Token>& tokens) const;
  void put(std::string_view word, uint64_t hash, std::span<const Token> tokens);
  /// Appends the tokens of a word to `out`, which make() appends if the word is not known.
  template <typename Make>
  void append(std::string_view word, std::vector<Token>& out, const Make& make) {
    constexpr size_t cached_word_bytes_max = 64;
    const bool cached = word.size() <= cached_word_bytes_max;
    const uint64_t hash = cached ? hash_of(word) : 0;
    std::span<const Token> known;
    if (cached && find(word, hash, known)) {
      out.insert(out.end(), known.begin(), known.end());
      return;
    }
    const size_t before = out.size();
    make();
    if (cached) put(word, hash, std::span(out).subspan(before));
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t word = 0, word_size = 0, tokens = 0, count = 0;
    uint32_t generation = 0;
  };
  std::vector<Slot> slots_;
  std::string words_;
  std::vector<Token> tokens_;
  size_t used_ = 0;
  uint32_t generation_ = 1;
};

/// The memory that one thread needs to tokenise words.
struct ModelSpace {
  WordCache cache;
  struct Symbol {
    int32_t id;
    int32_t previous, next;  ///< places in `symbols`
    uint32_t size;           ///< bytes of the word; 0: joined to another symbol
  };
  std::vector<Symbol> symbols;
  struct Candidate {
    uint32_t rank;
    int32_t at, id;
  };
  std::vector<Candidate> queue;
  std::vector<Merges::Merge> pairs;
  struct Node {
    double score;
    int64_t begin;
    int32_t id;
  };
  std::vector<Node> nodes;
  std::vector<Token> tokens;
  std::string text;
};

/// The tokens of a vocabulary {"token": id, ...}, both ways.
class Vocabulary {
 public:
  Vocabulary() = default;
  explicit Vocabulary(const JsonPlace& vocab);
  void put(const std::string& token, int32_t id);
  int32_t find(std::string_view token) const { return ids_.find(token); }  ///< -1: there is none
  std::optional<int32_t> get(std::string_view token) const { return ids_.get(token); }
  const std::string* token(int32_t id) const;
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  int64_t id_end() const { return std::ssize(tokens_); }
  const std::vector<std::optional<std::string>>& tokens() const { return tokens_; }

 private:
  StringIds ids_;
  std::vector<std::optional<std::string>> tokens_;
};

class TokenModel {
 public:
  virtual ~TokenModel() = default;
  /// Appends the tokens of a word; begin and end are bytes of the word. Words are not empty.
  virtual void tokenize(std::string_view word, ModelSpace& space, std::vector<Token>& out) const = 0;
  std::optional<int32_t> token_to_id(std::string_view token) const { return vocabulary_.get(token); }
  /// nullptr: there is none. Valid as long as the model.
  const std::string* id_to_token(int32_t id) const { return vocabulary_.token(id); }
  /// Entries of the vocabulary, as the library counts them for the ids of new added tokens.
  virtual int64_t size() const { return vocabulary_.size(); }
  /// The greatest id plus one.
  int64_t id_end() const { return vocabulary_.id_end(); }
  virtual std::optional<std::string> unknown_token() const { return {}; }

  /// Whether the model can take raw bytes instead of characters that stand for bytes, and makes it do so.
  virtual bool take_bytes() { return false; }
  /// Whether the tokens of a long word are those of its parts, if it is cut between the characters `left` and `right`.
  virtual bool separates(char32_t, char32_t) const { return false; }

 protected:
  explicit TokenModel(Vocabulary vocabulary = {}) : vocabulary_(std::move(vocabulary)) {}
  Vocabulary vocabulary_;
};

/// The value of /model. Throws Error(usage) with the place of a mistake.
std::unique_ptr<TokenModel> read_model(const JsonPlace& model);
std::unique_ptr<TokenModel> read_bpe(const JsonPlace& model);
std::unique_ptr<TokenModel> read_unigram(const JsonPlace& model);

/// Settings of a BPE model that does not come from tokenizer.json.
struct BpeParts {
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
  bool ignore_merges = false;
};
std::unique_ptr<TokenModel> make_bpe(const BpeParts& parts);

}  // namespace runner
