#include "runner/tokenizers/pre_tokenizers.hpp"

#include <algorithm>

#include "runner/tokenizers/byte_characters.hpp"

namespace runner {

namespace {

/// Cuts each piece by a class of characters.
template <typename Is>
void cut_by_class(Draft& draft, DraftSpace& space, Separator separator, Is&& is) {
  thread_local std::vector<Match> matches;
  space.cut.clear();
  const auto text = draft.text();
  for (const TextPiece& piece : space.pieces) {
    matches.clear();
    size_t last = piece.begin;
    for (size_t i = piece.begin; i < piece.end;) {
      const size_t begin = i;
      if (!is(unicode::next(text, i))) continue;
      if (last < begin) matches.push_back({last, begin, false});
      matches.push_back({begin, i, true});
      last = i;
    }
    if (last < piece.end) matches.push_back({last, piece.end, false});
    cut(draft, matches, separator, space.cut);
  }
  std::swap(space.pieces, space.cut);
}

class WhitespaceSplit final : public PreTokenizer {
 public:
  void apply(Draft& draft, DraftSpace& space, bool) const override {
    cut_by_class(draft, space, Separator::removed, unicode::is_space);
  }
  bool cuts_at_space(CutPlace& place) const override {
    place.between_words |= unicode::is_space(place.space);
    return true;
  }
  bool cuts_at_line(CutPlace& place) const override { return place.between_words = true; }
};

/// Runs of word characters, and runs of other characters that are not white space.
class Whitespace final : public PreTokenizer {
 public:
  void apply(Draft& draft, DraftSpace& space, bool) const override {
    space.cut.clear();
    const auto text = draft.text();
    const auto kind = [](char32_t c) { return unicode::is_space(c) ? 0 : unicode::is_word(c) ? 1 : 2; };
    for (const TextPiece& piece : space.pieces) {
      size_t begin = piece.begin;
      int current = 0;
      const auto end_run = [&](size_t end) {
        if (current != 0) space.cut.push_back({begin, end, draft.origin_of(begin)});
      };
      for (size_t i = piece.begin; i < piece.end;) {
        const size_t at = i;
        const int own = kind(unicode::next(text, i));
        if (own == current) continue;
        end_run(at);
        begin = at;
        current = own;
      }
      end_run(piece.end);
    }
    std::swap(space.pieces, space.cut);
  }
  bool cuts_at_space(CutPlace& place) const override { return place.between_words = true; }
  bool cuts_at_line(CutPlace& place) const override { return place.between_words = true; }
};

class BertPreTokenizer final : public PreTokenizer {
 public:
  void apply(Draft& draft, DraftSpace& space, bool) const override {
    space.cut.clear();
    const auto text = draft.text();
    for (const TextPiece& piece : space.pieces) {
      size_t begin = piece.begin;
      const auto end_word = [&](size_t end) {
        if (begin < end) space.cut.push_back({begin, end, draft.origin_of(begin)});
      };
      for (size_t i = piece.begin; i < piece.end;) {
        const size_t at = i;
        const char32_t c = unicode::next(text, i);
        if (unicode::is_space(c)) {
          end_word(at);
          begin = i;
        } else if (unicode::is_punctuation(c)) {
          end_word(at);
          space.cut.push_back({at, i, draft.origin_of(at)});
          begin = i;
        }
      }
      end_word(piece.end);
    }
    std::swap(space.pieces, space.cut);
  }
  bool cuts_at_space(CutPlace& place) const override {
    place.between_words |= unicode::is_space(place.space);
    return true;
  }
  bool cuts_at_line(CutPlace& place) const override { return place.between_words = true; }
};

class Punctuation final : public PreTokenizer {
 public:
  explicit Punctuation(const JsonPlace& place)
      : separator_(place.has("behavior") ? separator_of(place["behavior"]) : Separator::isolated) {}
  void apply(Draft& draft, DraftSpace& space, bool) const override {
    cut_by_class(draft, space, separator_, unicode::is_punctuation);
  }
  bool cuts_at_space(CutPlace&) const override { return true; }
  bool cuts_at_line(CutPlace&) const override { return separator_ != Separator::merged_with_previous; }

 private:
  Separator separator_;
};

class Digits final : public PreTokenizer {
 public:
  explicit Digits(const JsonPlace& place)
      : separator_(place.boolean_or("individual_digits", false) ? Separator::isolated : Separator::contiguous) {}
  void apply(Draft& draft, DraftSpace& space, bool) const override {
    cut_by_class(draft, space, separator_, unicode::is_number);
  }
  bool cuts_at_space(CutPlace&) const override { return true; }
  bool cuts_at_line(CutPlace&) const override { return true; }

