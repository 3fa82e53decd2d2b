#include "runner/tokenizers/normalizers.hpp"

#include <stdexcept>

#include "runner/tokenizers/byte_characters.hpp"

namespace runner {

namespace {

using unicode::Change;

TextPiece whole(const Draft& draft) { return {0, draft.text().size(), draft.origin_of(0)}; }

void rewrite(Draft& draft, std::span<const Change> changes, size_t removed = 0) {
  const TextPiece piece = whole(draft);
  draft.start();
  draft.transform(piece, changes, removed);
  draft.finish();
}

/// Leaves out the characters for which keep() is false.
template <typename Keep>
void filter(Draft& draft, DraftSpace& space, Keep&& keep) {
  auto& changes = space.changes;
  changes.clear();
  const auto text = draft.text();
  size_t removed_at_start = 0, removed = 0;
  for (size_t i = 0; i < text.size();) {
    const char32_t c = unicode::next(text, i);
    if (keep(c)) {
      changes.push_back({c, 0});
    } else if (changes.empty()) {
      ++removed_at_start, ++removed;
    } else {
      --changes.back().change;
      ++removed;
    }
  }
  if (removed > 0) rewrite(draft, changes, removed_at_start);
}

/// Replaces each character by another one.
template <typename To>
void map(Draft& draft, DraftSpace& space, To&& to) {
  auto& changes = space.changes;
  changes.clear();
  bool changed = false;
  const auto text = draft.text();
  for (size_t i = 0; i < text.size();) {
    const char32_t c = unicode::next(text, i), other = to(c);
    changed |= c != other;
    changes.push_back({other, 0});
  }
  if (changed) rewrite(draft, changes);
}

void to_lower(Draft& draft, DraftSpace& space) {
  const auto text = draft.text();
  if (unicode::is_ascii(text)) {
    space.text = text;
    for (char& c : space.text)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    if (space.text != text) draft.substitute(space.text);
    return;
  }
  auto& changes = space.changes;
  changes.clear();
  for (size_t i = 0; i < text.size();) {
    const auto [first, second] = unicode::lower(unicode::next(text, i));
    changes.push_back({first, 0});
    if (second != 0) changes.push_back({second, 1});
  }
  rewrite(draft, changes);
}

void to_form(Draft& draft, DraftSpace& space, unicode::NormalForm form) {
  if (unicode::surely_normal(draft.text())) return;
  unicode::normalize(draft.text(), form, space.changes);
  rewrite(draft, space.changes);
}

template <unicode::NormalForm form>
class NormalFormNormalizer final : public Normalizer {
 public:
  void apply(Draft& draft, DraftSpace& space, bool) const override { to_form(draft, space, form); }
  bool cuts_at_space(char32_t&) const override { return true; }
  bool cuts_at_line() const override { return true; }
  bool keeps_start() const override { return true; }
};

class Lowercase final : public Normalizer {
 public:
  void apply(Draft& draft, DraftSpace& space, bool) const override { to_lower(draft, space); }
  bool cuts_at_space(char32_t&) const override { return true; }
  bool cuts_at_line() const override { return true; }
  bool keeps_start() const override { return true; }
};

class Strip final : public Normalizer {
 public:
  explicit Strip(const JsonPlace& place)
      : left_(place["strip_left"].boolean()), right_(place["strip_right"].boolean()) {}
  void apply(Draft& draft, DraftSpace& space, bool) const override {
    if (left_ && right_) return strip(draft, space, true, true);
    if (left_) strip(draft, space, true, false);
    if (right_) strip(draft, space, false, true);
  }
  bool cuts_at_space(char32_t&) const override { return false; }

