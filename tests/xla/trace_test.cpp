// Tensors of a trace are views of memory as LibTorch's are, and what cannot be compiled is refused by name.
#include "strategies/xla/trace.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/base/error.hpp"
#include "tests/xla/run_traced.hpp"

namespace runner::testing {

namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

torch::Tensor counted_values(std::vector<int64_t> shape) {
  return torch::arange(c10::multiply_integers(shape), torch::kFloat64).view(shape) / 8 - 1;
}

/// The function gives the same traced and not.
void check_same(const TensorFunction& function, const Tensors& inputs) {
  const auto expected = function(inputs), found = run_traced(function, inputs).outputs;
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    INFO("result " << i << "\n" << found[i] << "\ninstead of\n" << expected[i]);
    CHECK(found[i].equal(expected[i]));
  }
}

void check_refused(const TensorFunction& function, const std::string& reason) {
  CHECK_THROWS_MATCHES(traced_text(function, {counted_values({3, 4})}), Error, MessageMatches(ContainsSubstring(reason)));
}

}  // namespace

TEST_CASE("what is written to a tensor is read through its views, and the other way round", "[xla][trace]") {
  check_same(
      [](const Tensors& in) -> Tensors {
        auto a = in[0].clone(), b = in[0].clone(), c = in[0].clone(), d = in[0].clone(), e = in[0].clone();
        auto part = a.slice(1, 1, 4, 2), turned = a.t(), again = turned.narrow(0, 1, 2).t();
        part.mul_(10);
        const auto between = again.clone();
        again.add_(100);
        a.select(0, 2).zero_();
        b.diagonal().fill_(7);
        b.view({-1}).slice(0, 0, 15, 4).neg_();
        for (auto& row : c.unbind(0)) row.sub_(row[1].clone());
        c.chunk(2, 1)[1].copy_(in[0].narrow(1, 0, 2));
        d.transpose(0, 1).masked_fill_(in[0].t().gt(0), -5);
        d.as_strided({2, 2}, {5, 2}, 1).add_(3);
        at::mm_out(part, in[0].narrow(1, 0, 3), in[0].narrow(1, 1, 2));
        const auto alias = e.detach().unsqueeze(0).squeeze(2);
        e.index_put_({in[0].gt(0)}, in[0].new_full({}, 2));
        return {a, part, turned, between, again, b, c, d, alias, e.view({4, 3})};
      },
      {counted_values({3, 4})});
}

TEST_CASE("a slice whose step does not divide its dimension is read and written", "[xla][trace]") {
  check_same(
      [](const Tensors& in) -> Tensors {
        auto a = in[0].clone();
        a.slice(1, 0, 5, 2).mul_(2);
        a.slice(0, 1, 3, 3).add_(1);
        return {a, in[0].slice(1, 0, 5, 2), in[0].slice(1, 1, 5, 3), in[0].slice(0, 0, 3, 2).slice(1, 0, 5, 4)};
      },
      {counted_values({3, 5})});
}

TEST_CASE("results may have memory of another size or order", "[xla][trace]") {
  check_same(
      [](const Tensors& in) -> Tensors {
        auto grown = in[0].new_zeros({0});
        at::add_out(grown, in[0], in[0]);
        auto strided = at::empty_strided({3, 4}, {1, 5}, in[0].options());
        at::exp_out(strided, in[0] * 0);
        auto expanded = in[0].new_full({1}, 3).expand({3, 4}) * in[0];
        return {grown, strided, expanded, in[0].t().contiguous(), in[0].t().clone().reshape({2, 6})};
      },
      {counted_values({3, 4})});
}

TEST_CASE("tensors with values are constants of the program", "[xla][trace]") {
  const auto table = counted_values({3, 4}).to(torch::kFloat32), places = torch::tensor({2, 0}, torch::kInt64);
  const auto large = torch::tensor(int64_t{9007199254740993}, torch::kInt64);
  torch::Tensor kept;
  check_same(
      [&](const Tensors& in) -> Tensors {
        const auto moved = table.to(in[0].device(), torch::kFloat64);
        auto changed = table.to(in[0].device());
        if (changed.is_cpu()) changed = changed.clone();
        changed.select(1, 1).add_(1);
        return {in[0] * moved,
                moved.t().narrow(0, 1, 2),
                changed,
                in[0].index_select(0, places.to(in[0].device())),
                in[0] + large.to(in[0].device()),
                large.to(in[0].device()),
                at::where(in[0].gt(0), in[0], torch::scalar_tensor(2.5, torch::kFloat64))};
      },
      {counted_values({3, 4})});
}

