// Parameters that are stored in NF4 (nf4.hpp): parts of them, quantized while they are read. Torch-free.
#pragma once
#include <optional>

#include "strategies/contract/initialize.hpp"
#include "strategies/contract/nf4.hpp"

namespace runner {

/// One parameter, whose values `source` has. Blocks are counted from the beginning of the parameter, so that its values do not depend
/// on the part that a rank stores.
class QuantizedParameter {
 public:
  /// Reads the complete parameter once if factors are quantized, too. `source` must outlive this object.
  QuantizedParameter(const ParameterSource& source, size_t slot, int64_t numel, const QuantizationSpec& spec);
  /// Codes of elements [offset, offset + count), and the factors of their blocks. `offset` is the beginning of a block.
  void read(int64_t offset, int64_t count, std::span<uint8_t> packed, std::span<float> factors) const;
  /// All quantized factors, with double quantization.
  const std::optional<Nf4Factors>& factors() const { return factors_; }

 private:
  const ParameterSource& source_;
  size_t slot_;
  int64_t numel_;
  std::optional<Nf4Factors> factors_;
};

/// Number of blocks of `elements` elements.
constexpr int64_t nf4_blocks(int64_t elements) { return (elements + nf4_block - 1) / nf4_block; }
/// Bytes of a block's factor, and of `elements` elements (a multiple of the block) with the factors of their blocks.
constexpr int64_t nf4_factor_bytes(const QuantizationSpec& spec) { return spec.double_quantization ? 1 : 4; }
constexpr int64_t nf4_bytes(const QuantizationSpec& spec, int64_t elements) {
  return elements / 2 + elements / nf4_block * nf4_factor_bytes(spec);
}
/// Elements that an accelerator dequantizes at a time.
constexpr int64_t nf4_elements_at_once = 1 << 22;

/// The values that the parameters of a model have if those that are stored in NF4 are quantized and dequantized.
ParameterSource dequantized_source(const ModelSpec& model, ParameterSource source);

}  // namespace runner
