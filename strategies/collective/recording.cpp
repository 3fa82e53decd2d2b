// A c10d backend that forwards every call to another backend and records it in this rank's trace.
#include <algorithm>

#include "strategies/collective/backends.hpp"

namespace runner {

namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

size_t bytes_of_all(const std::vector<at::Tensor>& tensors) {
  size_t bytes = 0;
  for (const auto& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

/// Whether a rank sends to one other rank only.
bool is_exchange(const std::vector<int64_t>& splits, int rank) {
  const auto count = std::ranges::count_if(splits, [](int64_t elements) { return elements > 0; });
  return count == 1 && splits[static_cast<size_t>(rank)] == 0;
}

/// Work, futures and errors are those of the inner backend. Operations that are not forwarded here are refused, so nothing is
/// sent without being recorded.
class RecordingBackend : public c10d::Backend {
 public:
  /// `group` is the index that the trace gave it.
  RecordingBackend(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<CollectiveTrace> trace, int group)
      : Backend(inner->getRank(), inner->getSize()),
        inner_(std::move(inner)),
        trace_(std::move(trace)),
        group_(group) {}

  const c10::intrusive_ptr<c10d::Backend>& inner() const { return inner_; }

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    note(Collective::all_reduce, tensors.at(0).scalar_type(), bytes_of_all(tensors), 0, options.reduceOp);
    return inner_->allreduce(tensors, options);
  }
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    note(Collective::broadcast, tensors.at(0).scalar_type(), bytes_of_all(tensors), options.rootRank);
    return inner_->broadcast(tensors, options);
  }
  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    note(Collective::reduce, tensors.at(0).scalar_type(), bytes_of_all(tensors), options.rootRank, options.reduceOp);
    return inner_->reduce(tensors, options);
  }
  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& options) override {
    note(Collective::all_gather, inputs.at(0).scalar_type(), bytes_of_all(outputs.at(0)));
    return inner_->allgather(outputs, inputs, options);
  }
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override {
    note(Collective::all_gather, input.scalar_type(), output.nbytes());
    return inner_->_allgather_base(output, input, options);
  }
  WorkPtr reduce_scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    note(Collective::reduce_scatter, outputs.at(0).scalar_type(), bytes_of_all(inputs.at(0)), 0, options.reduceOp);
    return inner_->reduce_scatter(outputs, inputs, options);
  }
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    note(Collective::reduce_scatter, input.scalar_type(), input.nbytes(), 0, options.reduceOp);
    return inner_->_reduce_scatter_base(output, input, options);
  }
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    const bool to_one = is_exchange(input_splits, getRank());
    note(Collective::all_to_all, input.scalar_type(), input.nbytes(), to_one ? exchange_root : 0);
    return inner_->alltoall_base(output, input, output_splits, input_splits, options);
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    note(Collective::barrier, torch::kUInt8, 0);
    return inner_->barrier(options);
  }
  /// Only in groups of two ranks, from the first one to the second one, so that both have the same calls.
  WorkPtr send(std::vector<at::Tensor>& tensors, int to, int tag) override {
    TORCH_CHECK(getSize() == 2 && getRank() == 0 && to == 1, "the first rank of a group of two sends, not rank ",
                getRank(), " of ", getSize());
    note(Collective::transfer, tensors.at(0).scalar_type(), bytes_of_all(tensors), tag);
    return inner_->send(tensors, to, tag);
  }

  WorkPtr recv(std::vector<at::Tensor>& tensors, int from, int tag) override {
    TORCH_CHECK(getSize() == 2 && getRank() == 1 && from == 0, "the second rank of a group of two receives, not rank ",
                getRank(), " of ", getSize());
    note(Collective::transfer, tensors.at(0).scalar_type(), bytes_of_all(tensors), tag);
    return inner_->recv(tensors, from, tag);
  }

  const std::string getBackendName() const override { return inner_->getBackendName(); }
  c10::intrusive_ptr<Options> getBackendOptions() override { return inner_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { inner_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { inner_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return inner_->getSequenceNumberForGroup(); }
  void eagerConnectSingleDevice(at::Device device) override { inner_->eagerConnectSingleDevice(device); }
  void waitForPendingWorks() override { inner_->waitForPendingWorks(); }
  c10d::ErrorType getError() override { return inner_->getError(); }
  void abort() override { inner_->abort(); }
  void shutdown() override { inner_->shutdown(); }

 private:
  void note(Collective kind, torch::ScalarType dtype, size_t bytes, int64_t root = 0,
            const c10d::ReduceOp& reduction = c10d::ReduceOp::SUM) {
    trace_->called(group_, {.bytes = bytes,
                            .kind = kind,
                            .dtype = static_cast<int8_t>(dtype),
                            .reduction = static_cast<uint8_t>(reduction.op_),
                            .root = static_cast<uint32_t>(root)});
  }

  c10::intrusive_ptr<c10d::Backend> inner_;
  std::shared_ptr<CollectiveTrace> trace_;
  int group_;
};

}  // namespace

ProcessGroup recorded_group(const c10::intrusive_ptr<c10d::Store>& store, c10::intrusive_ptr<c10d::Backend> backend,
                            at::DeviceType device, c10d::ProcessGroup::BackendType type,
                            std::shared_ptr<CollectiveTrace> trace, int index) {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, backend->getRank(), backend->getSize());
  group->setDefaultBackend(type);
  group->setBackend(device, type, c10::make_intrusive<RecordingBackend>(std::move(backend), std::move(trace), index));
  return group;
}

c10::intrusive_ptr<c10d::Backend> inner_backend(const ProcessGroup& group) {
  return dynamic_cast<RecordingBackend&>(*group->getBackend(at::kCPU)).inner();
}

}  // namespace runner
