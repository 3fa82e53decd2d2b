#include "runner/models/dropout.hpp"

#include <ATen/Parallel.h>

#include <cmath>
#include <span>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"

namespace runner {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

/// The sizes of a mask with a dimension for its rows: [rows, ..., elements of a line].
std::vector<int64_t> sizes_by_rows(at::IntArrayRef sizes, int64_t rows) {
  std::vector<int64_t> divided = {rows, sizes[0] / rows};
  divided.insert(divided.end(), sizes.begin() + 1, sizes.end());
  return divided;
}

/// Two elements for each SplitMix64 value, 32 bits each.
void draw_line(std::span<bool> line, uint64_t threshold, uint64_t key) {
  for (size_t i = 0; i < line.size(); i += 2) {
    const uint64_t bits = mix64(key + i / 2);
    line[i] = (bits & 0xffffffff) < threshold;
    if (i + 1 < line.size()) line[i + 1] = (bits >> 32) < threshold;
  }
}

/// A line is the elements of the last dimension. Its key depends on its row of the global batch and its coordinates in the row, and not on
/// the sizes of dimensions: ranks may pad their rows to different lengths.
void draw(const Tensor& mask, double p, const MaskPlace& place) {
  const auto sizes = sizes_by_rows(mask.sizes(), place.rows);
  const int64_t length = sizes.back(), lines = length == 0 ? 0 : mask.numel() / length;
  const auto threshold = static_cast<uint64_t>(std::llround((1 - p) * 0x1p32));
  auto* out = mask.data_ptr<bool>();
  constexpr int64_t elements = 32768;  // of a task
  at::parallel_for(0, lines, std::max<int64_t>(1, elements / std::max<int64_t>(1, length)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t line = begin; line < end; ++line) {
                       uint64_t key = place.key;
                       int64_t rest = line;
                       for (size_t d = sizes.size() - 2; d > 0; --d) {
                         key = mix64(key + static_cast<uint64_t>(rest % sizes[d]));
                         rest /= sizes[d];
                       }
                       key = mix64(key + static_cast<uint64_t>(place.first_row + rest));
                       draw_line({out + line * length, static_cast<size_t>(length)}, threshold, key);
                     }
                   });
}

void draw_on_device(const Tensor& mask, double p, const MaskPlace& place) {
  auto generator = at::globalContext().defaultGenerator(mask.device()).clone();
  auto rows = mask.view({place.rows, -1});
  for (int64_t r = 0; r < place.rows; ++r) {
    generator.set_current_seed(mix64(place.key + static_cast<uint64_t>(place.first_row + r)));
    rows[r].bernoulli_(1 - p, generator);
  }
}

}  // namespace

Tensor keep_mask(at::IntArrayRef sizes, torch::Device device, double p, const MaskPlace& place) {
  auto mask = at::empty(sizes, torch::TensorOptions().dtype(torch::kBool).device(device));
  RUNNER_CHECK(sizes[0] % place.rows == 0, "{} lines for {} rows", sizes[0], place.rows);
  if (device.is_cpu())
    draw(mask, p, place);
  else
    draw_on_device(mask, p, place);
  return mask;
}

void save_place(AutogradContext* context, const MaskPlace& place) {
  context->saved_data["key"] = static_cast<int64_t>(place.key);
  context->saved_data["first_row"] = place.first_row;
  context->saved_data["rows"] = place.rows;
}

MaskPlace saved_place(AutogradContext* context) {
  auto& saved = context->saved_data;
  return {.key = static_cast<uint64_t>(saved["key"].toInt()),
          .first_row = saved["first_row"].toInt(),
          .rows = saved["rows"].toInt()};
}

namespace {

class DropoutFunction : public torch::autograd::Function<DropoutFunction> {
 public:
  static Tensor forward(AutogradContext* context, Tensor x, double p, MaskPlace place) {
    context->saved_data["p"] = p;
    save_place(context, place);
    context->mark_dirty({x});
    x.mul_(keep_mask(x.sizes(), x.device(), p, place)).mul_(1 / (1 - p));
    return x;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    double p = context->saved_data["p"].toDouble();
    const Tensor& gradient = gradients[0];
    auto mask = keep_mask(gradient.sizes(), gradient.device(), p, saved_place(context));
    auto x_gradient = at::mul(gradient, mask).mul_(1 / (1 - p));
    return {x_gradient, Tensor(), Tensor()};
  }
};

}  // namespace

MaskPlace Dropout::place(const ForwardContext& context, DropoutSite site) const {
  return {.key = mix64(mix64(context.dropout_key ^ mix64(block_index_)) + static_cast<uint64_t>(site)),
          .first_row = context.first_row,
          .rows = context.batch->rows};
}

Tensor Dropout::operator()(Tensor x, const ForwardContext& context, DropoutSite site) const {
  return active(context) ? DropoutFunction::apply(x, p_, place(context, site)) : x;
}

}  // namespace runner
