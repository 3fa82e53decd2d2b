// Initial values of parameters, a function of (seed, parameter name, element index) only: any strategy, any world size
// and any shard starts from the same weights, without a broadcast and without the whole tensor existing anywhere.
#pragma once
#include <cstdint>
#include <span>

#include "strategies/contract/model_spec.hpp"

namespace runner {

/// Writes elements [offset, offset + out.size()) of the flattened parameter.
/// normal: Box-Muller over a counter-based generator (SplitMix64 of a key from seed and name), pairs of elements share
/// a draw.
void initialize_slice(const ParameterSpec& parameter, int64_t seed, int64_t offset, std::span<float> out);

/// FNV-1a of the bytes, finished with SplitMix64: the key of everything that is drawn by name.
uint64_t name_key(int64_t seed, const std::string& name);
/// SplitMix64's output function.
inline uint64_t mix64(uint64_t z) {
  z += 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

}  // namespace runner
