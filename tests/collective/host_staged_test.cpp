// Collectives and transfers through host memory, over shared memory and Gloo. Ranks are threads, and the tensors are those of the CPU.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <cstdlib>
#include <map>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "strategies/collective/backends.hpp"
#include "strategies/collective/gloo.hpp"
#include "tests/collective/errors.hpp"
#include "tests/collective/operations.hpp"
#include "tests/support/rank_check.hpp"
#include "tests/support/ring_channels.hpp"
#include "tests/support/thread_world.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

using Tensors = std::vector<at::Tensor>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

/// The backend of a new group of CPU tensors. Null on a rank that is not among `ranks`.
BackendPtr make_inner(World& world, const std::string& transport, const std::vector<int>& ranks,
                      const std::string& name) {
  if (transport == "shm") {
    auto group = world.make_subgroup(ranks, name);
    return group ? inner_backend(group) : BackendPtr();
  }
  const auto place = std::ranges::find(ranks, world.rank);
  if (place == ranks.end()) return {};
  return make_gloo(c10::make_intrusive<c10d::PrefixStore>(name, world.store), static_cast<int>(place - ranks.begin()),
                   static_cast<int>(ranks.size()), "", std::chrono::seconds(20));
}

ProcessGroup staged_group(World& world, const std::string& transport, const std::vector<int>& ranks,
                          const std::string& name) {
  auto inner = make_inner(world, transport, ranks, name);
  const int index = world.trace->add_group(name, ranks);
  if (!inner) return {};
  return recorded_group(world.store, host_staged(std::move(inner)), at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
                        world.trace, index);
}

std::vector<int> all_ranks(const World& world) {
  std::vector<int> ranks;
  for (int rank = 0; rank < world.size; ++rank) ranks.push_back(rank);
  return ranks;
}

/// LibTorch's flight recorder, which all groups of Gloo in a process share, changes a map without a lock when a group has its first
/// collective. So it is off where ranks are threads.
void run_over(const std::string& transport, int ranks, const std::function<void(World&)>& body) {
  if (transport == "gloo") ::setenv("TORCH_FR_BUFFER_SIZE", "0", 1);
  run_ranks(ranks, body);
}

/// A world whose subgroups, but not `group` and `control`, go through host memory.
World staged_world(World& world, const std::string& transport) {
  World staged = world;
  staged.make_subgroup = [&world, transport](const std::vector<int>& ranks, const std::string& name) {
    return staged_group(world, transport, ranks, name);
  };
  return staged;
}

/// A tensor with these values that is not contiguous, if it has more than one element.
at::Tensor strided(const at::Tensor& values) {
  auto sizes = values.sizes().vec();
  std::ranges::reverse(sizes);
  sizes.push_back(2);
  auto tensor = torch::full(sizes, -1, values.options()).select(-1, 0).t();
  tensor.copy_(values);
  return tensor;
}

/// Runs every operation once, each on its own tensors.
class EveryOperation {
 public:
  /// `strides`: whether the tensors are not contiguous.
  EveryOperation(c10d::Backend& backend, at::ScalarType dtype, bool strides)
      : backend_(backend), rank_(backend.getRank()), size_(backend.getSize()), dtype_(dtype), strides_(strides) {}

  /// All inputs and outputs, as they are after the operation. `of_gloo` leaves out what Gloo does not define.
  std::map<std::string, Tensors> run(bool of_gloo) {
    reductions(of_gloo);
    gathers();
    exchanges();
    done(backend_.barrier({}));
    return std::move(results_);
  }

 private:
  at::Tensor laid_out(const at::Tensor& values) { return strides_ ? strided(values) : values.clone(); }
  at::Tensor input(at::IntArrayRef sizes) {
    return laid_out(input_of(rank_, dtype_, c10::multiply_integers(sizes)).view(sizes));
  }
  at::Tensor output(at::IntArrayRef sizes) { return laid_out(torch::zeros(sizes, dtype_)); }

  void done(const c10::intrusive_ptr<c10d::Work>& work) { work->wait(); }

