// Normal forms of Unicode, with the change that led to each character.
#include <utf8proc.h>

#include <algorithm>

#include "runner/tokenizers/unicode.hpp"
#include "runner/tokenizers/unicode_tables.hpp"

namespace runner::unicode {

namespace {

bool untouched(char32_t c) {
  const auto* end = unnormalized_ranges + unnormalized_ranges_size;
  const auto* after = std::upper_bound(unnormalized_ranges, end, c,
                                       [](char32_t value, const CharacterRange& range) { return value < range.first; });
  return after != unnormalized_ranges && c <= std::prev(after)->last;
}

int combining_class(char32_t c) {
  if (c < 0x300 || untouched(c)) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

/// The decomposed text, with marks in canonical order.
class Decomposition {
 public:
  explicit Decomposition(bool compatible)
      : options_(static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                (compatible ? UTF8PROC_COMPAT : 0))) {}
  void add(char32_t c) {
    if (c < 0xa0 || untouched(c)) return push(c, 0);
    utf8proc_int32_t parts[32];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts, 32, options_, &boundary);
    for (utf8proc_ssize_t i = 0; i < count; ++i) push(static_cast<char32_t>(parts[i]), i > 0 ? 1 : 0);
  }
  std::vector<Change>& finish() {
    sort_pending();
    return out_;
  }

 private:
  void push(char32_t c, int change) {
    if (combining_class(c) == 0) sort_pending();
    out_.push_back({c, change});
    if (combining_class(c) == 0) ready_ = out_.size();
  }
  void sort_pending() {
    std::stable_sort(out_.begin() + static_cast<ptrdiff_t>(ready_), out_.end(),
                     [](const Change& a, const Change& b) { return combining_class(a.c) < combining_class(b.c); });
    ready_ = out_.size();
  }

  utf8proc_option_t options_;
  std::vector<Change> out_;
  size_t ready_ = 0;
};

/// The composition of two characters; 0: there is none.
char32_t composed(char32_t first, char32_t second) {
  if (second < 0x300 || untouched(first) || untouched(second)) return 0;
  utf8proc_int32_t pair[3] = {static_cast<utf8proc_int32_t>(first), static_cast<utf8proc_int32_t>(second), 0};
  const auto length =
      utf8proc_normalize_utf32(pair, 2, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  const auto c = static_cast<char32_t>(pair[0]);
  return length == 1 && !untouched(c) ? c : 0;
}

/// Canonical composition. A mark is blocked from the starter by a mark of the same or a higher class between them.
void compose(const std::vector<Change>& in, std::vector<Change>& out) {
  std::vector<Change> marks;  // between the starter and the current character
  bool has_starter = false;
  Change starter{};
  int last_class = -1;  // of `marks`
  const auto flush = [&] {
    if (has_starter) out.push_back(starter);
    out.insert(out.end(), marks.begin(), marks.end());
    marks.clear();
    last_class = -1;
  };
  for (const auto& item : in) {
    const int own_class = combining_class(item.c);
    if (!has_starter) {
      if (own_class != 0) {
        out.push_back(item);
        continue;
      }
      starter = item;
      has_starter = true;
      continue;
    }
    if (last_class < own_class)
      if (const char32_t c = composed(starter.c, item.c)) {
        starter = {c, starter.change + item.change - 1};
        continue;
      }
    if (own_class == 0) {
      flush();
      starter = item;
    } else {
      marks.push_back(item);
      last_class = own_class;
    }
  }
  flush();
}

}  // namespace

void normalize(std::string_view text, NormalForm form, std::vector<Change>& out) {
  Decomposition decomposition(form == NormalForm::nfkc || form == NormalForm::nfkd);
  for (size_t i = 0; i < text.size();) decomposition.add(next(text, i));
  out.clear();
  if (form == NormalForm::nfd || form == NormalForm::nfkd)
    std::swap(out, decomposition.finish());
  else
    compose(decomposition.finish(), out);
}

}  // namespace runner::unicode
