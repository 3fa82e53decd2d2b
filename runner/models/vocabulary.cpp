#include "runner/models/vocabulary.hpp"

#include <torch/csrc/autograd/functions/utils.h>

#include "strategies/contract/profiled.hpp"
#include "strategies/contract/row_gradients.hpp"

namespace runner {

using torch::Tensor;

std::vector<int64_t> VocabularyPart::sizes() const {
  const int ranks = axis ? axis->size() : 1;
  std::vector<int64_t> all;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto [first, end] = share_of(tokens, ranks, rank);
    all.push_back(end - first);
  }
  return all;
}

namespace {

/// The backward of at::embedding. In host memory it passes on rows, if the parameter takes them. On a GPU, adding rows would be
/// atomic, and their order would be undefined.
class LookupBackward : public torch::autograd::Node {
 public:
  LookupBackward(Tensor ids, int64_t rows) : ids_(std::move(ids)), rows_(rows) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    const auto gradient = std::exchange(gradients[0], {});
    if (!gradient.defined()) return {Tensor()};
    auto* taker = dynamic_cast<RowGradients*>(next_edge(0).function.get());
    if (!taker || !on_host(gradient)) return {at::embedding_dense_backward(gradient, ids_, rows_, -1, false)};
    taker->add_rows(ids_.reshape(-1), gradient.reshape({-1, gradient.size(-1)}));
    return {Tensor()};
  }
  void release_variables() override { ids_.reset(); }

 private:
  Tensor ids_;
  int64_t rows_;
};

/// at::embedding, with the backward above.
Tensor lookup(const Tensor& table, const Tensor& ids) {
  if (!torch::GradMode::is_enabled() || !table.requires_grad()) return at::embedding(table, ids);
  auto node = std::make_shared<LookupBackward>(ids, table.size(0));
  node->set_next_edges(torch::autograd::collect_next_edges(table));
  torch::NoGradGuard no_grad;
  auto rows = at::embedding(table, ids);
  torch::autograd::set_history(rows, node);
  return rows;
}

}  // namespace

/// Tokens of other ranks have rows of zeros, so that the sum over the ranks has the row of the rank with the token.
Tensor embedded(const Tensor& table, const Tensor& ids, const VocabularyPart& part) {
  if (!part.axis) return lookup(table, ids);
  const auto index = ids.reshape(-1) - part.first();
  const auto elsewhere = index.lt(0).logical_or_(index.ge(table.size(0)));
  auto rows = lookup(table, index.masked_fill(elsewhere, 0)).masked_fill_(elsewhere.unsqueeze(1), 0);
  return part.axis->leave(std::move(rows));
}

Tensor as_output(const Tensor& stream, const Tensor& ids, const TensorAxis* axis) {
  if (!axis || axis->division().divides_rows()) return stream;
  return stream.view({ids.size(0), ids.size(1), stream.size(1)});
}

}  // namespace runner