 private:
  Separator separator_;
};

class CharDelimiterSplit final : public PreTokenizer {
 public:
  explicit CharDelimiterSplit(const JsonPlace& place) : delimiter_(place["delimiter"].character()) {}
  void apply(Draft& draft, DraftSpace& space, bool) const override {
    cut_by_class(draft, space, Separator::removed, [&](char32_t c) { return c == delimiter_; });
  }
  bool cuts_at_space(CutPlace& place) const override {
    place.between_words |= delimiter_ == place.space;
    return true;
  }
  bool cuts_at_line(CutPlace& place) const override {
    place.between_words |= delimiter_ == U'\n';
    return true;
  }

 private:
  char32_t delimiter_;
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(const JsonPlace& place)
      : length_(place.has("length") ? static_cast<size_t>(place["length"].integer(1, 1 << 30)) : 5) {}
  void apply(Draft& draft, DraftSpace& space, bool) const override {
    space.cut.clear();
    for (const TextPiece& piece : space.pieces)
      for (size_t begin = piece.begin; begin < piece.end;) {
        size_t end = begin;
        for (size_t i = 0; i < length_ && end < piece.end; ++i) end += unicode::length_of(draft.text()[end]);
        space.cut.push_back({begin, end, draft.origin_of(begin)});
        begin = end;
      }
    std::swap(space.pieces, space.cut);
  }
  bool cuts_at_space(CutPlace&) const override { return false; }
  bool cuts_at_line(CutPlace&) const override { return false; }

 private:
  size_t length_;
};

/// Spaces become a visible character, which begins a word.
class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend { always, first, never };

  explicit Metaspace(const JsonPlace& place)
      : character_(place.has("replacement") ? place["replacement"].character() : U'\u2581'),
        split_(place.boolean_or("split", true)),
        prepend_(read_prepend(place)) {
    unicode::append(text_, character_);
  }

  void apply(Draft& draft, DraftSpace& space, bool continues) const override {
    const auto text = draft.text();
    space.cut.clear();
    draft.start();
    for (const TextPiece& piece : space.pieces) {
      const size_t begin = draft.rewritten();
      const bool follows = continues && piece.begin == 0;
      const bool marked =
          text[piece.begin] == ' ' || text.substr(piece.begin, piece.end - piece.begin).starts_with(text_);
      size_t last = piece.begin;
      if (!marked && !follows && (prepend_ == Prepend::always || (prepend_ == Prepend::first && piece.origin == 0))) {
        const char32_t first = unicode::next(text, last);
        const unicode::Change changes[] = {{character_, 0}, {first, 1}};
        draft.transform({piece.begin, last, piece.origin}, changes);
      }
      for (size_t i = text.find(' ', last); i < piece.end; i = text.find(' ', last)) {
        draft.copy(last, i);
        draft.replace(piece, i + 1, text_);
        last = i + 1;
      }
      draft.copy(last, piece.end);
      space.cut.push_back({begin, draft.rewritten(), piece.origin});
    }
    draft.finish();
    std::swap(space.pieces, space.cut);
    if (split_) cut_by_class(draft, space, Separator::merged_with_next, [&](char32_t c) { return c == character_; });
  }
  bool cuts_at_space(CutPlace& place) const override {
    if (place.space == U' ') place.space = character_;
    if (place.space == character_) place.between_words |= split_;
    return place.space == character_;
  }
  bool cuts_at_line(CutPlace&) const override { return false; }
  bool needs_origin() const override { return prepend_ == Prepend::first; }

 private:
  static Prepend read_prepend(const JsonPlace& place) {
    const auto prepend = place.has("prepend_scheme")
                             ? static_cast<Prepend>(place["prepend_scheme"].choice({"always", "first", "never"}))
                             : Prepend::always;
    if (place.boolean_or("add_prefix_space", true)) return prepend;
    if (place.has("prepend_scheme") && prepend != Prepend::never)
      place["add_prefix_space"].refuse("this contradicts prepend_scheme");
    return Prepend::never;
  }
  char32_t character_;
  std::string text_;
  bool split_;
  Prepend prepend_;
};

/// Cuts text into GPT-2's words, and writes their bytes as characters.
class ByteLevel final : public PreTokenizer {
 public:
  explicit ByteLevel(const JsonPlace& place)
      : prefix_space_(place.boolean_or("add_prefix_space", true)), words_(place.boolean_or("use_regex", true)) {}

