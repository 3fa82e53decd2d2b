// Where a document may be cut so that the parts have its tokens (Tokenizer::safe_split).
//
// There are two kinds of places: before a space between two letters of ASCII, and behind a line end between two characters that are
// not white space. Each component says whether it treats the parts there as it treats the document. At the end either a component
// cuts a word there, or the model is known never to join the two characters. White space at the ends of a text, tokens that are cut
// out of it, and what is put in front of it are the reasons why other places are not safe.
#include <algorithm>

#include "runner/tokenizers/hf_impl.hpp"

namespace runner {

namespace {

bool is_letter(char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; }

/// Takes away the places that added tokens could reach across.
void apply_added_tokens(const AddedTokens& added, char32_t space, CutRules& rules) {
  std::string spaces[2] = {" ", ""};
  unicode::append(spaces[1], space);
  for (const auto* finder : {&added.raw(), &added.normalized()})
    for (const auto& [pattern, token] : finder->patterns()) {
      if (pattern.find('\n') != std::string::npos || token->lstrip) rules.behind_lines = false;
      if (token->single_word && (pattern.starts_with(spaces[0]) || pattern.starts_with(spaces[1])))
        rules.before_spaces = false;
      // A token that ends with the letter may take the space, and begins a new part for the normalizer.
      if (is_letter(pattern.back())) rules.letters.reset(static_cast<unsigned char>(pattern.back()));
      for (size_t i = 0; i + 1 < pattern.size(); ++i) {
        const auto rest = std::string_view(pattern).substr(i + 1);
        if (is_letter(pattern[i]) && (rest.starts_with(spaces[0]) || rest.starts_with(spaces[1])))
          rules.letters.reset(static_cast<unsigned char>(pattern[i]));
      }
    }
  // Tokens in the normalised text may be found in lower case.
  for (char c = 'a'; c <= 'z'; ++c)
    if (!rules.letters[static_cast<unsigned char>(c)]) rules.letters.reset(static_cast<unsigned char>(c - 32));
}

}  // namespace

CutRules find_cut_rules(const HfTokenizer::Impl& tokenizer) {
  CutRules rules;
  CutPlace at_space, at_line;
  rules.before_spaces = (!tokenizer.normalizer || tokenizer.normalizer->cuts_at_space(at_space.space)) &&
                        (!tokenizer.pre_tokenizer || tokenizer.pre_tokenizer->cuts_at_space(at_space));
  rules.behind_lines = (!tokenizer.normalizer || tokenizer.normalizer->cuts_at_line()) && tokenizer.pre_tokenizer &&
                       tokenizer.pre_tokenizer->cuts_at_line(at_line) && at_line.between_words;
  for (char c = 'A'; c <= 'z'; ++c)
    if (is_letter(c)) rules.letters.set(static_cast<unsigned char>(c));
  apply_added_tokens(tokenizer.added, at_space.space, rules);
  if (rules.before_spaces && !at_space.between_words)
    for (char c = 'A'; c <= 'z'; ++c)
      if (is_letter(c) && !tokenizer.model->separates(static_cast<char32_t>(c), at_space.space))
        rules.letters.reset(static_cast<unsigned char>(c));
  if (rules.letters.none()) rules.before_spaces = false;
  return rules;
}

std::optional<size_t> find_cut(const CutRules& rules, std::string_view text, size_t at_most) {
  if (text.size() <= at_most) return text.size();
  const auto letter = [&](size_t i) { return rules.letters[static_cast<unsigned char>(text[i])]; };
  const auto is_space_at = [&](size_t i) { return unicode::is_space(unicode::next(text, i)); };
  constexpr size_t longest_character = 4;  // the text may not be UTF-8, and what follows a place must be in it
  if (text.size() < longest_character) return std::nullopt;
  for (size_t cut = std::min(at_most, text.size() - longest_character); cut > 1; --cut) {
    if (rules.before_spaces && text[cut] == ' ' && letter(cut - 1) && cut + 1 < text.size() && is_letter(text[cut + 1]))
      return cut;
    if (rules.behind_lines && text[cut - 1] == '\n' && text[cut] != '/' && !is_space_at(cut) &&
        !is_space_at(unicode::previous(text, cut - 1)))
      return cut;
  }
  return std::nullopt;
}

}  // namespace runner