  void reductions(bool of_gloo) {
    Tensors all{input({3, 5})}, one{input({3, 5})};
    done(backend_.allreduce(all, {Op::MAX}));
    results_["all_reduce"] = all;
    done(backend_.reduce(one, {.reduceOp = Op::SUM, .rootRank = size_ - 1}));
    if (rank_ == size_ - 1 || !of_gloo) results_["reduce"] = one;

    auto whole = input({size_ * 3, 5}), part = output({3, 5});
    done(backend_._reduce_scatter_base(part, whole, {}));
    results_["reduce_scatter"] = {part, whole};
    Tensors parts{output({3, 5})};
    std::vector<Tensors> lists(1);
    for (int r = 0; r < size_; ++r) lists[0].push_back(input({3, 5}));
    done(backend_.reduce_scatter(parts, lists, {}));
    results_["reduce_scatter of a list"] = parts;
  }

  void gathers() {
    Tensors from_root{input({3, 5})};
    done(backend_.broadcast(from_root, {.rootRank = size_ / 2}));
    results_["broadcast"] = from_root;

    auto whole = output({size_ * 3, 5}), part = input({3, 5});
    done(backend_._allgather_base(whole, part, {}));
    results_["all_gather"] = {whole, part};
    Tensors parts{input({3, 5})};
    std::vector<Tensors> lists(1);
    for (int r = 0; r < size_; ++r) lists[0].push_back(output({3, 5}));
    done(backend_.allgather(lists, parts, {}));
    results_["all_gather of a list"] = lists[0];
  }

  /// Rank r sends 1 + (r + k) mod size elements to rank k.
  void exchanges() {
    auto sent = input({size_ * 2, 5}), received = output({size_ * 2, 5});
    std::vector<int64_t> equal_out, equal_in, out, in;  // Gloo takes the contents of each vector
    done(backend_.alltoall_base(received, sent, equal_out, equal_in, {}));
    results_["all_to_all"] = {received, sent};
    int64_t total = 0;
    for (int other = 0; other < size_; ++other) total += in.emplace_back(1 + (rank_ + other) % size_);
    out = in;
    auto elements = input({total}), taken = output({total});
    done(backend_.alltoall_base(taken, elements, out, in, {}));
    results_["all_to_all of unequal parts"] = {taken, elements};
  }

  c10d::Backend& backend_;
  int rank_, size_;
  at::ScalarType dtype_;
  bool strides_;
  std::map<std::string, Tensors> results_;
};

/// One of two ranks. Each operation happens in wait(), and the backend does not keep its tensor until then.
class LateBackend : public c10d::Backend {
 public:
  LateBackend() : Backend(0, 2) {}
  const std::string getBackendName() const override { return "late"; }
  /// Adds 1.
  c10::intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions&) override {
    return later(tensors, [](at::Tensor tensor) { tensor.add_(1); });
  }
  /// On every rank, as Gloo may use the tensors of other ranks than the root.
  c10::intrusive_ptr<c10d::Work> reduce(Tensors& tensors, const c10d::ReduceOptions&) override {
    return allreduce(tensors, {});
  }
  c10::intrusive_ptr<c10d::Work> send(Tensors& tensors, int, int) override {
    return later(tensors, [this](const at::Tensor& tensor) { sent = tensor.clone(); });
  }
  bool fails = false;
  at::Tensor sent;

 private:
  using Action = std::function<void(const at::Tensor&)>;

  class Work : public c10d::Work {
   public:
    Work(const at::Tensor& tensor, Action action) : tensor_(tensor.getIntrusivePtr()), action_(std::move(action)) {}
    bool wait(std::chrono::milliseconds) override {
      auto tensor = tensor_.lock();
      TORCH_CHECK(tensor, "the tensor is gone");
      action_(at::Tensor(std::move(tensor)));
      return true;
    }

   private:
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> tensor_;
    Action action_;
  };

  c10::intrusive_ptr<c10d::Work> later(const Tensors& tensors, Action action) {
    if (fails) action = [](const at::Tensor&) { throw std::runtime_error("the peer is gone"); };
    return c10::make_intrusive<Work>(tensors.at(0), std::move(action));
  }
};

}  // namespace

TEST_CASE("every operation through host memory gives the reference's values", "[collective][host_staged]") {
  at::set_num_threads(1);
  const int ranks = GENERATE(2, 3, 4);
  const std::string transport = GENERATE("shm", "gloo");
  Coverage coverage{
      .dtypes = {torch::kFloat32, torch::kBFloat16}, .large = {torch::kFloat32}, .exact = transport == "shm"};
  std::mutex mutex;
  std::vector<std::string> failures;
  run_over(transport, ranks, [&](World& world) {
    auto lines = OperationCheck(staged_group(world, transport, all_ranks(world), "staged"), coverage).run();
    std::lock_guard lock(mutex);
    failures.insert(failures.end(), lines.begin(), lines.end());
  });
  CHECK(failures == std::vector<std::string>{});
}

