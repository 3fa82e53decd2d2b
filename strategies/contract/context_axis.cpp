#include "strategies/contract/context_axis.hpp"

#include <numeric>

#include "runner/base/error.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

using torch::Tensor;

ContextAxis::ContextAxis(ProcessGroup group, ContextDivision division, ContextRing ring)
    : group_(std::move(group)), division_(division), ring_(std::move(ring)) {
  RUNNER_CHECK(group_->getSize() == division_.ranks && group_->getRank() == division_.rank);
  RUNNER_CHECK(division_.form != ContextForm::ring || (ring_.to_next && ring_.from_previous));
}

RingExchange::RingExchange(const ContextRing& ring, const Tensor& message, int number)
    : sent_(message), received_(at::empty_like(message)) {
  send_ = ring.to_next.send(sent_, number);
  receive_ = ring.from_previous.receive(received_, number);
}

Tensor RingExchange::wait() {
  receive_->wait();
  send_->wait();
  sent_ = Tensor();
  return std::move(received_);
}

std::vector<TokenSpan> ContextAxis::tokens_of(int rank, int64_t padded) const {
  const int64_t chunk = padded / division_.chunks();
  std::vector<TokenSpan> spans;
  for (const int64_t number : division_.chunks_of(rank))
    spans.push_back({.position = number * chunk, .index = std::ssize(spans) * chunk, .length = chunk});
  return spans;
}

Tensor ContextAxis::gather(const Tensor& own) const {
  auto sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), size());
  const auto all = at::empty(sizes, own.options());
  // Gloo wants the parts one after another along the first dimension of a part.
  auto joined = all.flatten(0, 1), part = own.contiguous();
  group_->_allgather_base(joined, part)->wait();
  return in_order(all);
}

Tensor ContextAxis::scattered_sum(const Tensor& all) const {
  auto sizes = all.sizes().vec();
  sizes[1] /= size();
  auto own = at::empty(sizes, all.options());
  sizes.insert(sizes.begin(), size());
  const auto parts = at::empty(sizes, all.options());
  by_rank(parts, all);
  auto joined = parts.flatten(0, 1);
  group_->_reduce_scatter_base(own, joined, {c10d::ReduceOp::SUM})->wait();
  return own;
}

/// Tokens of each rank [ranks, B, T / ranks, ...] -> [B, T, ...].
Tensor ContextAxis::in_order(const Tensor& parts) const {
  auto sizes = parts.sizes().slice(1).vec();
  sizes[1] *= size();
  auto all = at::empty(sizes, parts.options());
  for (int rank = 0; rank < size(); ++rank)
    for (const auto& span : tokens_of(rank, sizes[1]))
      all.narrow(1, span.position, span.length).copy_(parts[rank].narrow(1, span.index, span.length));
  return all;
}

/// The reverse.
void ContextAxis::by_rank(const Tensor& parts, const Tensor& all) const {
  for (int rank = 0; rank < size(); ++rank)
    for (const auto& span : tokens_of(rank, all.size(1)))
      parts[rank].narrow(1, span.index, span.length).copy_(all.narrow(1, span.position, span.length));
}

/// Sends parts[rank] of each tensor to that rank, and returns what each rank has sent to this one. `write(i, part)` writes tensor i, which
/// has the shape shapes[i].
std::vector<Tensor> ContextAxis::exchanged(const std::vector<std::vector<int64_t>>& shapes,
                                           const torch::TensorOptions& options,
                                           const std::function<void(size_t, const Tensor&)>& write) const {
  std::vector<int64_t> counts;
  for (const auto& shape : shapes) counts.push_back(c10::multiply_integers(shape) / size());
  const auto split = [&](const Tensor& packed) {
    auto parts = packed.split_with_sizes(counts, 1);
    for (size_t i = 0; i < parts.size(); ++i) parts[i] = parts[i].view(shapes[i]);
    return parts;
  };
  auto input = at::empty({size(), std::accumulate(counts.begin(), counts.end(), int64_t{0})}, options);
  const auto parts = split(input);
  for (size_t i = 0; i < parts.size(); ++i) write(i, parts[i]);
  auto output = at::empty_like(input);
  std::vector<int64_t> equal;
  group_->alltoall_base(output, input, equal, equal)->wait();
  return split(output);
}

std::vector<Tensor> ContextAxis::all_tokens(const std::vector<Tensor>& own) const {
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& tensor : own)
    shapes.push_back({size(), tensor.size(0), tensor.size(1), tensor.size(2) / size(), tensor.size(3)});
  auto parts = exchanged(shapes, own[0].options(), [&](size_t i, const Tensor& part) {
    part.copy_(own[i].unflatten(2, {size(), own[i].size(2) / size()}).movedim(2, 0));
  });
  for (auto& part : parts) part = in_order(part);
  return parts;
}

std::vector<Tensor> ContextAxis::all_heads(const std::vector<Tensor>& all) const {
  std::vector<std::vector<int64_t>> shapes;
  for (const auto& tensor : all)
    shapes.push_back({size(), tensor.size(0), tensor.size(1) / size(), tensor.size(2), tensor.size(3)});
  auto parts = exchanged(shapes, all[0].options(), [&](size_t i, const Tensor& part) { by_rank(part, all[i]); });
  for (auto& part : parts) part = part.movedim(0, 2).flatten(2, 3);
  return parts;
}

MicroBatch cut_tokens(const std::vector<Tensor>& fields, const ContextDivision& division) {
  const auto& inputs = fields[token_field::inputs];
  const int64_t rows = inputs.size(0), tokens = inputs.size(1), padding = division.padded(tokens) - tokens;
  MicroBatch batch{.rows = rows, .padded_tokens = tokens + padding, .row_tokens = tokens};
  const auto own = [&](const Tensor& all) {
    std::vector<Tensor> parts;
    const auto chunks = all.view({rows, division.chunks(), batch.padded_tokens / division.chunks()});
    for (const int64_t chunk : division.chunks_of(division.rank)) parts.push_back(chunks.select(1, chunk));
    return at::cat(parts, 1);
  };
  const auto padded = [&](const Tensor& all, int64_t value) {
    return at::constant_pad_nd(all, {0, padding}, value).contiguous();
  };
  const auto count = [&](int64_t n) { return at::arange(n, inputs.options()).remainder_(tokens).expand({rows, n}); };
  const bool packed = fields.size() > token_field::positions;
  const auto positions = at::cat({packed ? fields[token_field::positions] : count(tokens), count(padding)}, 1);
  if (packed) batch.all_positions = positions;
  batch.host_fields = {own(padded(inputs, 0)), own(padded(fields[token_field::targets], ignored_target)),
                       own(positions)};
  return batch;
}

}  // namespace runner