 private:
  static void strip(Draft& draft, DraftSpace& space, bool left, bool right) {
    const auto list = unicode::characters(draft.text());
    size_t leading = 0, trailing = 0;
    while (left && leading < list.size() && unicode::is_space(list[leading])) ++leading;
    while (right && trailing < list.size() && unicode::is_space(list[list.size() - 1 - trailing])) ++trailing;
    if (leading == 0 && trailing == 0) return;
    auto& changes = space.changes;
    changes.clear();
    for (size_t i = leading; i + trailing < list.size(); ++i) changes.push_back({list[i], 0});
    rewrite(draft, changes, leading);
  }
  bool left_, right_;
};

class StripAccents final : public Normalizer {
 public:
  void apply(Draft& draft, DraftSpace& space, bool) const override {
    if (!unicode::is_ascii(draft.text())) filter(draft, space, [](char32_t c) { return !unicode::is_mark(c); });
  }
  bool cuts_at_space(char32_t&) const override { return true; }
};

class Replace final : public Normalizer {
 public:
  explicit Replace(const JsonPlace& place) : pattern_(place["pattern"]), content_(place["content"].string()) {}
  void apply(Draft& draft, DraftSpace& space, bool) const override {
    if (!pattern_.is_regex() && draft.text().find(pattern_.source()) == std::string_view::npos) return;
    const TextPiece piece = whole(draft);
    draft.start();
    pattern_.split(draft.text(), space.pattern_time, [&](size_t begin, size_t end, bool is_match) {
      if (is_match)
        draft.replace(piece, end, content_);
      else
        draft.copy(begin, end);
    });
    draft.finish();
  }
  bool cuts_at_space(char32_t& space) const override {
    if (pattern_.is_regex()) return pattern_.source() == " {2,}";  // a single space is no match
    std::string own;
    unicode::append(own, space);
    if (pattern_.source() == own) {
      if (unicode::count(content_) != 1) return false;
      size_t at = 0;
      space = unicode::next(content_, at);
      return true;
    }
    return no_letters(pattern_.source());
  }
  bool keeps_start() const override { return !pattern_.is_regex() && unicode::count(pattern_.source()) == 1; }

 private:
  static bool no_letters(std::string_view text) {
    for (char c : text)
      if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return false;
    return true;
  }
  TextPattern pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(const JsonPlace& place) : text_(place["prepend"].string()) {}
  void apply(Draft& draft, DraftSpace& space, bool continues) const override {
    if (draft.text().empty() || text_.empty() || continues) return;
    prepend(draft, whole(draft), text_, space);
  }
  static void prepend(Draft& draft, const TextPiece& piece, std::string_view text, DraftSpace& space) {
    auto& changes = space.changes;
    changes.clear();
    for (char32_t c : unicode::characters(text)) changes.push_back({c, changes.empty() ? 0 : 1});
    size_t first_end = piece.begin;
    changes.push_back({unicode::next(draft.text(), first_end), 1});
    draft.start();
    draft.transform({piece.begin, first_end, piece.origin}, changes);
    draft.copy(first_end, piece.end);
    draft.finish();
  }
  bool cuts_at_space(char32_t&) const override { return true; }
  bool keeps_start() const override { return true; }

 private:
  std::string text_;
};

/// The basic tokenizer of BERT without its splitting.
class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(const JsonPlace& place)
      : clean_(place.boolean_or("clean_text", true)),
        ideographs_(place.boolean_or("handle_chinese_chars", true)),
        lower_(place.boolean_or("lowercase", true)),
        accents_(place.boolean_or("strip_accents", lower_)) {}

  void apply(Draft& draft, DraftSpace& space, bool) const override {
    if (unicode::is_ascii(draft.text()) && ascii(draft, space)) return;
    if (clean_) {
      filter(draft, space, [](char32_t c) { return c != 0 && c != 0xfffd && !unicode::is_other(c); });
      map(draft, space, [](char32_t c) { return unicode::is_space(c) ? U' ' : c; });
    }
    if (ideographs_) separate_ideographs(draft, space);
    if (accents_) {
      to_form(draft, space, unicode::NormalForm::nfd);
      filter(draft, space, [](char32_t c) { return !unicode::is_nonspacing_mark(c); });
    }
    if (lower_) to_lower(draft, space);
  }
  bool cuts_at_space(char32_t&) const override { return true; }
  bool cuts_at_line() const override { return true; }

