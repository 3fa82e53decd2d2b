// Detects from the last calls of all ranks which ranks diverged and in which call.
#include <catch2/catch_test_macros.hpp>

#include "strategies/collective/divergence.hpp"
#include "strategies/collective/libtorch.hpp"

using namespace runner;

namespace {

/// The calls of several ranks. Each rank has a separate trace.
class Ranks {
 public:
  explicit Ranks(int size) {
    for (int rank = 0; rank < size; ++rank) traces_.push_back(std::make_unique<CollectiveTrace>(rank));
    std::vector<int> all;
    for (int rank = 0; rank < size; ++rank) all.push_back(rank);
    group("world", all);
    group("control", all);
  }
  int group(const std::string& name, const std::vector<int>& ranks) {
    int index = 0;
    for (auto& trace : traces_) index = trace->add_group(name, ranks);
    return index;
  }
  void call(int rank, int group, Collective kind, uint64_t bytes = 8) {
    Operation operation;
    operation.kind = kind;
    operation.bytes = bytes;
    operation.dtype = static_cast<int8_t>(torch::kFloat32);
    traces_[static_cast<size_t>(rank)]->called(group, operation);
  }
  void all_call(int group, Collective kind, int times = 1) {
    for (int i = 0; i < times; ++i)
      for (size_t rank = 0; rank < traces_.size(); ++rank) call(static_cast<int>(rank), group, kind);
  }
  std::string verdict() const {
    std::vector<History> histories;
    for (const auto& trace : traces_) {
      auto bytes = to_bytes(trace->recent());
      histories.push_back(history_from(bytes.data(), bytes.size()));
    }
    return find_divergence(traces_[0]->groups(), histories).value_or("");
  }
  std::string deadlock() const {
    std::vector<History> histories;
    for (const auto& trace : traces_) histories.push_back(trace->recent());
    for (auto& history : histories) std::erase_if(history, [](const auto& call) { return call.group < 0; });
    return find_deadlock(traces_[0]->groups(), histories).value_or("");
  }
  std::vector<int> strayed() const {
    std::vector<double> digests;
    for (const auto& trace : traces_)
      for (double word : trace->digests()) digests.push_back(word);
    const auto strayed = traces_[0]->strayed(digests);
    uint64_t sum = 0;
    for (const auto& trace : traces_) sum += trace->agreement_share();
    CHECK((sum == 0) == strayed.empty());
    return strayed;
  }

 private:
  std::vector<std::unique_ptr<CollectiveTrace>> traces_;
};

}  // namespace

TEST_CASE("ranks with equal calls have not diverged, and a rank that is only behind has not either", "[divergence]") {
  Ranks ranks(3);
  CHECK(ranks.verdict() == "");
  ranks.all_call(0, Collective::all_reduce, 300);
  CHECK(ranks.verdict() == "");
  CHECK(ranks.strayed().empty());
  ranks.call(0, 0, Collective::all_gather);
  ranks.call(0, 1, Collective::all_reduce);
  CHECK(ranks.verdict() == "");
  CHECK(ranks.strayed() == std::vector<int>{1, 2});  // strayed() assumes that all ranks are at the same point
}

TEST_CASE("the first call that differs is found, also after many equal calls", "[divergence]") {
  for (int before : {0, 10, 1000}) {
    Ranks ranks(4);
    ranks.all_call(0, Collective::all_reduce, before);
    for (int rank : {0, 1, 3}) ranks.call(rank, 0, Collective::all_reduce, 100);
    ranks.call(2, 0, Collective::all_reduce, 104);
    ranks.all_call(1, Collective::all_gather, 3);
    CHECK(ranks.verdict() ==
          fmt::format("ranks diverged: ranks 0, 1, 3 are in all_reduce #{0} (100 B of float32), rank 2 in "
                      "all_reduce #{0} (104 B of float32)",
                      before + 1));
    CHECK(ranks.strayed() == std::vector<int>{2});
  }
}

TEST_CASE("groups that share ranks must be used in the same order on all ranks", "[divergence]") {
  Ranks ranks(2);
  ranks.all_call(0, Collective::all_reduce, 5);
  ranks.call(0, 0, Collective::all_reduce);
  ranks.call(1, 1, Collective::all_gather);
  CHECK(ranks.verdict() ==
        "ranks diverged: rank 0 is in all_reduce #6 (8 B of float32) of world, rank 1 in all_gather #1 (8 B of "
        "float32) of control");
}

