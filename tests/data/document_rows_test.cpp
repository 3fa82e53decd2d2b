// Packing documents into rows.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>

#include "runner/data/document_dataset.hpp"

using namespace runner;

namespace {

std::vector<DocumentPiece> pieces_of(const std::vector<int32_t>& inputs) {
  std::vector<DocumentPiece> pieces;
  int64_t first = 0;
  for (int32_t count : inputs) {
    pieces.push_back({first, count + 1, count});
    first += count + 1;
  }
  return pieces;
}

std::vector<std::vector<int64_t>> lengths_of(const Rows& rows) {
  std::vector<std::vector<int64_t>> lengths;
  for (int64_t row = 0; row < rows.size(); ++row) {
    lengths.emplace_back();
    for (const auto& piece : rows.row(row)) lengths.back().push_back(piece.inputs());
  }
  return lengths;
}

/// The best-fit rule as it is defined, in quadratic time: the room that is left in each row.
std::vector<int64_t> rooms_by_definition(std::vector<int32_t> lengths, int64_t seq_len) {
  std::ranges::sort(lengths, std::greater{});
  std::vector<int64_t> rooms;
  for (int64_t length : lengths) {
    auto best = rooms.end();
    for (auto room = rooms.begin(); room != rooms.end(); ++room)
      if (*room >= length && (best == rooms.end() || *room < *best)) best = room;
    if (best == rooms.end()) best = rooms.insert(rooms.end(), seq_len);
    *best -= length;
  }
  std::ranges::sort(rooms);
  return rooms;
}

}  // namespace

TEST_CASE("packing takes the longest piece first, and the fullest row with room for it") {
  CHECK(lengths_of(pack(pieces_of({3, 8, 5, 2, 7}), 10)) == std::vector<std::vector<int64_t>>{{8, 2}, {3, 7}, {5}});
  CHECK(pack({}, 10).size() == 0);
  CHECK(lengths_of(pack(pieces_of({1}), 1)) == std::vector<std::vector<int64_t>>{{1}});
}

TEST_CASE("packing of random lengths follows best-fit decreasing, and has each piece once") {
  std::mt19937 random(3);
  for (int64_t seq_len : {1, 2, 7, 64, 100, 1000})
    for (size_t count : {1, 5, 50, 500}) {
      INFO(seq_len << ", " << count << " pieces");
      std::vector<int32_t> lengths;
      for (size_t i = 0; i < count; ++i)
        lengths.push_back(1 + static_cast<int32_t>(random() % static_cast<uint32_t>(seq_len)));
      const auto pieces = pieces_of(lengths);
      const auto rows = pack(pieces, seq_len);
      std::vector<int64_t> rooms, firsts, expected;
      for (int64_t row = 0; row < rows.size(); ++row) {
        rooms.push_back(seq_len);
        for (const auto& piece : rows.row(row)) {
          rooms.back() -= piece.inputs();
          firsts.push_back(piece.first);
        }
        CHECK(std::ranges::is_sorted(rows.row(row), {}, &DocumentPiece::first));
      }
      std::ranges::sort(rooms);
      CHECK(rooms == rooms_by_definition(lengths, seq_len));
      std::ranges::sort(firsts);
      for (const auto& piece : pieces) expected.push_back(piece.first);
      CHECK(firsts == expected);
    }
}

TEST_CASE("pieces are packed only with others of their group") {
  const auto rows = pack(pieces_of({6, 6, 4, 4}), 10, 2);
  CHECK(lengths_of(rows) == std::vector<std::vector<int64_t>>{{6}, {6}, {4, 4}});
}

TEST_CASE("rows of a long-tailed list of lengths are filled to more than 95 %", "[rank9]") {
  std::mt19937 random(5);
  std::lognormal_distribution<double> length(5, 1);
  std::vector<int32_t> lengths;
  int64_t total = 0;
  for (int i = 0; i < 20000; ++i) {
    lengths.push_back(std::clamp(static_cast<int32_t>(length(random)), 1, 2048));
    total += lengths.back();
  }
  const auto rows = pack(pieces_of(lengths), 2048);
  CHECK(static_cast<double>(total) / static_cast<double>(2048 * rows.size()) > 0.95);
}
