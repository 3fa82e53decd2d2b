// The tables of unicode_tables.cpp: sorted ranges of characters.
#pragma once
#include <cstddef>

namespace runner::unicode {

struct CharacterRange {
  char32_t first, last;
};

extern const CharacterRange punctuation_ranges[], number_ranges[], other_ranges[], nonspacing_mark_ranges[],
    mark_ranges[], unnormalized_ranges[];
extern const size_t punctuation_ranges_size, number_ranges_size, other_ranges_size, nonspacing_mark_ranges_size,
    mark_ranges_size, unnormalized_ranges_size;

}  // namespace runner::unicode
