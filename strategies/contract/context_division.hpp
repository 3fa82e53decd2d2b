// How the ranks of the context axis divide the tokens of each row. A row is cut into 2 x ranks chunks of equal length, and rank r has
// chunk r and the chunk that is as far from the end. So all ranks have equally many pairs of a query and an earlier key. Torch-free.
// Source: Grattafiori et al. 2024 (Llama 3, arXiv:2407.21783), section 3.3.2.
#pragma once
#include <array>
#include <cstdint>

#include "runner/base/round_up.hpp"

namespace runner {

/// How queries reach the keys of other ranks.
enum class ContextForm : uint8_t {
  gather,  ///< each rank gathers the keys and values of all tokens (Llama 3)
  ring,  ///< keys and values travel from rank to rank, and partial results are merged (Liu et al. 2023, arXiv:2310.01889)
  ulysses,  ///< during attention each rank has all tokens, of some of the heads (Jacobs et al. 2023, arXiv:2309.14509)
};

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