TEST_CASE("a table that a model keeps is used by later traces", "[xla][trace]") {
  xla::Constants constants;
  const auto values = counted_values({3, 4});
  torch::Tensor table;
  for (int i = 0; i < 2; ++i) {
    pjrt::ModuleText text(1);
    xla::Trace trace(text, constants);
    const auto x = trace.tensor(text.argument({pjrt::ElementType::float64, {3, 4}}));
    const xla::Trace::Recording recording(trace);
    if (!table.defined()) table = values.to(torch::kMeta);
    CHECK(trace.read(x * table).shape() == pjrt::Shape{3, 4});
    CHECK(trace.lowered() == std::set<std::string>{"aten::mul"});
  }
}

TEST_CASE("what cannot be compiled is refused", "[xla][trace]") {
  check_refused([](const Tensors& in) -> Tensors { return {at::cholesky(in[0].mm(in[0].t()))}; }, "aten::cholesky");
  check_refused([](const Tensors& in) -> Tensors { return {at::bernoulli(in[0])}; }, "aten::bernoulli");
  check_refused([](const Tensors& in) -> Tensors { return {in[0].new_empty({2}) + 1}; }, "before it has values");
  check_refused([](const Tensors&) -> Tensors { return {torch::empty({2}, torch::kMeta)}; }, "before it has values");
  check_refused([](const Tensors& in) -> Tensors { return {in[0].index({in[0].gt(0)})}; }, "depends on values");
  check_refused([](const Tensors& in) -> Tensors { return {in[0].view(torch::kInt64)}; }, "another element type");
  check_refused([](const Tensors& in) -> Tensors { return {in[0].unfold(1, 3, 1) * 1}; }, "overlap");
  check_refused([](const Tensors& in) -> Tensors { return {in[0].to(torch::kInt8)}; }, "Char");
  check_refused([](const Tensors& in) -> Tensors { return {at::linalg_vector_norm(in[0], 1)}; }, "order 1");
  check_refused([](const Tensors& in) -> Tensors { return {in[0].index_put({in[0].gt(0)}, in[0].new_ones({2}))}; },
                "depends on the mask");
  check_refused(
      [](const Tensors& in) -> Tensors { return {at::conv_transpose1d(in[0].unsqueeze(0), in[0].unsqueeze(2))}; },
      "transposed convolution");
  check_refused(
      [](const Tensors& in) -> Tensors {
        return {at::_adaptive_avg_pool2d(in[0].unsqueeze(0), {2, 2})};
      },
      "windows of different sizes");
  check_refused(
      [](const Tensors& in) -> Tensors {
        const auto mean = in[0].new_zeros({4});
        return {std::get<0>(at::native_batch_norm(in[0], {}, {}, mean, mean, /*training=*/true, 0.1, 1e-5))};
      },
      "running statistics");
  check_refused(
      [](const Tensors& in) -> Tensors {
        return {at::embedding_dense_backward(in[0], in[0].select(1, 0).gt(0).to(torch::kInt64), 2, -1, true)};
      },
      "number of uses");
}

TEST_CASE("operators are recorded only while a recording exists", "[xla][trace]") {
  pjrt::ModuleText text(1);
  xla::Constants constants;
  xla::Trace trace(text, constants);
  const auto x = trace.tensor(text.argument({pjrt::ElementType::float64, {3, 4}}));
  torch::Tensor before, during;
  {
    const xla::Trace::Recording recording(trace);
    during = x + 1;
    const auto on_host = torch::ones({2}) * 3;  // tensors with values are computed as always
    CHECK(on_host.sum().item<float>() == 6);
  }
  before = x + 1;
  CHECK(trace.read(during).shape() == pjrt::Shape{3, 4});
  CHECK_THROWS_AS(trace.read(before), Error);
  CHECK(trace.lowered() == std::set<std::string>{"aten::add"});
}

}  // namespace runner::testing
