// The pre-tokenizer Split, and the expressions of which it is known where they cut.
#include <algorithm>
#include <array>

#include "runner/tokenizers/pre_tokenizers.hpp"

namespace runner {

const char* const gpt2_words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

/// Expressions that match every text from its beginning to its end. All of them end a word between a letter and a space before a
/// letter, and behind a line end between two characters that are not white space (if the second is not `/`): letters are matched
/// only by runs of letters (with marks), and line ends only after a run of symbols or by the last three branches.
constexpr std::array covering{
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
/// Expressions that match neither letters of ASCII nor white space.
constexpr std::array aside{
    R"(\p{N}{1,3})", R"(\p{N})", R"(\p{N}+)", R"([0-9])", R"([一-龥぀-ゟ゠-ヿ]+)", R"([一-龥ࠀ-一가-퟿]+)"};

class Split final : public PreTokenizer {
 public:
  explicit Split(const JsonPlace& place)
      : pattern_(place["pattern"]),
        separator_(separator_of(place["behavior"])),
        inverted_(place.boolean_or("invert", false)) {}

  void apply(Draft& draft, DraftSpace& space, bool) const override {
    space.cut.clear();
    for (const TextPiece& piece : space.pieces) {
      matches().clear();
      const auto text = draft.text().substr(piece.begin, piece.end - piece.begin);
      pattern_.split(text, space.pattern_time, [&](size_t begin, size_t end, bool is_match) {
        matches().push_back({piece.begin + begin, piece.begin + end, is_match != inverted_});
      });
      cut(draft, matches(), separator_, space.cut);
    }
    std::swap(space.pieces, space.cut);
  }

  bool cuts_at_space(CutPlace& place) const override {
    if (pattern_.is_regex()) return known(place, place.space == U' ');
    std::string own;
    unicode::append(own, place.space);
    const auto& text = pattern_.source();
    if (text == own && !inverted_) {
      place.between_words = true;
      return separator_ != Separator::merged_with_previous;
    }
    return !inverted_ && std::ranges::none_of(text, [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; });
  }
  bool cuts_at_line(CutPlace& place) const override {
    if (pattern_.is_regex()) return known(place, true);
    return !inverted_ && separator_ != Separator::merged_with_previous &&
           pattern_.source().find('\n') == std::string::npos;
  }

 private:
  bool known(CutPlace& place, bool usual_space) const {
    const std::string_view source = pattern_.source();
    if (std::ranges::find(covering, source) != covering.end()) {
      place.between_words = true;
      return usual_space && (separator_ == Separator::isolated || (inverted_ && separator_ == Separator::removed));
    }
    return std::ranges::find(aside, source) != aside.end() && !inverted_ && separator_ == Separator::isolated;
  }
  static std::vector<Match>& matches() {
    thread_local std::vector<Match> list;
    return list;
  }

  TextPattern pattern_;
  Separator separator_;
  bool inverted_;
};

}  // namespace

std::unique_ptr<PreTokenizer> make_split(const JsonPlace& split) { return std::make_unique<Split>(split); }

void cut(const Draft& draft, std::vector<Match>& matches, Separator separator, std::vector<TextPiece>& out) {
  const auto add = [&](size_t begin, size_t end) {
    if (begin < end) out.push_back({begin, end, draft.origin_of(begin)});
  };
  if (separator == Separator::removed || separator == Separator::isolated) {
    for (const auto& match : matches)
      if (!match.is_match || separator == Separator::isolated) add(match.begin, match.end);
    return;
  }
  if (separator == Separator::merged_with_next) std::ranges::reverse(matches);
  std::vector<Match> merged;
  bool previous = false;
  for (const auto& match : matches) {
    const bool joins = separator == Separator::contiguous ? match.is_match == previous : match.is_match && !previous;
    if (joins && !merged.empty()) {
      if (separator == Separator::merged_with_next)
        merged.back().begin = match.begin;
      else
        merged.back().end = match.end;
    } else {
      merged.push_back(match);
    }
    previous = match.is_match;
  }
  if (separator == Separator::merged_with_next) std::ranges::reverse(merged);
  for (const auto& part : merged) add(part.begin, part.end);
}

}  // namespace runner
