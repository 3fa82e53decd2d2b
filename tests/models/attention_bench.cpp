// Milliseconds of causal attention in host memory, forward and backward: ours and ATen's fused kernel. Prints one JSON
// line per shape.
#include <ATen/Parallel.h>
#include <algorithm>
#include <chrono>
#include <iostream>
#include <nlohmann/json.hpp>

#include "runner/base/process_stat.hpp"
#include "runner/models/bfloat16_attention.hpp"
#include "runner/models/host_attention.hpp"
#include "strategies/collective/counting_allocator.hpp"
#include "strategies/collective/libtorch.hpp"

using namespace runner;

namespace {

struct Times {
  double forward = INFINITY, backward = INFINITY;
};

/// q, k and v are slices of one tensor, like the output of the model's projection.
std::vector<torch::Tensor> inputs(int64_t batch, int64_t heads, int64_t seq_len, int64_t head_dim,
                                  at::ScalarType dtype) {
  auto parts = torch::randn({batch, seq_len, 3 * heads * head_dim}).to(dtype).split(heads * head_dim, -1);
  for (auto& part : parts) part = part.unflatten(-1, {heads, head_dim}).requires_grad_(true);
  return parts;
}

torch::Tensor aten(const std::vector<torch::Tensor>& in) {
  auto out = at::scaled_dot_product_attention(in[0].transpose(1, 2), in[1].transpose(1, 2), in[2].transpose(1, 2), {},
                                              0.0, /*is_causal=*/true);
  return out.transpose(1, 2).reshape({in[0].size(0) * in[0].size(1), -1});
}

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

template <class Attention>
void time_once(const Attention& attention, const std::vector<torch::Tensor>& in, const torch::Tensor& gradient,
               Times& best) {
  auto begin = std::chrono::steady_clock::now();
  auto out = attention(in);
  best.forward = std::min(best.forward, milliseconds_since(begin));
  begin = std::chrono::steady_clock::now();
  torch::autograd::grad({out}, in, {gradient});
  best.backward = std::min(best.backward, milliseconds_since(begin));
}

}  // namespace

int main(int argc, char** argv) {
  int threads = argc > 1 ? std::stoi(argv[1]) : at::get_num_threads(), seconds = argc > 2 ? std::stoi(argv[2]) : 10;
  tune_malloc();  // like the worker
  at::set_num_threads(threads);
  for (auto dtype : {torch::kFloat32, torch::kBFloat16})
    for (auto [batch, heads, seq_len, head_dim] :
         {std::array<int64_t, 4>{8, 4, 128, 32}, {4, 6, 256, 64}, {2, 12, 1024, 64}}) {
      auto in = inputs(batch, heads, seq_len, head_dim, dtype);
      const bool wide = dtype == torch::kFloat32;
      if (!wide && !bfloat16_attention_takes(in[0], in[1], in[2])) continue;  // without matrix instructions
      auto gradient = torch::randn({batch * seq_len, heads * head_dim}).to(dtype);
      auto ours = [&](const std::vector<torch::Tensor>& x) {
        return (wide ? host_attention : bfloat16_attention)(x[0], x[1], x[2]);
      };
      Times our_times, aten_times;
      for (auto begin = std::chrono::steady_clock::now();
           milliseconds_since(begin) < 1000 * seconds;) {  // in turns, so that noise affects both
        time_once(ours, in, gradient, our_times);
        time_once(aten, in, gradient, aten_times);
      }
      std::cout << nlohmann::json{{"dtype", c10::toString(dtype)},
                                  {"batch", batch},
                                  {"heads", heads},
                                  {"seq_len", seq_len},
                                  {"head_dim", head_dim},
                                  {"threads", threads},
                                  {"forward_ms", our_times.forward},
                                  {"backward_ms", our_times.backward},
                                  {"aten_forward_ms", aten_times.forward},
                                  {"aten_backward_ms", aten_times.backward},
                                  {"times_faster", (aten_times.forward + aten_times.backward) /
                                                       (our_times.forward + our_times.backward)}}
                       .dump()
                << std::endl;
    }
}
