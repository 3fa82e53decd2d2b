// The backward of a lookup in an embedding: rows for a parameter that takes rows, otherwise the gradient of at::embedding.
#include <catch2/catch_test_macros.hpp>
#include <utility>

#include "runner/models/vocabulary.hpp"
#include "strategies/contract/row_gradients.hpp"

using namespace runner;

namespace {

/// The end of a graph that keeps what it is given.
class Taker : public torch::autograd::Node, public RowGradients {
 public:
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    whole = std::exchange(gradients[0], {});
    return {};
  }
  void add_rows(const torch::Tensor& added_ids, const torch::Tensor& added_rows) override {
    ids = added_ids;
    rows = added_rows;
  }
  torch::Tensor whole, ids, rows;
};

torch::Tensor ids() { return torch::tensor({3, 0, 3, 3, 4, 0}).reshape({2, 3}); }

}  // namespace

TEST_CASE("the gradient of an embedding is passed on as rows, and has no tensor of the table's shape", "[embedding]") {
  auto table = torch::randn({5, 4}, torch::kFloat64).requires_grad_();
  const auto taker = std::make_shared<Taker>();
  taker->add_input_metadata(table);
  torch::autograd::impl::set_gradient_edge(table, {taker, 0});
  const auto rows = embedded(table, ids(), {.tokens = 5});
  const auto gradient = torch::randn({2, 3, 4}, torch::kFloat64);
  CHECK(rows.equal(at::embedding(table.detach(), ids())));

  rows.backward(gradient);
  CHECK_FALSE(taker->whole.defined());
  CHECK(taker->ids.equal(ids().reshape(-1)));
  CHECK(taker->rows.equal(gradient.reshape({6, 4})));
}

TEST_CASE("a parameter that takes no rows gets the gradient of at::embedding", "[embedding]") {
  const auto values = torch::randn({5, 4}, torch::kFloat64), gradient = torch::randn({2, 3, 4}, torch::kFloat64);
  auto table = values.clone().requires_grad_(), reference = values.clone().requires_grad_();
  embedded(table, ids(), {.tokens = 5}).backward(gradient);
  at::embedding(reference, ids()).backward(gradient);
  CHECK(table.grad().equal(reference.grad()));
}

TEST_CASE("a frozen embedding has no graph", "[embedding]") {
  CHECK_FALSE(embedded(torch::randn({5, 4}), ids(), {.tokens = 5}).requires_grad());
  torch::NoGradGuard no_grad;
  CHECK_FALSE(embedded(torch::randn({5, 4}).requires_grad_(), ids(), {.tokens = 5}).requires_grad());
}
