// The parts of an HfTokenizer: added tokens, the components of tokenizer.json that come after the model, and where documents are cut.
#pragma once
#include <bitset>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runner/tokenizers/hf_tokenizer.hpp"
#include "runner/tokenizers/json_place.hpp"
#include "runner/tokenizers/models.hpp"
#include "runner/tokenizers/normalizers.hpp"
#include "runner/tokenizers/pre_tokenizers.hpp"
#include "runner/tokenizers/tokenizer.hpp"

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

 private:
  std::map<int32_t, AddedToken> by_id_;
  std::unordered_map<std::string, int32_t> ids_;
  TokenFinder raw_, normalized_;
};

/// A decoder of tokenizer.json: it turns the texts of tokens into the text.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

/// nullptr: null, which joins the tokens with spaces. Throws Error(usage) with the place of a mistake.
std::unique_ptr<TokenDecoder> read_decoder(const JsonPlace& decoder);

/// A post-processor of tokenizer.json: tokens around a text.
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  /// The ids that are added before and after a text.
  virtual void around(std::vector<int32_t>& before, std::vector<int32_t>& after) const = 0;
  /// Replaces the frame of the texts by that with added tokens. Throws Error(usage) if there is none for two texts.
  virtual void frame(bool pair, TokenFrame& parts) const = 0;
};

/// nullptr: null. Throws Error(usage) with the place of a mistake.
std::unique_ptr<PostProcessor> read_post_processor(const JsonPlace& post_processor);
/// Adds ids before and after a text; before and after each of two.
std::unique_ptr<PostProcessor> make_frame(std::vector<int32_t> before, std::vector<int32_t> after);

/// The texts without added tokens.
TokenFrame text_frame(bool pair);

/// Where a document may be cut (safe_split). Found once from the components.
struct CutRules {
  bool before_spaces = false, behind_lines = false;
  std::bitset<256> letters;  ///< before the space
};

struct HfTokenizer::Impl {
  std::unique_ptr<Normalizer> normalizer;
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::unique_ptr<TokenModel> model;
  std::unique_ptr<PostProcessor> post_processor;
  std::unique_ptr<TokenDecoder> decoder;
  AddedTokens added;
  SpecialTokens roles;
  CutRules rules;
  std::string hash;
  std::vector<File> files;
  bool origins_needed = false;  ///< ids depend on places in the original text

  /// The memory that a thread needs to encode; kept for the next call, with the cache of words.
  struct Space {
    Draft draft, part;
    DraftSpace drafts;
    ModelSpace model;
    std::vector<TextSection> sections, inner;
    std::vector<Token> tokens;
  };
  class Lease;

  /// Components that may be combined are.
  void finish();
  template <typename Out>
  void encode(std::string_view text, bool tracked, bool continues, Out&& out) const;
  template <typename Out>
  void encode_part(Draft& draft, Space& space, bool continues, Out&& out) const;
  const std::string* token_text(int32_t id) const;

  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<Space>> spaces;
};

CutRules find_cut_rules(const HfTokenizer::Impl& tokenizer);
/// The greatest place to cut, see Tokenizer::safe_split().
std::optional<size_t> find_cut(const CutRules& rules, std::string_view text, size_t at_most);

}  // namespace runner
