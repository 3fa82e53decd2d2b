#include "strategies/reducers/bytegrad.hpp"

#include "strategies/contract/state_tensor.hpp"
#include "strategies/reducers/min_max_codec.hpp"

namespace runner {

namespace {

torch::Tensor message(const torch::Tensor& all, int64_t part, int64_t chunk) {
  return all.narrow(0, part * min_max_bytes(chunk), min_max_bytes(chunk));
}

}  // namespace

void ByteGrad::prepared() {
  BaguaReducer::prepared();
  pending_.resize(buckets_.size());
}

void ByteGrad::start(size_t b, torch::Tensor& values) {
  to_means(values);
  start_mean(b, values);
}

void ByteGrad::start_mean(size_t b, torch::Tensor& values) {
  if (node_)
    pending_[b].work = start_node_sum(values);
  else
    send_chunks(b, values);
}

void ByteGrad::complete(size_t b, torch::Tensor& values) {
  if (b == 0) continue_all();
  if (exchanges()) take_means(b, values);
  if (auto work = start_node_broadcast(values)) work->wait();
}

void ByteGrad::continue_all() {
  for (size_t b = 0; node_ && b < buckets_.size(); ++b) {
    wait(pending_[b].work);
    if (!exchanges()) continue;
    if (options_.average) values(b).div_(static_cast<double>(groups_.node));
    send_chunks(b, values(b));
  }
  for (size_t b = 0; exchanges() && b < buckets_.size(); ++b) send_mean(b, values(b));
}

void ByteGrad::send_chunks(size_t b, const torch::Tensor& values) {
  const int64_t chunk = chunk_of(values.numel(), parts());
  auto whole = torch::zeros({parts(), chunk}, values.options().dtype(torch::kFloat32));
  whole.view({-1}).narrow(0, 0, values.numel()).copy_(values);
  auto& exchange = pending_[b];
  exchange.sent = torch::empty({parts() * min_max_bytes(chunk)}, whole.options().dtype(torch::kUInt8));
  for (int64_t part = 0; part < parts(); ++part) message(exchange.sent, part, chunk).copy_(encode_min_max(whole[part]));
  exchange.received = torch::empty_like(exchange.sent);
  std::vector<int64_t> equal;
  if (parts() == 1)
    exchange.received.copy_(exchange.sent);
  else
    exchange.work = exchange_->alltoall_base(exchange.received, exchange.sent, equal, equal);
}

void ByteGrad::send_mean(size_t b, const torch::Tensor& values) {
  auto& exchange = pending_[b];
  wait(exchange.work);
  const int64_t chunk = chunk_of(values.numel(), parts());
  auto sum = decode_min_max(message(exchange.received, 0, chunk), chunk);
  for (int64_t part = 1; part < parts(); ++part)
    sum.add_(decode_min_max(message(exchange.received, part, chunk), chunk));
  if (options_.average) sum.div_(static_cast<double>(parts()));
  exchange.sent = encode_min_max(sum);
  if (parts() == 1)
    exchange.received.copy_(exchange.sent);
  else
    exchange.work = exchange_->_allgather_base(exchange.received, exchange.sent);
}

void ByteGrad::take_means(size_t b, const torch::Tensor& values) {
  auto exchange = std::exchange(pending_[b], {});
  wait(exchange.work);
  const int64_t chunk = chunk_of(values.numel(), parts());
  for (int64_t part = 0; part < parts(); ++part) {
    const int64_t begin = part * chunk, count = std::min(chunk, values.numel() - begin);
    if (count > 0) values.narrow(0, begin, count).copy_(decode_min_max(message(exchange.received, part, chunk), count));
  }
}

std::shared_ptr<Reducer> make_bytegrad(World& world, const ReducerPlan& plan, const Job& job) {
  return std::make_shared<ByteGrad>(world, plan, job);
}

}  // namespace runner
