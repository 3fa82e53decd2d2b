// Text on its way from the original to the words of a model (class Draft).
#include <algorithm>
#include <limits>

#include "runner/base/utf8.hpp"
#include "runner/tokenizers/normalizers.hpp"

namespace runner {

void Draft::reset(std::string_view original, size_t origin, bool tracked) {
  text_ = original;
  origin_ = origin;
  tracked_ = tracked;
  literal_ = true;
}

void Draft::take(const Draft& other, size_t begin, size_t end) {
  reset(other.text_.substr(begin, end - begin), other.origin_of(begin), other.tracked_);
  literal_ = other.literal_;
  if (!literal_ && tracked_)
    places_.assign(other.places_.begin() + static_cast<ptrdiff_t>(begin),
                   other.places_.begin() + static_cast<ptrdiff_t>(end));
}

TextPlace Draft::place(size_t i) const {
  if (!literal_) return places_[i];
  size_t begin = i;
  while (begin > 0 && unicode::continues(text_[begin])) --begin;
  return {origin_ + begin, origin_ + begin + unicode::length_of(text_[begin])};
}

size_t Draft::origin_of(size_t i) const {
  if (literal_) return origin_ + i;
  if (!tracked_) return i == 0 ? origin_ : std::numeric_limits<size_t>::max();
  return i < places_.size() ? places_[i].begin : origin_;
}

void Draft::start() {
  next_text_.clear();
  next_places_.clear();
}

void Draft::copy(size_t begin, size_t end) {
  next_text_ += text_.substr(begin, end - begin);
  if (!tracked_) return;
  if (!literal_) {
    next_places_.insert(next_places_.end(), places_.begin() + static_cast<ptrdiff_t>(begin),
                        places_.begin() + static_cast<ptrdiff_t>(end));
    return;
  }
  for (size_t i = begin; i < end;) {
    const size_t size = unicode::length_of(text_[i]);
    next_places_.insert(next_places_.end(), size, TextPlace{origin_ + i, origin_ + i + size});
    i += size;
  }
}

void Draft::transform(const TextPiece& piece, std::span<const unicode::Change> changes, size_t removed) {
  size_t at = piece.begin;
  const auto skip = [&] {
    if (at < piece.end) at += unicode::length_of(text_[at]);
  };
  for (size_t i = 0; i < removed; ++i) skip();
  for (const auto& [c, change] : changes) {
    const size_t before = next_text_.size();
    unicode::append(next_text_, c);
    if (tracked_) {
      TextPlace where{piece.origin, piece.origin};
      if (change <= 0)
        where = place(std::min(at, piece.end - 1));
      else if (at > piece.begin)
        where = place(at - 1);
      next_places_.insert(next_places_.end(), next_text_.size() - before, where);
    }
    for (int i = change; i <= 0; ++i) skip();
  }
}

void Draft::replace(const TextPiece& piece, size_t end, std::string_view content) {
  next_text_ += content;
  if (!tracked_) return;
  const TextPlace where = end > piece.begin ? place(end - 1) : TextPlace{piece.origin, piece.origin};
  next_places_.insert(next_places_.end(), content.size(), where);
}

void Draft::finish() {
  std::swap(own_text_, next_text_);
  std::swap(places_, next_places_);
  text_ = own_text_;
  literal_ = false;
}

void Draft::substitute(std::string_view same_length) {
  next_text_ = same_length;
  std::swap(own_text_, next_text_);
  text_ = own_text_;
}

}  // namespace runner
