#include "runner/models/host_layer_norm.hpp"

#include <ATen/Parallel.h>

#include "runner/models/layer_norm_loops.hpp"

namespace runner {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

namespace {

uint16_t* bits(const Tensor& x) { return reinterpret_cast<uint16_t*>(x.data_ptr<at::BFloat16>()); }

/// Calls body(share, first row, rows) for equal shares of the rows, one for each thread.
template <class Body>
void for_each_share(int64_t shares, int64_t rows, const Body& body) {
  at::parallel_for(0, shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share) {
      const int64_t first = rows * share / shares;
      body(share, first, rows * (share + 1) / shares - first);
    }
  });
}

class HostLayerNorm : public torch::autograd::Function<HostLayerNorm> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const std::optional<Tensor>& bias, double eps) {
    const int64_t columns = x.size(-1), rows = x.numel() / columns;
    auto y = at::empty_like(x), statistics = at::empty({rows, 2}, x.options().dtype(torch::kFloat32)),
         wide = weight.to(torch::kFloat32);
    const auto wide_bias = bias ? bias->to(torch::kFloat32) : Tensor();
    context->save_for_backward({x, weight, statistics});
    context->saved_data["bias"] = bias.has_value();
    if (x.is_meta()) return y;
    auto* rows_statistics = reinterpret_cast<RowStatistics*>(statistics.data_ptr<float>());
    for_each_share(at::get_num_threads(), rows, [&](int64_t, int64_t first, int64_t count) {
      layer_norm_rows(bits(x) + first * columns, count, columns, wide.data_ptr<float>(),
                      bias ? wide_bias.data_ptr<float>() : nullptr, static_cast<float>(eps), bits(y) + first * columns,
                      rows_statistics + first);
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto saved = context->get_saved_variables();
    const Tensor &x = saved[0], &weight = saved[1];
    const int64_t columns = x.size(-1), rows = x.numel() / columns, shares = at::get_num_threads();
    auto dy = gradients[0].contiguous(), dx = at::empty_like(x), wide = weight.to(torch::kFloat32);
    auto sums = at::zeros({shares, 2, columns}, wide.options());
    const auto* statistics = x.is_meta() ? nullptr : reinterpret_cast<const RowStatistics*>(saved[2].data_ptr<float>());
    if (statistics)
      for_each_share(shares, rows, [&](int64_t share, int64_t first, int64_t count) {
        float* own = sums.data_ptr<float>() + share * 2 * columns;
        layer_norm_gradient_rows(bits(dy) + first * columns, bits(x) + first * columns, statistics + first, count,
                                 columns, wide.data_ptr<float>(), bits(dx) + first * columns, own, own + columns);
      });
    auto total = sums.sum(0).to(weight.scalar_type());
    return {dx, total[0], context->saved_data["bias"].toBool() ? total[1] : Tensor(), Tensor()};
  }
};

}  // namespace

Tensor host_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return HostLayerNorm::apply(x, weight, bias.defined() ? std::optional(bias) : std::nullopt, eps);
}

}  // namespace runner
