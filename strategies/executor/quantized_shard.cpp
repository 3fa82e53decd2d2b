#include "strategies/executor/quantized_shard.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>

namespace runner {

namespace {

/// Blocks of NF4 in host memory.
template <typename Value>
void unpack_blocks(const uint8_t* codes, const float* factors, Value* out, int64_t elements) {
  at::parallel_for(0, elements / nf4_block, /*grain_size=*/256, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      std::array<Value, 16> levels;
      for (size_t i = 0; i < levels.size(); ++i) levels[i] = static_cast<Value>(nf4_levels[i] * factors[block]);
      const uint8_t* own = codes + block * nf4_block / 2;
      Value* to = out + block * nf4_block;
      for (int64_t i = 0; i < nf4_block / 2; ++i) {
        to[2 * i] = levels[own[i] >> 4];
        to[2 * i + 1] = levels[own[i] & 15];
      }
    }
  });
}

/// The levels of both codes in a byte: [256, 2].
torch::Tensor pairs_of_levels(torch::Device device) {
  auto pairs = torch::empty({256, 2}, torch::kFloat32);
  for (int byte = 0; byte < 256; ++byte) {
    pairs[byte][0] = nf4_levels[static_cast<size_t>(byte >> 4)];
    pairs[byte][1] = nf4_levels[static_cast<size_t>(byte & 15)];
  }
  return pairs.to(device);
}

/// Unpacks blocks of NF4 on a device, in parts.
void unpack_on_device(const torch::Tensor& codes, const torch::Tensor& factors, const torch::Tensor& out) {
  const auto pairs = pairs_of_levels(out.device());
  for (int64_t begin = 0; begin < out.numel(); begin += nf4_elements_at_once) {
    const int64_t count = std::min(nf4_elements_at_once, out.numel() - begin);
    auto values = pairs.index_select(0, codes.narrow(0, begin / 2, count / 2).to(torch::kInt32)).view({-1, nf4_block});
    values.mul_(factors.narrow(0, begin / nf4_block, count / nf4_block).unsqueeze(1));
    out.narrow(0, begin, count).copy_(values.view({-1}));
  }
}

void unpack_shard(const torch::Tensor& codes, const torch::Tensor& factors, const torch::Tensor& out) {
  if (!out.is_cpu()) return unpack_on_device(codes, factors, out);
  AT_DISPATCH_FLOATING_TYPES_AND2(torch::kHalf, torch::kBFloat16, out.scalar_type(), "unpack_blocks", [&] {
    unpack_blocks(codes.data_ptr<uint8_t>(), factors.data_ptr<float>(), out.data_ptr<scalar_t>(), out.numel());
  });
}

}  // namespace

QuantizedShard::QuantizedShard(const ModelSpec& model, const FlatLayout& layout, torch::Device device)
    : spec_(*model.quantization), layout_(layout), device_(device) {}

void QuantizedShard::fill(const ParameterSource& source, int64_t first, torch::Tensor shard) {
  auto* codes = shard.data_ptr<uint8_t>();
  auto* factors = codes + layout_.shard / 2;
  for (const auto& item : layout_.items) {
    const QuantizedParameter parameter(source, item.slot, item.numel, spec_);
    if (const auto& all = parameter.factors()) {
      means_.push_back(all->mean);
      groups_.push_back(torch::tensor(all->groups, torch::kFloat32).to(device_));
    }
    constexpr int64_t at_once = 1 << 20;  // elements, a multiple of the block
    const int64_t begin = std::max(first, item.offset), end = std::min(first + layout_.shard, item.offset + item.numel);
    for (int64_t at = begin; at < end; at += at_once)
      fill_part(parameter, at - item.offset, std::min(at_once, end - at), codes + (at - first) / 2,
                factors + (at - first) / nf4_block * nf4_factor_bytes(spec_));
  }
}

/// Quantizes elements [begin, begin + count) of the parameter.
void QuantizedShard::fill_part(const QuantizedParameter& parameter, int64_t begin, int64_t count, uint8_t* codes,
                               uint8_t* factors) {
  const auto blocks = static_cast<size_t>(nf4_blocks(count));
  std::vector<float> wide(blocks);
  parameter.read(begin, count, {codes, static_cast<size_t>((count + 1) / 2)}, wide);
  if (const auto& all = parameter.factors())
    std::copy_n(all->codes.begin() + begin / nf4_block, blocks, factors);
  else
    std::memcpy(factors, wide.data(), blocks * sizeof(float));
}

/// The factors of all blocks, from their 8-bit codes.
torch::Tensor QuantizedShard::factors_of(const torch::Tensor& gathered) const {
  const auto& map = signed_map();
  const auto levels = torch::tensor(at::ArrayRef<float>(map.data(), map.size())).to(device_);
  auto factors = torch::empty({layout_.total / nf4_block}, gathered.options().dtype(torch::kFloat32));
  const int64_t blocks = layout_.shard / nf4_block, shards = layout_.total / layout_.shard;
  for (int64_t s = 0; s < shards; ++s)
    factors.narrow(0, s * blocks, blocks)
        .copy_(levels.index_select(0, gathered.narrow(0, s * bytes() + layout_.shard / 2, blocks).to(torch::kInt32)));
  for (size_t i = 0; i < layout_.items.size(); ++i) {
    const auto& item = layout_.items[i];
    auto own = factors.narrow(0, item.offset / nf4_block, nf4_blocks(item.numel));
    const int64_t whole = own.numel() / nf4_group;  // groups
    if (whole > 0)
      own.narrow(0, 0, whole * nf4_group).view({whole, nf4_group}).mul_(groups_[i].narrow(0, 0, whole).unsqueeze(1));
    if (const int64_t rest = own.numel() - whole * nf4_group; rest > 0)
      own.narrow(0, whole * nf4_group, rest).mul_(groups_[i][whole]);
    own.add_(means_[i]);
  }
  return factors;
}

torch::Tensor QuantizedShard::values(const torch::Tensor& gathered, torch::ScalarType dtype) const {
  auto out = torch::empty({layout_.total}, gathered.options().dtype(dtype));
  const auto all = spec_.double_quantization ? factors_of(gathered) : torch::Tensor();
  const int64_t blocks = layout_.shard / nf4_block;
  for (int64_t s = 0; s < layout_.total / layout_.shard; ++s) {
    const auto shard = gathered.narrow(0, s * bytes(), bytes());
    const auto factors = all.defined() ? all.narrow(0, s * blocks, blocks)
                                       : shard.narrow(0, layout_.shard / 2, blocks * 4).view(torch::kFloat32);
    unpack_shard(shard.narrow(0, 0, layout_.shard / 2), factors, out.narrow(0, s * layout_.shard, layout_.shard));
  }
  return out;
}

}  // namespace runner
