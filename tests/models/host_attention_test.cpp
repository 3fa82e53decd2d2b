// Attention in host memory compared with the formula in fp64: values and gradients, for all partial tiles and blocks.
#include "runner/models/host_attention.hpp"
#include "runner/models/bfloat16_attention.hpp"
#include "runner/models/eager_attention.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "test_model.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

constexpr int64_t heads = 4;

torch::Tensor normal(at::IntArrayRef sizes, uint64_t seed) {
  return at::normal(0.0, 1.0, sizes, at::detail::createCPUGenerator(seed), torch::kFloat32);
}

/// q, k and v are slices of one tensor, like the output of the model's projection.
std::vector<torch::Tensor> slices(int64_t seq_len, int64_t head_dim, int64_t key_heads, float scale = 1) {
  auto all = normal({2, seq_len, (heads + 2 * key_heads) * head_dim}, 1).mul_(scale);
  auto parts = all.split_with_sizes({heads * head_dim, key_heads * head_dim, key_heads * head_dim}, -1);
  for (auto& part : parts) part = part.unflatten(-1, {-1, head_dim}).detach().requires_grad_(true);
  return parts;
}

struct Result {
  torch::Tensor rows;
  std::vector<torch::Tensor> gradients;
};

Result ours(const std::vector<torch::Tensor>& in, const torch::Tensor& gradient, const AttentionForm& form = {}) {
  const bool wide = in[0].scalar_type() == torch::kFloat32;
  auto rows = wide ? host_attention(in[0], in[1], in[2], form) : bfloat16_attention(in[0], in[1], in[2], form);
  return {rows, torch::autograd::grad({rows}, in, {gradient})};
}

std::vector<torch::Tensor> rounded(std::vector<torch::Tensor> in) {
  for (auto& x : in) x = x.detach().to(torch::kBFloat16).requires_grad_(true);
  return in;
}

/// False on CPUs without matrix instructions; bfloat16_attention is not used there.
bool has_bfloat16_attention() {
  auto x = torch::zeros({1, 4, 2, 32}, torch::kBFloat16);
  return bfloat16_attention_takes(x, x, x);
}

Result formula(const std::vector<torch::Tensor>& in, const torch::Tensor& gradient, const AttentionForm& form = {}) {
  std::vector<torch::Tensor> wide, per_head;
  for (const auto& x : in) {
    wide.push_back(x.detach().to(torch::kFloat64).requires_grad_(true));
    per_head.push_back(wide.back().repeat_interleave(heads / x.size(2), 2).transpose(1, 2));
  }
  int64_t seq_len = in[0].size(1);
  auto scores = torch::matmul(per_head[0], per_head[1].transpose(-2, -1)) * form.scale_for(in[0].size(3));
  if (form.softcap > 0) scores = form.softcap * torch::tanh(scores / form.softcap);
  auto future = torch::ones({seq_len, seq_len}, torch::kBool).triu(1);
  if (form.window > 0) future = future | torch::ones({seq_len, seq_len}, torch::kBool).tril(-form.window);
  auto out = torch::matmul(scores.masked_fill(future, -INFINITY).softmax(-1), per_head[2]);
  auto rows = out.transpose(1, 2).reshape(gradient.sizes());
  return {rows, torch::autograd::grad({rows}, wide, {gradient.to(torch::kFloat64)})};
}

double largest(const torch::Tensor& x) { return x.abs().max().item<double>(); }

/// Differences of gradients relative to the largest of the three: with one position, those of q and k are only
/// rounding.
void check_close(const Result& actual, const Result& expected, double tolerance) {
  CHECK(largest(actual.rows - expected.rows) < tolerance * largest(expected.rows));
  double unit = 0;
  for (const auto& gradient : expected.gradients) unit = std::max(unit, largest(gradient));
  for (size_t i = 0; i < 3; ++i) {
    CAPTURE(i);
    CHECK(largest(actual.gradients[i] - expected.gradients[i]) < tolerance * unit);
  }
}

}  // namespace

TEST_CASE("attention in host memory equals the formula within 2e-6, for all partial tiles") {
  auto seq_len = GENERATE(1, 2, 7, 31, 64, 65, 130, 257);
  for (int64_t head_dim : {8, 20, 32, 64, 80, 128})
    for (int64_t key_heads : {4, 2, 1}) {
      CAPTURE(seq_len, head_dim, key_heads);
      auto in = slices(seq_len, head_dim, key_heads);
      auto gradient = normal({2 * seq_len, heads * head_dim}, 2);
      check_close(ours(in, gradient), formula(in, gradient), 2e-6);
    }
}