TEST_CASE("calls of one group are not compared with those of ranks outside the group", "[divergence]") {
  Ranks ranks(4);
  int low = ranks.group("low", {0, 1}), high = ranks.group("high", {2, 3});
  for (int rank : {0, 1}) ranks.call(rank, low, Collective::all_reduce, 100);
  for (int rank : {2, 3})
    ranks.call(rank, high, Collective::all_gather, 50), ranks.call(rank, high, Collective::all_gather, 50);
  ranks.all_call(0, Collective::all_reduce);
  CHECK(ranks.verdict() == "");
  CHECK(ranks.strayed().empty());
  ranks.call(2, high, Collective::all_reduce);
  ranks.call(3, high, Collective::all_gather);
  CHECK(ranks.verdict() ==
        "ranks diverged: rank 2 is in all_reduce #3 (8 B of float32), rank 3 in all_gather #3 (8 B of float32)");
  CHECK(ranks.strayed() == std::vector<int>{3});
}

TEST_CASE("channels have no order with respect to each other and to collectives, but each has its own",
          "[divergence]") {
  Ranks ranks(3);
  int right = ranks.group("activations 0 to 1", {0, 1}), left = ranks.group("gradients 1 to 0", {1, 0});
  ranks.call(0, right, Collective::transfer);
  ranks.call(0, left, Collective::transfer);
  ranks.all_call(0, Collective::all_reduce);
  ranks.call(1, left, Collective::transfer);
  ranks.call(1, right, Collective::transfer);
  CHECK(ranks.verdict() == "");
  CHECK(ranks.strayed().empty());
  ranks.call(0, right, Collective::transfer, 100);
  ranks.call(0, left, Collective::transfer, 200);
  ranks.call(1, left, Collective::transfer, 200);
  CHECK(ranks.verdict() == "");  // rank 1 is only behind
  CHECK(ranks.strayed() == std::vector<int>{1});
  ranks.call(1, right, Collective::transfer, 104);
  ranks.all_call(0, Collective::all_reduce);
  CHECK(ranks.verdict() ==
        "ranks diverged: rank 0 is in transfer #2 (100 B of float32) of activations 0 to 1, rank 1 in transfer #2 (104 "
        "B of float32) of activations 0 to 1");
}

TEST_CASE("ranks that wait for each other's messages are found, with what each one waits in", "[divergence][channel]") {
  Ranks ranks(3);
  const int forward = ranks.group("activations 0 to 1", {0, 1}), backward = ranks.group("gradients 1 to 0", {1, 0}),
            next = ranks.group("activations 1 to 2", {1, 2});
  ranks.call(0, forward, Collective::transfer);
  ranks.call(1, forward, Collective::transfer);
  ranks.call(0, backward, Collective::transfer);
  CHECK(ranks.deadlock() == "");  // rank 1 computes
  ranks.call(2, next, Collective::transfer);
  CHECK(ranks.deadlock() == "");
  ranks.call(1, forward, Collective::transfer);
  CHECK(ranks.deadlock() ==
        "ranks wait for each other: rank 0 in transfer #1 (8 B of float32) of gradients 1 to 0, rank 1 in transfer #2 "
        "(8 B of float32) of activations 0 to 1");
  ranks.call(0, forward, Collective::transfer);
  CHECK(ranks.deadlock() == "");  // rank 0 has gone on
}

TEST_CASE("the digests of a channel are compared with each other, also where its ranks have other groups",
          "[divergence]") {
  Ranks ranks(4);
  ranks.group("low", {0, 1});
  int back = ranks.group("gradients 2 to 1", {2, 1}), middle = ranks.group("activations 1 to 2", {1, 2});
  ranks.group("high", {2, 3});
  for (int rank : {1, 2}) ranks.call(rank, middle, Collective::transfer);
  for (int rank : {2, 1}) ranks.call(rank, back, Collective::transfer, 16);
  CHECK(ranks.strayed().empty());
  ranks.call(2, back, Collective::transfer, 16);
  ranks.call(1, back, Collective::transfer, 24);
  CHECK(ranks.strayed() == std::vector<int>{1});
}
