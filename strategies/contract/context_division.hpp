// How the ranks of the context axis divide the tokens of each row. A row is cut into 2 x ranks chunks of equal length, and rank r has
// chunk r and the chunk that is as far from the end. So all ranks have equally many pairs of a query and an earlier key. Torch-free.
// Source: Grattafiori et al. 2024 (Llama 3, arXiv:2407.21783), section 3.3.2.
#pragma once
#include <array>
#include <cstdint>

#include "runner/base/round_up.hpp"
#include "strategies/mesh/mesh.hpp"

namespace runner {

/// How one rank divides the rows with the others of its context axis.
struct ContextDivision {
  int ranks = 1, rank = 0;
  ContextForm form = ContextForm::gather;

  bool divides() const { return ranks > 1; }
  int64_t chunks() const { return 2 * int64_t{ranks}; }
  /// Tokens of a row with its padding, which makes all chunks equally long.
  int64_t padded(int64_t tokens) const { return divides() ? round_up(tokens, chunks()) : tokens; }
  /// Tokens of a row that each rank has.
  int64_t own(int64_t tokens) const { return padded(tokens) / ranks; }
  /// The two chunks of a rank, of chunks() in a row. Only if several ranks divide the rows.
  std::array<int64_t, 2> chunks_of(int of_rank) const { return {of_rank, chunks() - 1 - of_rank}; }
  bool operator==(const ContextDivision&) const = default;
};

}  // namespace runner
