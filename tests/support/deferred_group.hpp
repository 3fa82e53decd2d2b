// A process group that runs each collective as late as NCCL may: it reads the inputs only in wait(), and the outputs
// are NaN until then. It reveals inputs that are changed or freed too early and outputs that are used before wait(). Transfers between two
// ranks run at once, because the other rank may need a message before this one waits; wait() of a send tells if the tensor was changed.
#pragma once
#include <deque>

#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "strategies/collective/libtorch.hpp"
#include "tests/support/held_transfer.hpp"

namespace runner::testing {

class DeferredBackend : public c10d::Backend {
 public:
  explicit DeferredBackend(c10::intrusive_ptr<c10d::Backend> inner)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), queue_(std::make_shared<Queue>()) {}

  const std::string getBackendName() const override { return "deferred"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    return defer({}, [this, tensors, options]() mutable { inner_->allreduce(tensors, options)->wait(); });
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override {
    return defer(output, [this, output, input, options]() mutable {
      inner_->_reduce_scatter_base(output, input, options)->wait();
    });
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& options) override {
    // If the input is a part of the output, the output must keep its values.
    auto spoiled = output.is_alias_of(input) ? at::Tensor() : output;
    return defer(spoiled,
                 [this, output, input, options]() mutable { inner_->_allgather_base(output, input, options)->wait(); });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    auto spoiled = options.rootRank == getRank() ? at::Tensor() : tensors.at(0);
    return defer(spoiled, [this, tensors, options]() mutable { inner_->broadcast(tensors, options)->wait(); });
  }

  c10::intrusive_ptr<c10d::Work> send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    std::vector<at::Tensor> copies{tensors.at(0).clone()};
    return c10::make_intrusive<HeldSend>(inner_->send(copies, to, tag), copies[0], tensors[0]);
  }
  c10::intrusive_ptr<c10d::Work> recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    std::vector<at::Tensor> buffers{at::empty_like(tensors.at(0))};
    if (tensors[0].is_floating_point()) tensors[0].fill_(std::numeric_limits<double>::quiet_NaN());
    return c10::make_intrusive<HeldReceive>(inner_->recv(buffers, from, tag), buffers[0], tensors[0]);
  }

 private:
  /// The calls that have not run yet, in order, like the stream of a communicator. Every rank waits for the same
  /// collectives in the same order, so every rank reaches each of them.
  struct Queue {
    std::deque<std::function<void()>> calls;
    int64_t called = 0, run = 0;
    void run_until(int64_t index) {
      for (; run <= index; ++run) {
        calls.front()();
        calls.pop_front();
      }
    }
  };

  class Work : public c10d::Work {
   public:
    Work(std::shared_ptr<Queue> queue, int64_t index) : queue_(std::move(queue)), index_(index) {}
    bool isCompleted() override { return queue_->run > index_; }
    bool wait(std::chrono::milliseconds) override {
      queue_->run_until(index_);
      return true;
    }

   private:
    std::shared_ptr<Queue> queue_;
    int64_t index_;
  };

  /// Fills `spoiled` with NaN until the call has run.
  c10::intrusive_ptr<c10d::Work> defer(const at::Tensor& spoiled, std::function<void()> call) {
    if (spoiled.defined()) at::Tensor(spoiled).fill_(std::numeric_limits<double>::quiet_NaN());
    queue_->calls.push_back(std::move(call));
    return c10::make_intrusive<Work>(queue_, queue_->called++);
  }

  c10::intrusive_ptr<c10d::Backend> inner_;
  std::shared_ptr<Queue> queue_;
};

inline c10::intrusive_ptr<c10d::ProcessGroup> deferred(const c10::intrusive_ptr<c10d::Store>& store,
                                                       const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  if (!group) return group;
  auto backend = c10::make_intrusive<DeferredBackend>(group->getBackend(at::kCPU));
  auto wrapped = c10::make_intrusive<c10d::ProcessGroup>(store, backend->getRank(), backend->getSize());
  wrapped->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  wrapped->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
  return wrapped;
}

/// Defers every group of the world and every subgroup made from it.
inline void defer_groups(World& world) {
  world.group = deferred(world.store, world.group);
  world.make_subgroup = [make = world.make_subgroup, store = world.store](const std::vector<int>& ranks,
                                                                          const std::string& name) {
    return deferred(store, make(ranks, name));
  };
}

}  // namespace runner::testing
