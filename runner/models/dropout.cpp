#include "runner/models/dropout.hpp"

#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/hash.hpp"
#include "strategies/contract/context_axis.hpp"
#include "strategies/contract/profiled.hpp"
#include "strategies/contract/tensor_axis.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

using torch::Tensor, torch::autograd::AutogradContext, torch::autograd::variable_list;

namespace {

torch::TensorOptions mask_options(torch::Device device) {
  return torch::TensorOptions().dtype(torch::kBool).device(device);
}

/// Elements [first, first + line.size()) of a line. Two elements for each SplitMix64 value, 32 bits each.
void draw_line(std::span<bool> line, uint64_t first, uint64_t threshold, uint64_t key) {
  key += first / 2;
  size_t i = 0;
  if (first % 2 == 1) line[i++] = (mix64(key++) >> 32) < threshold;
  for (; i < line.size(); i += 2) {
    const uint64_t bits = mix64(key++);
    line[i] = (bits & 0xffffffff) < threshold;
    if (i + 1 < line.size()) line[i + 1] = (bits >> 32) < threshold;
  }
}

/// The first index of a dimension that the mask has.
int64_t first_index(const MaskPlace& place, size_t dim) {
  const auto* part = place.part(dim);
  return part ? part->first : 0;
}

/// Indices of the first dimension that a row has.
int64_t lines_of_row(at::IntArrayRef sizes, const MaskPlace& place) {
  const auto* part = place.part(0);
  const int64_t all = part ? part->whole : sizes[0];
  RUNNER_CHECK(all % place.rows == 0, "{} lines for {} rows", all, place.rows);
  return all / place.rows;
}

/// A line is the elements of the last dimension. Its key depends on its row of the global batch and its coordinates in the row, and not on
/// the sizes of dimensions: ranks may pad their rows to different lengths. [B * T, dim] has the mask of [B, T, dim].
void draw(const Tensor& mask, double p, const MaskPlace& place) {
  const auto sizes = mask.sizes();
  const size_t last = sizes.size() - 1;
  const int64_t length = sizes[last], lines = mask.numel() / length, of_row = lines_of_row(sizes, place);
  const bool only_rows = of_row == 1 && sizes.size() > 2;  // are indices of the first dimension
  const auto threshold = static_cast<uint64_t>(std::llround((1 - p) * 0x1p32));
  auto* out = mask.data_ptr<bool>();
  const auto mixed = [](uint64_t key, int64_t coordinate) { return mix64(key + static_cast<uint64_t>(coordinate)); };
  constexpr int64_t elements = 32768;  // of a task
  at::parallel_for(0, lines, std::max<int64_t>(1, elements / length), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) {
      uint64_t key = place.key;
      int64_t rest = line;
      for (size_t d = last - 1; d > 0; --d) {
        key = mixed(key, first_index(place, d) + rest % sizes[d]);
        rest /= sizes[d];
      }
      rest += first_index(place, 0);
      const int64_t of_its_row = rest % of_row;
      if (!only_rows) key = mixed(key, place.tokens ? place.tokens->position(of_its_row) : of_its_row);
      key = mixed(key, place.first_row + rest / of_row);
      draw_line({out + line * length, static_cast<size_t>(length)}, static_cast<uint64_t>(first_index(place, last)),
                threshold, key);
    }
  });
}

/// Indices [first, first + count) of a dimension. Those behind its end are padding, which nothing drops.
Tensor part_of(const Tensor& mask, int64_t dim, int64_t first, int64_t count) {
  const int64_t begin = std::min(first, mask.size(dim)), here = std::min(count, mask.size(dim) - begin);
  const auto part = mask.narrow(dim, begin, here);
  if (here == count) return part;
  auto padding = mask.sizes().vec();
  padding[static_cast<size_t>(dim)] = count - here;
  return at::cat({part, at::ones(padding, mask.options())}, dim);
}

/// [rows * tokens of a row, ...] -> the tokens of each row that the mask has.
Tensor own_tokens(const Tensor& mask, int64_t rows, const MaskTokens& tokens) {
  const auto by_row = mask.unflatten(0, {rows, tokens.whole});
  return at::cat(
             {part_of(by_row, 1, tokens.chunks[0], tokens.chunk), part_of(by_row, 1, tokens.chunks[1], tokens.chunk)},
             1)
      .flatten(0, 1);
}

}  // namespace

const MaskPart* MaskPlace::part(size_t dim) const {
  for (const auto& part : parts)
    if (part.whole > 0 && static_cast<size_t>(part.dim) == dim) return &part;
  return nullptr;
}

Tensor generated_mask(at::IntArrayRef sizes, torch::Device device, double p, const MaskPlace& place) {
  const int64_t of_row = lines_of_row(sizes, place), first = first_index(place, 0), skipped = first / of_row;
  const int64_t first_row = place.first_row + skipped, rows = (first + sizes[0] + of_row - 1) / of_row - skipped;
  auto drawn = sizes.vec();
  drawn[0] = rows * (place.tokens ? place.tokens->whole : of_row);
  for (size_t dim = 1; dim < drawn.size(); ++dim)
    if (const auto* part = place.part(dim)) drawn[dim] = part->whole;
  auto mask = at::empty(drawn, mask_options(device));
  auto generator = at::globalContext().defaultGenerator(mask.device()).clone();
  auto by_row = mask.view({rows, -1});
  for (int64_t r = 0; r < rows; ++r) {
    generator.set_current_seed(mix64(place.key + static_cast<uint64_t>(first_row + r)));
    by_row[r].bernoulli_(1 - p, generator);
  }
  if (place.tokens) mask = own_tokens(mask, rows, *place.tokens);
  if (place.part(0)) mask = mask.narrow(0, first - skipped * of_row, sizes[0]);
  for (size_t dim = 1; dim < drawn.size(); ++dim)
    if (const auto* part = place.part(dim)) mask = part_of(mask, static_cast<int64_t>(dim), part->first, sizes[dim]);
  return mask;
}

