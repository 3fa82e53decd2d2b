// Tokens that are cut out of the text before the model sees it.
#pragma once
#include <bitset>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runner/tokenizers/models.hpp"
#include "runner/tokenizers/normalizers.hpp"

namespace runner {

struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool single_word = false;  ///< not beside a letter, digit or underscore
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< takes the white space after it
  bool normalized = true;    ///< is looked for in the normalised text
  bool special = false;      ///< may be left out by decode()
};

/// A part of the text: an added token, or text between them.
struct TextSection {
  size_t begin, end;
  const AddedToken* token = nullptr;
};

/// Finds tokens from left to right, the longest first.
class TokenFinder {
 public:
  /// The longest token that begins at a place is found, so the order of the list does not matter.
  void add(const std::string& pattern, const AddedToken* token);
  bool empty() const { return patterns_.empty(); }
  /// Appends the sections of the text. A text without tokens is one section.
  void find(std::string_view text, std::vector<TextSection>& out) const;
  const std::map<std::string, const AddedToken*>& patterns() const { return patterns_; }

 private:
  /// The token at `begin` and the end of its pattern.
  const AddedToken* token_at(std::string_view text, size_t begin, size_t& end) const;
  std::map<std::string, const AddedToken*> patterns_;
  std::vector<size_t> lengths_[256];  ///< of the patterns by first byte, the longest first
  StringIds index_;
  std::vector<const AddedToken*> tokens_;
  std::bitset<256> first_bytes_;
};

class AddedTokens {
 public:
  /// The value of /added_tokens. Ids follow the library: those of the model's vocabulary, otherwise new ones.
  void read(const JsonPlace& list, const TokenModel& model, const Normalizer* normalizer);
  void add(AddedToken token, const TokenModel& model);
  /// Adds a token with its own id.
  void put(AddedToken token);
  /// Prepares the search. To be called after the last add().
  void finish(const Normalizer* normalizer);

  const TokenFinder& raw() const { return raw_; }
  const TokenFinder& normalized() const { return normalized_; }
  std::optional<int32_t> find(std::string_view content) const;
  const AddedToken* token(int32_t id) const;
  int32_t id_end() const;
  bool is_special(int32_t id) const;
  const std::map<int32_t, AddedToken>& by_id() const { return by_id_; }

 private:
  std::map<int32_t, AddedToken> by_id_;
  std::unordered_map<std::string, int32_t> ids_;
  TokenFinder raw_, normalized_;
};

}  // namespace runner
