// Detects from the last calls of all ranks for which ranks the others wait.
#include <catch2/catch_test_macros.hpp>

#include "strategies/collective/divergence.hpp"
#include "strategies/collective/libtorch.hpp"

using namespace runner;

namespace {

/// The calls of four ranks: two pairs on an axis "tensor", and a channel from rank 0 to rank 2.
class FourRanks {
 public:
  enum Index { world, low, high, channel };
  void call(int rank, Index group, Collective kind = Collective::all_reduce) {
    auto& history = histories_[static_cast<size_t>(rank)];
    Operation operation;
    operation.kind = kind;
    operation.bytes = 8;
    operation.dtype = static_cast<int8_t>(torch::kFloat32);
    operation.sequence = ++sequences_[{rank, group}];
    history.push_back({group, 0, operation});
    if (history.size() > CollectiveTrace::history) history.erase(history.begin());
  }
  void all_call(Index group) {
    for (int rank : groups_[group].ranks) call(rank, group);
  }
  void forget(int rank) { histories_[static_cast<size_t>(rank)].clear(); }
  std::string late() const { return describe_late_ranks(groups_, histories_).value_or(""); }

 private:
  std::vector<CollectiveTrace::Group> groups_{
      {"world", {0, 1, 2, 3}}, {"tensor 0", {0, 1}}, {"tensor 1", {2, 3}}, {"activations 0 to 2", {0, 2}}};
  std::vector<History> histories_ = std::vector<History>(4);
  std::map<std::pair<int, int>, uint64_t> sequences_;
};

}  // namespace

TEST_CASE("no rank is late if all have made the same calls", "[late]") {
  FourRanks ranks;
  CHECK(ranks.late() == "");
  ranks.all_call(FourRanks::world);
  ranks.all_call(FourRanks::low);
  CHECK(ranks.late() == "");
}

TEST_CASE("a rank that has not made the call of the others is late", "[late]") {
  for (int before : {1, 1000}) {
    FourRanks ranks;
    for (int i = 0; i < before; ++i) ranks.all_call(FourRanks::world);
    for (int rank : {0, 1, 3}) ranks.call(rank, FourRanks::world);
    CHECK(ranks.late() ==
          fmt::format("ranks 0, 1, 3 wait for rank 2, whose last call is all_reduce #{} (8 B of float32) of world",
                      before));
  }
}

TEST_CASE("a rank that waits for a late rank is not late itself", "[late]") {
  FourRanks ranks;
  ranks.all_call(FourRanks::world);
  ranks.call(0, FourRanks::channel, Collective::transfer);  // waits for rank 2, which waits for rank 3
  ranks.call(2, FourRanks::high);
  ranks.call(1, FourRanks::low);  // waits for rank 0
  CHECK(ranks.late() == "ranks 0-2 wait for rank 3, whose last call is all_reduce #1 (8 B of float32) of world");
}

TEST_CASE("late ranks with different last calls are listed separately, unknown ones are left out", "[late]") {
  FourRanks ranks;
  ranks.all_call(FourRanks::world);
  ranks.all_call(FourRanks::high);
  for (int rank : {0, 1}) ranks.call(rank, FourRanks::world);
  ranks.all_call(FourRanks::low);
  ranks.forget(2);
  ranks.call(0, FourRanks::world);
  CHECK(ranks.late() ==
        "rank 0 waits for rank 1, whose last call is all_reduce #1 (8 B of float32) of tensor 0, and for rank 3, whose "
        "last call is all_reduce #1 (8 B of float32) of tensor 1");
}

TEST_CASE("if all ranks wait, those that have fallen behind are listed", "[late]") {
  FourRanks ranks;
  ranks.all_call(FourRanks::world);
  ranks.call(0, FourRanks::low);
  ranks.call(1, FourRanks::world);
  CHECK(ranks.late() == "ranks 0, 1 wait for ranks 2, 3, whose last call is all_reduce #1 (8 B of float32) of world");
  ranks.call(2, FourRanks::channel, Collective::transfer);  // starts to receive
  ranks.call(3, FourRanks::high);
  CHECK(
      ranks.late() ==
      "ranks 0-3 wait for rank 0, whose last call is all_reduce #1 (8 B of float32) of tensor 0, and for rank 3, whose "
      "last call is all_reduce #1 (8 B of float32) of tensor 1, and for rank 1, whose last call is all_reduce #2 (8 B "
      "of float32) of world, and for rank 2, whose last call is transfer #1 (8 B of float32) of activations 0 to 2");
}