TEST_CASE(
    "attention in host memory with a window equals the formula, for windows shorter and longer than tiles and blocks") {
  auto [seq_len, head_dim] = GENERATE(std::pair<int64_t, int64_t>{7, 8}, std::pair<int64_t, int64_t>{65, 20},
                                      std::pair<int64_t, int64_t>{257, 128}, std::pair<int64_t, int64_t>{700, 64});
  for (int64_t window : {1, 2, 5, 6, 7, 48, 64, 100, 480, 1000}) {
    CAPTURE(seq_len, head_dim, window);
    const AttentionForm form{.scale = 0.2, .window = window};
    auto in = slices(seq_len, head_dim, 2);
    auto gradient = normal({2 * seq_len, heads * head_dim}, 2);
    check_close(ours(in, gradient, form), formula(in, gradient, form), 4e-6);
  }
}

TEST_CASE("a window of all keys gives the bits of attention without one") {
  auto in = slices(130, 16, 2);
  auto gradient = normal({260, heads * 16}, 2);
  auto whole = ours(in, gradient), windowed = ours(in, gradient, {.window = 130});
  CHECK(torch::equal(whole.rows, windowed.rows));
  for (size_t i = 0; i < 3; ++i) CHECK(torch::equal(whole.gradients[i], windowed.gradients[i]));
}

TEST_CASE("attention in tiles equals the formula, with and without window and soft cap") {
  auto seq_len = GENERATE(1, 100, 128, 300);
  for (int64_t window : {0, 1, 50, 200})
    for (double softcap : {0.0, 2.0})
      for (int64_t key_heads : {4, 2}) {
        CAPTURE(seq_len, window, softcap, key_heads);
        const AttentionForm form{.scale = 0.4, .window = window, .softcap = softcap};
        auto in = slices(seq_len, 16, key_heads, 2);
        auto gradient = normal({2 * seq_len, heads * 16}, 2);
        auto rows = tiled_attention(in[0], in[1], in[2], form);
        check_close({rows, torch::autograd::grad({rows}, in, {gradient})}, formula(in, gradient, form), 4e-6);
      }
}

TEST_CASE("attention with dropout of nothing equals the formula in every form") {
  const AttentionForm form{.scale = 0.4, .window = 9, .softcap = 2.0};
  auto in = slices(40, 16, 2, 2);
  auto gradient = normal({80, heads * 16}, 2);
  auto rows = dropout_attention(in[0], in[1], in[2], form, 0.0, {.rows = 2}).transpose(1, 2).reshape({80, heads * 16});
  check_close({rows, torch::autograd::grad({rows}, in, {gradient})}, formula(in, gradient, form), 4e-6);
}

TEST_CASE("attention in host memory combines blocks of keys, for the longest and widest heads") {
  for (auto [seq_len, head_dim] : {std::pair<int64_t, int64_t>{1100, 16}, {500, 256}, {7, 1}}) {
    CAPTURE(seq_len, head_dim);
    auto in = slices(seq_len, head_dim, 2);
    auto gradient = normal({2 * seq_len, heads * head_dim}, 2);
    check_close(ours(in, gradient), formula(in, gradient), 2e-6);
  }
}

TEST_CASE(
    "attention of bfloat16 equals the formula within its rounding, for partial groups of queries and blocks of keys") {
  if (!has_bfloat16_attention()) SKIP("this CPU has no matrix instructions");
  auto seq_len = GENERATE(1, 2, 31, 64, 65, 130, 257, 600);
  for (int64_t head_dim : {32, 64, 96, 256})
    for (int64_t key_heads : {4, 2, 1}) {
      CAPTURE(seq_len, head_dim, key_heads);
      auto in = rounded(slices(seq_len, head_dim, key_heads));
      auto gradient = normal({2 * seq_len, heads * head_dim}, 2).to(torch::kBFloat16);
      check_close(ours(in, gradient), formula(in, gradient), 0.01);
    }
}