  void apply(Draft& draft, DraftSpace& space, bool continues) const override {
    if (prefix_space_) add_spaces(draft, space, continues);
    if (words_) {
      space.cut.clear();
      for (const TextPiece& piece : space.pieces)
        expression().split(draft.text().substr(piece.begin, piece.end - piece.begin), space.pattern_time,
                           [&](size_t begin, size_t end, bool) {
                             space.cut.push_back({piece.begin + begin, piece.begin + end, piece.origin});
                           });
      std::swap(space.pieces, space.cut);
    }
    if (!bytes_left_) write_bytes(draft, space);
  }
  bool cuts_at_space(CutPlace& place) const override {
    if (place.space != U' ' || (prefix_space_ && place.between_words)) return false;
    place.between_words |= words_;
    if (!bytes_left_) place.space = byte_characters()[' '];
    return true;
  }
  bool cuts_at_line(CutPlace& place) const override {
    if (prefix_space_ && place.between_words) return false;
    place.between_words |= words_;
    return bytes_left_;
  }
  bool ends_with_bytes() const override { return true; }
  void leave_bytes() override { bytes_left_ = true; }

 private:
  static const Regex& expression() {
    static const Regex words(gpt2_words);
    return words;
  }
  static void add_spaces(Draft& draft, DraftSpace& space, bool continues) {
    const auto text = draft.text();
    const auto lacks = [&](const TextPiece& piece) {
      return text[piece.begin] != ' ' && !(continues && piece.begin == 0);
    };
    if (std::ranges::none_of(space.pieces, lacks)) return;
    space.cut.clear();
    draft.start();
    for (const TextPiece& piece : space.pieces) {
      const size_t begin = draft.rewritten();
      size_t copied = piece.begin;
      if (lacks(piece)) {
        const char32_t first = unicode::next(text, copied);
        const unicode::Change changes[] = {{U' ', 0}, {first, 1}};
        draft.transform({piece.begin, copied, piece.origin}, changes);
      }
      draft.copy(copied, piece.end);
      space.cut.push_back({begin, draft.rewritten(), piece.origin});
    }
    draft.finish();
    std::swap(space.pieces, space.cut);
  }
  static void write_bytes(Draft& draft, DraftSpace& space) {
    const auto text = draft.text();
    space.cut.clear();
    draft.start();
    for (const TextPiece& piece : space.pieces) {
      const size_t begin = draft.rewritten();
      auto& changes = space.changes;
      changes.clear();
      for (size_t i = piece.begin; i < piece.end; ++i) {
        const auto byte = static_cast<unsigned char>(text[i]);
        changes.push_back({byte_characters()[byte], (byte & 0xc0) == 0x80 ? 1 : 0});
      }
      draft.transform(piece, changes);
      space.cut.push_back({begin, draft.rewritten(), piece.origin});
    }
    draft.finish();
    std::swap(space.pieces, space.cut);
  }
  bool prefix_space_, words_;
  bool bytes_left_ = false;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(const JsonPlace& place) {
    for (const auto& item : place["pretokenizers"].items()) parts_.push_back(read_pre_tokenizer(item));
  }
  void apply(Draft& draft, DraftSpace& space, bool continues) const override {
    for (const auto& part : parts_) part->apply(draft, space, continues);
  }
  bool cuts_at_space(CutPlace& place) const override {
    return std::ranges::all_of(parts_, [&](const auto& part) { return part->cuts_at_space(place); });
  }
  bool cuts_at_line(CutPlace& place) const override {
    return std::ranges::all_of(parts_, [&](const auto& part) { return part->cuts_at_line(place); });
  }
  bool needs_origin() const override {
    return std::ranges::any_of(parts_, [](const auto& part) { return part->needs_origin(); });
  }
  bool ends_with_bytes() const override { return !parts_.empty() && parts_.back()->ends_with_bytes(); }
  void leave_bytes() override { parts_.back()->leave_bytes(); }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

}  // namespace

Separator separator_of(const JsonPlace& behavior) {
  return static_cast<Separator>(
      behavior.choice({"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}));
}

std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonPlace& place) {
  using Kind = ComponentKind<PreTokenizer>;
  const auto refuse_scripts = [](const JsonPlace& scripts) -> std::unique_ptr<PreTokenizer> {
    scripts["type"].refuse("the pre-tokenizer UnicodeScripts is not supported");
  };
  return read_component<PreTokenizer>(
      place, {Kind::of<PreTokenizerSequence>("Sequence"), Kind::of<ByteLevel>("ByteLevel"), Kind{"Split", make_split},
              Kind::of<Digits>("Digits"), Kind::of<Metaspace>("Metaspace"), Kind::of<Whitespace>("Whitespace"),
              Kind::of<WhitespaceSplit>("WhitespaceSplit"), Kind::of<BertPreTokenizer>("BertPreTokenizer"),
              Kind::of<Punctuation>("Punctuation"), Kind::of<CharDelimiterSplit>("CharDelimiterSplit"),
              Kind::of<FixedLength>("FixedLength"), Kind{"UnicodeScripts", refuse_scripts}});
}

}  // namespace runner