namespace {

/// A mask whose step is not known yet (strategies/xla/lower_dropout.cpp).
Tensor mask_of_any_step(at::IntArrayRef sizes, torch::Device device, double p, const MaskPlace& place) {
  RUNNER_CHECK(place.parts.empty() && !place.tokens, "a mask of a part of a tensor, of any step");
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("runner::keep_mask", "")
                             .typed<Tensor(at::IntArrayRef, double, int64_t, int64_t, int64_t, torch::Device)>();
  return op.call(sizes, p, static_cast<int64_t>(place.block), static_cast<int64_t>(place.site), place.rows, device);
}

}  // namespace

Tensor keep_mask(at::IntArrayRef sizes, torch::Device device, double p, const MaskPlace& place) {
  RUNNER_CHECK(sizes.size() >= 2);
  if (device.is_meta() && ProfiledScope::current()) return at::empty(sizes, mask_options(device));
  if (device.is_meta()) return mask_of_any_step(sizes, device, p, place);
  if (place.tokens && sizes.size() == 3)  // the same as of rows of tokens
    return keep_mask({sizes[0] * sizes[1], sizes[2]}, device, p, place).view(sizes);
  if (device.is_cuda() && c10::multiply_integers(sizes) > 0) return generated_mask(sizes, device, p, place);
  // Other devices may have no generator of LibTorch. They get the CPU's mask.
  auto mask = at::empty(sizes, mask_options(torch::kCPU));
  if (mask.numel() > 0) draw(mask, p, place);
  return mask.to(device);
}

void save_place(AutogradContext* context, const MaskPlace& place) {
  context->saved_data["key"] = static_cast<int64_t>(place.key);
  context->saved_data["block"] = static_cast<int64_t>(place.block);
  context->saved_data["site"] = static_cast<int64_t>(place.site);
  context->saved_data["first_row"] = place.first_row;
  context->saved_data["rows"] = place.rows;
  std::vector<int64_t> parts, tokens;
  for (const auto& part : place.parts) parts.insert(parts.end(), {part.dim, part.first, part.whole});
  if (const auto& t = place.tokens) tokens = {t->chunks[0], t->chunks[1], t->chunk, t->whole};
  context->saved_data["parts"] = parts;
  context->saved_data["tokens"] = tokens;
}

MaskPlace saved_place(AutogradContext* context) {
  auto& saved = context->saved_data;
  MaskPlace place{.key = static_cast<uint64_t>(saved["key"].toInt()),
                  .first_row = saved["first_row"].toInt(),
                  .rows = saved["rows"].toInt(),
                  .block = static_cast<uint64_t>(saved["block"].toInt()),
                  .site = static_cast<uint64_t>(saved["site"].toInt())};
  const auto parts = saved["parts"].toIntVector(), tokens = saved["tokens"].toIntVector();
  for (size_t i = 0; i < parts.size(); i += 3)
    place.parts.push_back({.dim = static_cast<int>(parts[i]), .first = parts[i + 1], .whole = parts[i + 2]});
  if (!tokens.empty()) place.tokens = {.chunks = {tokens[0], tokens[1]}, .chunk = tokens[2], .whole = tokens[3]};
  return place;
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

Tensor PlacedDropout::operator()(const Tensor& x) const { return drops() ? apply_to(x.clone()) : x; }

Tensor PlacedDropout::apply_to(Tensor x) const {
  if (!drops()) return x;
  return x.masked_fill_(keep_mask(x.sizes(), x.device(), p, place).logical_not_(), 0).mul_(1 / (1 - p));
}

MaskPlace Dropout::place(const ForwardContext& context, DropoutSite site) const {
  MaskPlace place{.key = mix64(mix64(context.dropout_key ^ mix64(block_index_)) + static_cast<uint64_t>(site)),
                  .first_row = context.first_row,
                  .rows = context.batch->rows,
                  .block = block_index_,
                  .site = static_cast<uint64_t>(site)};
  if (context.context_axis) {
    const auto& division = context.context_axis->division();
    const int64_t chunk = context.batch->padded_tokens / division.chunks();
    const auto [first, second] = division.chunks_of(division.rank);
    place.tokens = {.chunks = {first * chunk, second * chunk}, .chunk = chunk, .whole = context.batch->row_tokens};
  }
  return place;
}

Tensor Dropout::operator()(Tensor x, const ForwardContext& context, DropoutSite site) const {
  if (!active(context)) return x;
  auto mask = place(context, site);
  if (context.tensor_axis && context.tensor_axis->division().divides_rows()) {
    const int64_t tokens = context.batch->fields[token_field::inputs].numel();
    mask.parts = {{.dim = 0, .first = context.tensor_axis->first_row(tokens), .whole = tokens}};
  }
  return DropoutFunction::apply(x, p_, mask);
}

}  // namespace runner

TORCH_LIBRARY(runner, library) {
  library.def("keep_mask(int[] sizes, float p, int block, int site, int rows, Device device) -> Tensor",
              [](at::IntArrayRef sizes, double, int64_t, int64_t, int64_t, torch::Device device) {
                return at::empty(sizes, torch::dtype(torch::kBool).device(device));
              });
}
