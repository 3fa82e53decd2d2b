#include "strategies/collective/recording.hpp"

#include <algorithm>

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

}  // namespace

RecordingBackend::RecordingBackend(c10::intrusive_ptr<c10d::Backend> inner, std::shared_ptr<CollectiveTrace> trace,
                                   int group)
    : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), trace_(std::move(trace)), group_(group) {}

void RecordingBackend::note(Collective kind, torch::ScalarType dtype, size_t bytes, int64_t root,
                            const c10d::ReduceOp& reduction) {
  Operation operation;
  operation.bytes = bytes;
  operation.kind = kind;
  operation.dtype = static_cast<int8_t>(dtype);
  operation.reduction = static_cast<uint8_t>(reduction.op_);
  operation.root = static_cast<uint32_t>(root);
  trace_->called(group_, operation);
}

WorkPtr RecordingBackend::allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
  note(Collective::all_reduce, tensors.at(0).scalar_type(), bytes_of_all(tensors), 0, options.reduceOp);
  return inner_->allreduce(tensors, options);
}

WorkPtr RecordingBackend::broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) {
  note(Collective::broadcast, tensors.at(0).scalar_type(), bytes_of_all(tensors), options.rootRank);
  return inner_->broadcast(tensors, options);
}

WorkPtr RecordingBackend::reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) {
  note(Collective::reduce, tensors.at(0).scalar_type(), bytes_of_all(tensors), options.rootRank, options.reduceOp);
  return inner_->reduce(tensors, options);
}

WorkPtr RecordingBackend::allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                                    const c10d::AllgatherOptions& options) {
  note(Collective::all_gather, inputs.at(0).scalar_type(), bytes_of_all(outputs.at(0)));
  return inner_->allgather(outputs, inputs, options);
}

WorkPtr RecordingBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& options) {
  note(Collective::all_gather, input.scalar_type(), output.nbytes());
  return inner_->_allgather_base(output, input, options);
}

WorkPtr RecordingBackend::reduce_scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                                         const c10d::ReduceScatterOptions& options) {
  note(Collective::reduce_scatter, outputs.at(0).scalar_type(), bytes_of_all(inputs.at(0)), 0, options.reduceOp);
  return inner_->reduce_scatter(outputs, inputs, options);
}

WorkPtr RecordingBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& options) {
  note(Collective::reduce_scatter, input.scalar_type(), input.nbytes(), 0, options.reduceOp);
  return inner_->_reduce_scatter_base(output, input, options);
}

WorkPtr RecordingBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  const bool to_one = is_exchange(input_splits, getRank());
  note(Collective::all_to_all, input.scalar_type(), input.nbytes(), to_one ? exchange_root : 0);
  return inner_->alltoall_base(output, input, output_splits, input_splits, options);
}

WorkPtr RecordingBackend::barrier(const c10d::BarrierOptions& options) {
  note(Collective::barrier, torch::kUInt8, 0);
  return inner_->barrier(options);
}

WorkPtr RecordingBackend::send(std::vector<at::Tensor>& tensors, int to, int tag) {
  TORCH_CHECK(getSize() == 2 && getRank() == 0 && to == 1, "the first rank of a group of two sends, not rank ",
              getRank(), " of ", getSize());
  note(Collective::transfer, tensors.at(0).scalar_type(), bytes_of_all(tensors), tag);
  return inner_->send(tensors, to, tag);
}

WorkPtr RecordingBackend::recv(std::vector<at::Tensor>& tensors, int from, int tag) {
  TORCH_CHECK(getSize() == 2 && getRank() == 1 && from == 0, "the second rank of a group of two receives, not rank ",
              getRank(), " of ", getSize());
  note(Collective::transfer, tensors.at(0).scalar_type(), bytes_of_all(tensors), tag);
  return inner_->recv(tensors, from, tag);
}

}  // namespace runner