TEST_CASE("tensors of any strides get the values that the inner backend gives to contiguous ones",
          "[collective][host_staged]") {
  at::set_num_threads(1);
  const int ranks = GENERATE(2, 3, 4);
  const std::string transport = GENERATE("shm", "gloo");
  run_over(transport, ranks, [&](World& world) {
    auto inner = make_inner(world, transport, all_ranks(world), "inner");
    const auto made = host_staged(inner);
    auto& staged = *made;
    RANK_CHECK(staged.getBackendName() == transport);
    RANK_CHECK(staged.getRank() == world.rank && staged.getSize() == world.size);
    for (auto dtype : {torch::kFloat32, torch::kBFloat16}) {
      const bool of_gloo = transport == "gloo";
      auto expected = EveryOperation(*inner, dtype, false).run(of_gloo);
      auto results = EveryOperation(staged, dtype, true).run(of_gloo);
      RANK_CHECK(results.size() == expected.size());
      for (const auto& [name, tensors] : expected)
        for (size_t i = 0; i < tensors.size(); ++i)
          if (!torch::equal(results.at(name).at(i), tensors[i]) || results.at(name)[i].is_contiguous())
            throw std::runtime_error(fmt::format("{} of {} on rank {}", name, c10::toString(dtype), world.rank));
    }
  });
}

TEST_CASE("a parameter takes a result, and autograd does not see the change", "[collective][host_staged]") {
  run_ranks(2, [](World& world) {
    const auto made = host_staged(make_inner(world, "shm", {0, 1}, "inner"));
    auto& staged = *made;
    auto parameter = torch::full({4}, 1.0f + static_cast<float>(world.rank)).requires_grad_();
    const auto version = parameter._version();
    auto square = parameter.square().sum();
    Tensors tensors{parameter};
    staged.broadcast(tensors, {.rootRank = 1})->wait();
    RANK_CHECK(parameter.eq(2).all().item<bool>());
    staged.allreduce(tensors, {})->wait();
    RANK_CHECK(parameter.eq(4).all().item<bool>());
    RANK_CHECK(parameter.is_leaf() && parameter.requires_grad() && parameter._version() == version);
    square.backward();
    RANK_CHECK(parameter.grad().eq(8).all().item<bool>());  // as over shared memory alone
  });
}

TEST_CASE("results are copied back after the inner work has ended, and only if it succeeds",
          "[collective][host_staged]") {
  auto inner = c10::make_intrusive<LateBackend>();
  const auto made = host_staged(inner);
  auto& staged = *made;
  Tensors tensors{torch::zeros({3})};
  auto work = staged.allreduce(tensors, {});
  CHECK(work->isCompleted());
  CHECK(work->result().at(0).is_same(tensors[0]));
  CHECK(tensors[0].eq(1).all().item<bool>());
  inner->fails = true;
  CHECK_THROWS_WITH(staged.allreduce(tensors, {}), "the peer is gone");
  CHECK(tensors[0].eq(1).all().item<bool>());
}

TEST_CASE("a reduce writes the tensor of the root only", "[collective][host_staged]") {
  const auto made = host_staged(c10::make_intrusive<LateBackend>());
  auto& staged = *made;
  for (int root : {1, 0}) {
    Tensors tensors{torch::zeros({3})};
    staged.reduce(tensors, {.rootRank = root});
    CHECK(tensors[0].eq(root == 0 ? 1 : 0).all().item<bool>());
  }
}

TEST_CASE("a message is read in send, and kept until it has left", "[collective][host_staged]") {
  auto inner = c10::make_intrusive<LateBackend>();
  const auto made = host_staged(inner);
  auto& staged = *made;
  Tensors tensors{torch::full({3}, 5.0f)};
  auto work = staged.send(tensors, 1, 0);
  tensors[0].fill_(7);
  tensors.clear();
  CHECK_FALSE(inner->sent.defined());
  work->wait();
  CHECK(inner->sent.eq(5).all().item<bool>());
  inner->fails = true;
  tensors = {torch::ones({3})};
  work = staged.send(tensors, 1, 0);
  CHECK_THROWS_WITH(work->wait(), "the peer is gone");
}

