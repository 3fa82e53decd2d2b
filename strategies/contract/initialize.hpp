// Initial values of parameters. They depend only on (seed, parameter name, element index), so every strategy and world
// size starts with the same weights, without a broadcast, and a rank can initialize a shard without the unsharded
// tensor.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "strategies/contract/model_spec.hpp"

namespace runner {

/// Writes elements [offset, offset + out.size()) of the flattened parameter. Init::Kind::normal: Box-Muller with a
/// counter-based generator (SplitMix64, key from seed and name). Each draw gives two elements.
void initialize_slice(const ParameterSpec& parameter, int64_t seed, int64_t offset, std::span<float> out);

/// Writes the initial values of elements [offset, offset + out.size()) of parameter `slot` (from the seed, or from a
/// file).
using ParameterSource = std::function<void(size_t slot, int64_t offset, std::span<float> out)>;

/// Adds the parameters with Init::Kind::row_norms, computed in double from the matrices that `source` has; from the
/// dequantized values of those that are stored in NF4.
ParameterSource with_row_norms(const ModelSpec& model, ParameterSource source);

/// A generator key from a seed and a name: FNV-1a of the name's bytes, mixed with the seed by SplitMix64.
uint64_t name_key(int64_t seed, const std::string& name);

}  // namespace runner
