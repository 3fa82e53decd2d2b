#include "runner/data/document_rows.hpp"

#include <algorithm>
#include <numeric>

#include "runner/base/error.hpp"
#include "runner/base/round_up.hpp"

namespace runner {

namespace {

/// Rows that have room left, found by the smallest sufficient room in O(log seq_len).
class OpenRows {
 public:
  explicit OpenRows(int64_t seq_len) : rows_(static_cast<size_t>(seq_len + 1)), filled_(2 * capacity(seq_len), 0) {}

  /// The row with the smallest room of at least `needed`, removed; -1: there is none.
  int64_t take(int64_t needed, int64_t& room) {
    size_t node = leaf(static_cast<size_t>(needed));
    if (filled_[node] == 0) {
      do {  // climb until there is a right neighbour, and on until that one has a row
        while (node > 1 && node % 2 == 1) node /= 2;
        if (node == 1) return -1;
        ++node;
      } while (filled_[node] == 0);
      while (node < half()) node = 2 * node + (filled_[2 * node] == 0);
    }
    room = static_cast<int64_t>(node - half());
    auto& rows = rows_[node - half()];
    const int64_t row = rows.back();
    rows.pop_back();
    count(node, -1);
    return row;
  }
  void put(int64_t row, int64_t room) {
    if (room == 0) return;
    rows_[static_cast<size_t>(room)].push_back(row);
    count(leaf(static_cast<size_t>(room)), +1);
  }

 private:
  static size_t capacity(int64_t seq_len) {
    size_t leaves = 1;
    while (leaves < static_cast<size_t>(seq_len + 1)) leaves *= 2;
    return leaves;
  }
  size_t half() const { return filled_.size() / 2; }
  size_t leaf(size_t room) const { return half() + room; }
  void count(size_t node, int change) {
    for (; node >= 1; node /= 2) filled_[node] += change;
  }

  std::vector<std::vector<int64_t>> rows_;  ///< of each room
  std::vector<int64_t> filled_;             ///< a binary tree: rows below each node
};

/// The row of each piece of a group, numbered from 0, and the number of rows.
std::vector<int64_t> rows_of_group(std::span<const DocumentPiece> pieces, int64_t seq_len, int64_t& rows) {
  std::vector<size_t> order(pieces.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return pieces[i].count; });
  OpenRows open(seq_len);
  std::vector<int64_t> row_of(pieces.size());
  rows = 0;
  for (size_t i : order) {
    RUNNER_CHECK(pieces[i].inputs() <= seq_len);
    int64_t room = seq_len, row = open.take(pieces[i].inputs(), room);
    if (row < 0) row = rows++;
    open.put(row, room - pieces[i].inputs());
    row_of[i] = row;
  }
  return row_of;
}

}  // namespace

std::span<const DocumentPiece> Rows::row(int64_t index) const {
  if (ends.empty()) return std::span(pieces).subspan(static_cast<size_t>(index), 1);
  const int64_t begin = index == 0 ? 0 : ends[static_cast<size_t>(index - 1)];
  return std::span(pieces).subspan(static_cast<size_t>(begin),
                                   static_cast<size_t>(ends[static_cast<size_t>(index)] - begin));
}

Rows pack(std::vector<DocumentPiece> pieces, int64_t seq_len, size_t group) {
  Rows packed;
  packed.pieces.reserve(pieces.size());
  for (size_t begin = 0; begin < pieces.size(); begin += group) {
    const auto members = std::span(pieces).subspan(begin, std::min(group, pieces.size() - begin));
    int64_t rows = 0;
    const auto row_of = rows_of_group(members, seq_len, rows);
    // Counting sort by row: the pieces of a row stay in the order of the data.
    std::vector<int64_t> ends(static_cast<size_t>(rows), 0);
    for (int64_t row : row_of) ++ends[static_cast<size_t>(row)];
    const auto first = std::ssize(packed.pieces);
    std::exclusive_scan(ends.begin(), ends.end(), ends.begin(), first);
    packed.pieces.resize(packed.pieces.size() + members.size());
    for (size_t i = 0; i < members.size(); ++i)
      packed.pieces[static_cast<size_t>(ends[static_cast<size_t>(row_of[i])]++)] = members[i];
    packed.ends.insert(packed.ends.end(), ends.begin(), ends.end());
  }
  return packed;
}

int64_t padded_length(int64_t longest, int64_t seq_len) { return std::min(seq_len, round_up(longest, 8)); }

}  // namespace runner
