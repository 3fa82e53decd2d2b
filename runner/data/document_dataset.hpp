// Documents as samples: each row is one document, cut or dropped if it is too long, or several that are packed.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runner/data/formats.hpp"

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

/// The treatment of documents of more than seq_len + 1 tokens, from data.too_long.
enum class TooLong { truncate, drop, split, refuse };

/// Counts of documents by what became of them.
struct DocumentCounts {
  int64_t documents = 0, tokens = 0, targets = 0;
  int64_t cut = 0;         ///< too long: truncated or split
  int64_t dropped = 0;     ///< too long, with TooLong::drop
  int64_t no_targets = 0;  ///< left out because no token of them is supervised
};

struct DocumentPieces {
  std::vector<DocumentPiece> pieces;  ///< each has at least one supervised target
  DocumentCounts counts;
};

/// Cuts documents [first, last) into pieces of at most seq_len + 1 tokens. Throws Error(usage) with TooLong::refuse. `of_part`: the
/// documents are a part of streamed data, and the message says so.
DocumentPieces cut_documents(const OpenData& data, int64_t first, int64_t last, int64_t seq_len, TooLong too_long,
                             bool of_part = false);

/// The number of documents in front of those for validation.
int64_t training_documents(const DocumentIndex& documents, double fraction);

/// The documents of a split as rows of token_fields(). With data.validation_fraction, the last documents are for validation: those
/// that end nearest to this share of the tokens. A batch is as long as its longest row, rounded up to a multiple of 8; shorter rows
/// are padded with token 0 and ignored targets. The padding follows the tokens, so causal attention never sees it. Throws
/// Error(usage) if no row is left; for a part of streamed data, returns nullptr then.
std::unique_ptr<Dataset> document_dataset(const Recipe::Data& data, Split split, OpenData opened, int64_t seq_len,
                                          StreamedPart* part = nullptr);

}  // namespace runner
