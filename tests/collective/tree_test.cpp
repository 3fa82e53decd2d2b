// Sums along a tree of messages: its shape, the bits, and the messages that each rank sends.
#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "strategies/collective/completed_work.hpp"
#include "strategies/collective/reduction.hpp"
#include "strategies/collective/tree.hpp"

using namespace runner;

namespace {

/// Messages on their way between ranks that are threads.
class Post {
 public:
  void send(int from, int to, const at::Tensor& tensor) {
    std::lock_guard lock(mutex_);
    const auto* data = static_cast<const std::byte*>(tensor.data_ptr());
    boxes_[{from, to}].emplace_back(data, data + tensor.nbytes());
    arrived_.notify_all();
  }
  void receive(int from, int to, const at::Tensor& tensor) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, to}];
    arrived_.wait(lock, [&] { return !box.empty(); });
    std::memcpy(tensor.data_ptr(), box.front().data(), box.front().size());
    box.pop_front();
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> boxes_;
};

class Receipt : public c10d::Work {
 public:
  explicit Receipt(std::function<void()> receive) : receive_(std::move(receive)) {}
  bool wait(std::chrono::milliseconds) override {
    receive_();
    return true;
  }

 private:
  std::function<void()> receive_;
};

/// Counts what its rank sends.
class CountingRank : public c10d::Backend {
 public:
  CountingRank(Post& post, int rank, int size) : Backend(rank, size), post_(post) {}
  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int) override {
    ++messages;
    bytes += tensors[0].nbytes();
    post_.send(getRank(), to, tensors[0]);
    return completed(tensors);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int) override {
    return c10::make_intrusive<Receipt>([this, tensor = tensors[0], from] { post_.receive(from, getRank(), tensor); });
  }
  int messages = 0;
  size_t bytes = 0;

 private:
  Post& post_;
};

/// Numbers whose sum depends on the order.
at::Tensor numbers_of(int rank, int64_t count) {
  auto tensor = torch::empty({count}, torch::kFloat64);
  for (int64_t i = 0; i < count; ++i)
    tensor[i] = (rank % 3 == 0 ? 1e15 : 1.0) * (1 + rank) / static_cast<double>(3 + i) * (rank % 2 == 0 ? 1 : -1);
  return tensor;
}

int levels_of(int ranks) { return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks - 1))); }

int depth_of(int rank, int ranks) {
  const int parent = place_in_tree(rank, ranks).parent;
  return parent < 0 ? 0 : 1 + depth_of(parent, ranks);
}

}  // namespace

TEST_CASE("the tree has all ranks, and a depth of log2 of their number", "[tree]") {
  const int ranks = GENERATE(1, 2, 3, 7, 8, 100, 1024, 1025);
  std::vector<int> times(static_cast<size_t>(ranks));
  int deepest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto place = place_in_tree(rank, ranks);
    CHECK((place.parent < 0) == (rank == 0));
    for (int child : place.children) {
      ++times[static_cast<size_t>(child)];
      CHECK(place_in_tree(child, ranks).parent == rank);
    }
    deepest = std::max(deepest, depth_of(rank, ranks));
  }
  CHECK(times[0] == 0);
  CHECK(std::all_of(times.begin() + 1, times.end(), [](int n) { return n == 1; }));
  CHECK(deepest <= levels_of(ranks));
}

TEST_CASE("a sum along the tree has the bits of a sum in one place, on every rank, for two messages a rank", "[tree]") {
  const int ranks = GENERATE(1, 2, 3, 5, 8, 13, 64);
  constexpr int64_t count = 12;
  std::vector<at::Tensor> inputs, results;
  std::vector<const std::byte*> rows;
  for (int rank = 0; rank < ranks; ++rank) {
    inputs.push_back(numbers_of(rank, count));
    results.push_back(inputs.back().clone());
    rows.push_back(static_cast<const std::byte*>(inputs.back().data_ptr()));
  }
  auto expected = torch::empty({count}, torch::kFloat64);
  reduction_of(torch::kFloat64, c10d::ReduceOp::SUM)(rows.data(), ranks, static_cast<std::byte*>(expected.data_ptr()),
                                                     count);
  Post post;
  std::vector<c10::intrusive_ptr<CountingRank>> backends;
  for (int rank = 0; rank < ranks; ++rank) backends.push_back(c10::make_intrusive<CountingRank>(post, rank, ranks));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < backends.size(); ++rank)
    threads.emplace_back([&, rank] { tree_all_reduce(*backends[rank], results[rank], c10d::ReduceOp::SUM); });
  for (auto& thread : threads) thread.join();

  int messages = 0;
  for (size_t rank = 0; rank < backends.size(); ++rank) {
    CHECK(std::memcmp(results[rank].data_ptr(), expected.data_ptr(), expected.nbytes()) == 0);
    messages += backends[rank]->messages;
    CHECK(backends[rank]->messages <= 1 + levels_of(ranks));
    CHECK(backends[rank]->bytes == static_cast<size_t>(backends[rank]->messages) * expected.nbytes());
  }
  CHECK(messages == 2 * (ranks - 1));
}

TEST_CASE("only small tensors whose sums are not rounded in between take the tree", "[tree]") {
  using Op = c10d::ReduceOp;
  CHECK(suits_tree(torch::ones({128}, torch::kFloat64), Op::SUM));
  CHECK_FALSE(suits_tree(torch::ones({129}, torch::kFloat64), Op::SUM));
  CHECK(suits_tree(torch::ones({3}, torch::kInt64), Op::MIN));
  CHECK_FALSE(suits_tree(torch::ones({3}, torch::kBFloat16), Op::SUM));
  CHECK_FALSE(suits_tree(torch::ones({3}), Op::AVG));
  CHECK_FALSE(suits_tree(torch::ones({3, 3}).t(), Op::SUM));
}