TEST_CASE("ranks on a ring send through host memory to both neighbours before they receive",
          "[collective][host_staged]") {
  at::set_num_threads(1);
  const int ranks = GENERATE(2, 3, 4);
  const std::string transport = GENERATE("shm", "gloo");
  run_over(transport, ranks, [&](World& world) {
    RANK_CHECK(check_ring(staged_world(world, transport), int64_t{5} << 20) == std::vector<std::string>{});
  });
}

TEST_CASE("a receive through host memory can start early, and writes its tensor in the first wait",
          "[collective][host_staged]") {
  at::set_num_threads(1);
  const std::string transport = GENERATE("shm", "gloo");
  const auto dtype = GENERATE(torch::kFloat32, torch::kBFloat16);
  run_over(transport, 2, [&](World& world) {
    auto staged = staged_world(world, transport);
    auto to_right = make_channel(staged, "activations", 0, 1), to_left = make_channel(staged, "gradients", 1, 0);
    const auto &mine = world.rank == 0 ? to_right : to_left, &other = world.rank == 0 ? to_left : to_right;
    const int64_t rows = 1000, columns = 1001;
    auto sent = strided(input_of(world.rank, dtype, rows * columns).view({rows, columns}));
    auto received = strided(torch::full({rows, columns}, -1, dtype));
    auto receive = other.receive(received);
    barrier(world.control);  // both have started their receives
    auto send = mine.send(sent);
    barrier(world.control);
    RANK_CHECK(received.eq(-1).all().item<bool>());
    receive->wait();
    send->wait();
    RANK_CHECK(torch::equal(received, input_of(1 - world.rank, dtype, rows * columns).view({rows, columns})));
    received.fill_(7);
    receive->wait();
    RANK_CHECK(received.eq(7).all().item<bool>());
  });
}

TEST_CASE("ranks that diverge get the inner backend's error through host memory", "[collective][host_staged]") {
  const auto floats = [](int64_t numel) { return torch::ones({numel}); };
  SECTION("from a collective, whose tensor keeps its values") {
    const std::string text =
        "ranks diverged: rank 0 is in all_reduce #1 (40 B of float32), rank 1 in all_reduce #1 (44 B of float32)";
    std::vector<at::Tensor> tensors{floats(10), floats(11)};
    CHECK(errors(2, [&](World& world) {
            auto group = staged_group(world, "shm", {0, 1}, "staged");
            all_reduce(group, tensors[static_cast<size_t>(world.rank)]);
          }) == Texts{text, text});
    for (const auto& tensor : tensors) CHECK(tensor.eq(1).all().item<bool>());
  }
  SECTION("from each wait of a receive, whose tensor keeps its values") {
    const std::string text =
        "ranks diverged: rank 0 is in transfer #2 (40 B of float32) of activations 0 to 1, rank 1 in transfer #2 (44 "
        "B of float32) of activations 0 to 1";
    Texts received;
    run_ranks(2, [&](World& world) {
      auto staged = staged_world(world, "shm");
      auto channel = make_channel(staged, "activations", 0, 1);
      if (world.rank == 0) {
        channel.send(floats(10))->wait();
        return;
      }
      auto tensor = floats(11);
      auto work = channel.receive(tensor);
      for (int round = 0; round < 2; ++round) try {
          work->wait();
        } catch (const c10::DistBackendError& error) {
          received.push_back(error.what_without_backtrace());
        }
      RANK_CHECK(tensor.eq(1).all().item<bool>());
    });
    CHECK(received == Texts{text, text});
  }
}

TEST_CASE("operations that do not go through host memory are refused", "[collective][host_staged]") {
  const auto made = host_staged(c10::make_intrusive<LateBackend>());
  auto& staged = *made;
  std::vector<Tensors> outputs{{torch::zeros({1}), torch::zeros({1})}};
  Tensors inputs{torch::zeros({1})};
  try {
    staged.gather(outputs, inputs);
    FAIL("gather ran");
  } catch (const c10::Error& error) {
    CHECK(error.what_without_backtrace() == std::string("Backend late does not support gather"));
  }
}
