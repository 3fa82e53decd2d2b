#include "strategies/contract/quantized_source.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

#include "runner/base/error.hpp"

namespace runner {

QuantizedParameter::QuantizedParameter(const ParameterSource& source, size_t slot, int64_t numel,
                                       const QuantizationSpec& spec)
    : source_(source), slot_(slot), numel_(numel) {
  if (!spec.double_quantization) return;
  constexpr int64_t at_once = 1 << 20;  // elements, a multiple of the block
  std::vector<float> all(static_cast<size_t>(nf4_blocks(numel)));
  std::vector<uint8_t> packed(at_once / 2);
  for (int64_t begin = 0; begin < numel; begin += at_once) {
    const int64_t count = std::min(at_once, numel - begin);
    read(begin, count, packed, std::span(all).subspan(static_cast<size_t>(begin / nf4_block)));
  }
  factors_.emplace(all);
}

void QuantizedParameter::read(int64_t offset, int64_t count, std::span<uint8_t> packed,
                              std::span<float> factors) const {
  std::vector<float> values(static_cast<size_t>(std::min(count, numel_ - offset)));
  source_(slot_, offset, values);
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    throw usage_error("the base model has a weight that is not finite (inf or NaN); NF4 cannot store it");
  nf4_quantize(values, packed, factors);
  if (!factors_) return;
  const int64_t first = offset / nf4_block;
  for (int64_t block = 0; block < nf4_blocks(std::ssize(values)); ++block)
    factors[static_cast<size_t>(block)] = factors_->of_block(static_cast<size_t>(first + block));
}

namespace {

/// Reads any part of a quantized parameter.
void read_dequantized(const QuantizedParameter& parameter, int64_t numel, int64_t offset, std::span<float> out) {
  const int64_t begin = offset / nf4_block * nf4_block;
  const int64_t end = std::min(numel, nf4_blocks(offset + std::ssize(out)) * nf4_block), count = end - begin;
  std::vector<uint8_t> packed(static_cast<size_t>((count + 1) / 2));
  std::vector<float> factors(static_cast<size_t>(nf4_blocks(count))), values(static_cast<size_t>(count));
  parameter.read(begin, count, packed, factors);
  nf4_dequantize(packed, factors, values);
  std::copy_n(values.begin() + (offset - begin), out.size(), out.begin());
}

}  // namespace

ParameterSource dequantized_source(const ModelSpec& model, ParameterSource source) {
  if (!model.quantization) return source;
  std::vector<int64_t> elements;  // of quantized parameters; otherwise 0
  for (const auto* parameter : model.parameters()) elements.push_back(parameter->quantized ? parameter->numel() : 0);
  struct Last {
    ParameterSource source;
    size_t slot = SIZE_MAX;
    std::optional<QuantizedParameter> parameter = {};
  };
  const auto last = std::make_shared<Last>(Last{std::move(source)});
  return [last, elements, spec = *model.quantization](size_t slot, int64_t offset, std::span<float> out) {
    if (elements[slot] == 0) return last->source(slot, offset, out);
    if (last->slot != slot) last->parameter.emplace(last->source, slot, elements[slot], spec);
    last->slot = slot;
    read_dequantized(*last->parameter, elements[slot], offset, out);
  };
}

}  // namespace runner