TEST_CASE("large scores of bfloat16 give no infinities or NaN, and later keys do not affect earlier positions") {
  if (!has_bfloat16_attention()) SKIP("this CPU has no matrix instructions");
  auto in = rounded(slices(300, 32, 4, 30));
  auto result = ours(in, normal({600, heads * 32}, 2).to(torch::kBFloat16));
  CHECK(result.rows.isfinite().all().item<bool>());
  for (const auto& x : result.gradients) CHECK(x.isfinite().all().item<bool>());
  {
    torch::NoGradGuard none;
    in[1].narrow(1, 270, 30).fill_(NAN);
  }
  auto after = bfloat16_attention(in[0], in[1], in[2]).view({2, 300, -1});
  CHECK(torch::equal(after.narrow(1, 0, 270), result.rows.view({2, 300, -1}).narrow(1, 0, 270)));
  CHECK(after.narrow(1, 270, 30).isnan().all().item<bool>());
}

TEST_CASE("large scores give the formula's values, without infinities or NaN") {
  // Scores are about 900, so their absolute rounding error is 900 times that of scores near 1.
  auto in = slices(300, 32, 4, 30);
  auto gradient = normal({600, heads * 32}, 2);
  auto actual = ours(in, gradient);
  CHECK(actual.rows.isfinite().all().item<bool>());
  for (const auto& x : actual.gradients) CHECK(x.isfinite().all().item<bool>());
  check_close(actual, formula(in, gradient), 1e-3);
}

TEST_CASE("a later position does not affect earlier ones, even if it is NaN") {
  auto in = slices(130, 32, 2);
  auto before = host_attention(in[0], in[1], in[2]).detach();
  {
    torch::NoGradGuard none;
    in[1].narrow(1, 96, 34).fill_(NAN);
  }
  auto after = host_attention(in[0], in[1], in[2]).detach();
  auto first = [](const torch::Tensor& rows) { return rows.view({2, 130, -1}).narrow(1, 0, 96); };
  CHECK(torch::equal(first(after), first(before)));
  CHECK(after.view({2, 130, -1}).narrow(1, 96, 34).isnan().all().item<bool>());
}

TEST_CASE("attention on the CPU gives the same bits with one and with two threads") {
  const bool narrow = GENERATE(false, true) && has_bfloat16_attention();
  auto in = slices(257, narrow ? 32 : 40, 2);
  if (narrow) in = rounded(in);
  auto gradient = normal({514, heads * in[0].size(3)}, 2).to(in[0].scalar_type());
  auto run = [&](int threads) {
    int previous = at::get_num_threads();
    at::set_num_threads(threads);
    auto result = ours(in, gradient);
    at::set_num_threads(previous);
    return result;
  };
  auto one = run(1), two = run(2);
  CHECK(torch::equal(one.rows, two.rows));
  for (size_t i = 0; i < 3; ++i) CHECK(torch::equal(one.gradients[i], two.gradients[i]));
}

TEST_CASE("gradients may be non-contiguous, and inputs may have a strided last dimension") {
  auto in = slices(20, 8, 4);
  auto turned = in;
  for (auto& x : turned) x = x.detach().transpose(2, 3).contiguous().transpose(2, 3).requires_grad_(true);
  auto gradient = normal({1, heads * 8}, 2).expand({40, heads * 8});
  CHECK(turned[0].stride(-1) != 1);
  auto expected = ours(in, gradient.contiguous()), actual = ours(turned, gradient);
  CHECK(torch::equal(actual.rows, expected.rows));
  for (size_t i = 0; i < 3; ++i) CHECK(torch::equal(actual.gradients[i], expected.gradients[i]));
}

TEST_CASE("inputs that host_attention does not support") {
  auto x = torch::zeros({1, 4, 2, 8});
  CHECK(host_attention_takes(x, x, x));
  auto wide = torch::zeros({1, 4, 2, 257}), half = x.to(torch::kBFloat16), none = torch::zeros({0, 4, 2, 8});
  for (const auto& other : {wide, half, none}) CHECK_FALSE(host_attention_takes(other, other, other));
  CHECK_FALSE(host_attention_takes(x.narrow(1, 0, 2), x, x));
  CHECK_FALSE(host_attention_takes(x, x, x.narrow(2, 0, 1)));
  CHECK_FALSE(host_attention_takes(x.narrow(2, 0, 1), x, x));
  auto odd = torch::zeros({1, 4, 2, 40}, torch::kBFloat16);
  for (const auto& other : {x, half, odd}) CHECK_FALSE(bfloat16_attention_takes(other, other, other));
}
