// How documents become rows: one document a row, cut or dropped if it is too long, or several documents packed into a row.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace runner {

/// Tokens [first, first + count) of a stream that belong to one document, of which count - 1 are inputs: each one but the last has
/// a target.
struct DocumentPiece {
  int64_t first;
  int32_t count, targets;  ///< `targets`: those that are supervised

  int64_t inputs() const { return count - 1; }
};

/// Rows of pieces.
struct Rows {
  std::vector<DocumentPiece> pieces = {};
  std::vector<int64_t> ends = {};  ///< the number of pieces up to the end of each row; empty: a piece is a row

  int64_t size() const { return ends.empty() ? std::ssize(pieces) : std::ssize(ends); }
  std::span<const DocumentPiece> row(int64_t index) const;
};

/// Packs pieces into rows of at most `seq_len` inputs: best-fit decreasing. The longest piece goes first, each one into the fullest
/// row that has room for it, in groups of `group` pieces that are neighbours in the data. Depends only on the arguments. No piece
/// may have more than `seq_len` inputs.
Rows pack(std::vector<DocumentPiece> pieces, int64_t seq_len, size_t group = 100'000);

/// The length of rows of which the longest has `longest` tokens: a multiple of 8, so that kernels work on whole vectors and few shapes
/// occur, and at most `seq_len`.
int64_t padded_length(int64_t longest, int64_t seq_len);

}  // namespace runner
