// The parts of an HfTokenizer.
#pragma once
#include <mutex>

#include "runner/tokenizers/added_tokens.hpp"
#include "runner/tokenizers/decoders.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"
#include "runner/tokenizers/post_processors.hpp"
#include "runner/tokenizers/pre_tokenizers.hpp"

namespace runner {

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

/// Reads tokenizer_config.json and special_tokens_map.json of a folder, where they exist.
void read_token_roles(const fs::path& folder, HfTokenizer::Impl& tokenizer);

}  // namespace runner