 private:
  /// ASCII without characters to remove keeps its length.
  bool ascii(Draft& draft, DraftSpace& space) const {
    space.text = draft.text();
    for (char& c : space.text) {
      const auto b = static_cast<unsigned char>(c);
      if (clean_ && (b < 0x20 || b == 0x7f)) {
        if (b != '\t' && b != '\n' && b != '\r') return false;
        c = ' ';
      }
      if (lower_ && c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
    }
    draft.substitute(space.text);
    return true;
  }
  static void separate_ideographs(Draft& draft, DraftSpace& space) {
    auto& changes = space.changes;
    changes.clear();
    const auto text = draft.text();
    bool any = false;
    for (size_t i = 0; i < text.size();) {
      const char32_t c = unicode::next(text, i);
      if (unicode::is_ideograph(c)) {
        any = true;
        changes.insert(changes.end(), {{U' ', 0}, {c, 1}, {U' ', 1}});
      } else {
        changes.push_back({c, 0});
      }
    }
    if (any) rewrite(draft, changes);
  }

  bool clean_, ideographs_, lower_, accents_;
};

/// The rules of SentencePiece's nmt.
class Nmt final : public Normalizer {
 public:
  void apply(Draft& draft, DraftSpace& space, bool) const override {
    filter(draft, space, [](char32_t c) {
      return !((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f);
    });
    map(draft, space, [](char32_t c) {
      const bool space = c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) ||
                         c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
      return space ? U' ' : c;
    });
  }
  bool cuts_at_space(char32_t&) const override { return true; }
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  void apply(Draft& draft, DraftSpace& space, bool) const override {
    auto& changes = space.changes;
    changes.clear();
    for (char c : draft.text()) {
      const auto byte = static_cast<unsigned char>(c);
      changes.push_back({byte_characters()[byte], (byte & 0xc0) == 0x80 ? 1 : 0});
    }
    if (!changes.empty()) rewrite(draft, changes);
  }
  bool cuts_at_space(char32_t&) const override { return false; }
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(const JsonPlace& place) {
    for (const auto& item : place["normalizers"].items()) parts_.push_back(read_normalizer(item));
  }
  void apply(Draft& draft, DraftSpace& space, bool continues) const override {
    for (const auto& part : parts_) part->apply(draft, space, continues);
  }
  bool cuts_at_space(char32_t& space) const override {
    return std::ranges::all_of(parts_, [&](const auto& part) { return part->cuts_at_space(space); });
  }
  bool cuts_at_line() const override {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->cuts_at_line(); });
  }
  bool keeps_start() const override {
    return std::ranges::all_of(parts_, [](const auto& part) { return part->keeps_start(); });
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

}  // namespace

TextPattern::TextPattern(const JsonPlace& pattern) {
  const bool regex = pattern.has("Regex");
  if (!regex && !pattern.has("String")) pattern.refuse("a pattern must be {\"String\": ...} or {\"Regex\": ...}");
  const auto place = pattern[regex ? "Regex" : "String"];
  source_ = place.string();
  if (source_.empty()) place.refuse("an empty pattern is not supported");
  if (!regex) {
    literal_ = source_;
    return;
  }
  try {
    regex_ = std::make_shared<Regex>(source_);
  } catch (const std::invalid_argument& error) {
    place.refuse(fmt::format("regular expression: {}", error.what()));
  }
}

std::unique_ptr<Normalizer> read_normalizer(const JsonPlace& place) {
  using unicode::NormalForm;
  using Kind = ComponentKind<Normalizer>;
  return read_component<Normalizer>(
      place,
      {Kind::of<NormalizerSequence>("Sequence"), Kind::of<NormalFormNormalizer<NormalForm::nfc>>("NFC"),
       Kind::of<NormalFormNormalizer<NormalForm::nfd>>("NFD"), Kind::of<NormalFormNormalizer<NormalForm::nfkc>>("NFKC"),
       Kind::of<NormalFormNormalizer<NormalForm::nfkd>>("NFKD"), Kind::of<Lowercase>("Lowercase"),
       Kind::of<Strip>("Strip"), Kind::of<StripAccents>("StripAccents"), Kind::of<Replace>("Replace"),
       Kind::of<Prepend>("Prepend"), Kind::of<BertNormalizer>("BertNormalizer"), Kind{"Precompiled", read_precompiled},
       Kind::of<Nmt>("Nmt"), Kind::of<ByteLevelNormalizer>("ByteLevel")});
}

}  // namespace runner
