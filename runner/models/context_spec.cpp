#include "runner/models/context_spec.hpp"

#include <numeric>

namespace runner {

void add_context_traffic(BlockSpec& block, const AttentionSize& size, const ContextDivision& context) {
  if (!context.divides()) return;
  // Elements per token: queries; keys and values; keys and values whose heads are repeated for the ranks that share them.
  const auto q = static_cast<double>(size.heads * size.head_dim),
             kv = 2 * static_cast<double>(size.key_heads * size.head_dim),
             sent_kv = 2 * static_cast<double>(std::lcm(size.key_heads, int64_t{context.ranks}) * size.head_dim);
  auto& [forward, backward] = block.over_context_axis;
  if (context.form == ContextForm::ulysses) {
    const BlockCollective inputs{.kind = Collective::all_to_all, .elements_per_token = q + sent_kv},
        result{.kind = Collective::all_to_all, .elements_per_token = q};
    forward = {inputs, result};
    backward = {result, inputs};
    return;
  }
  if (context.form == ContextForm::gather) {
    const BlockCollective keys{.kind = Collective::all_gather, .elements_per_token = kv * context.ranks},
        gradients{.kind = Collective::reduce_scatter, .elements_per_token = kv * context.ranks};
    forward = {keys};
    backward = {keys, gradients};
    return;
  }
  const BlockCollective keys{.kind = Collective::transfer, .elements_per_token = kv},
      gradients{.kind = Collective::transfer, .elements_per_token = kv, .values = BlockCollective::Values::statistics};
  for (int hop = 1; hop < context.ranks; ++hop) {
    forward.push_back(keys);
    backward.insert(backward.end(), {keys, gradients});
  }
  backward.push_back(gradients);
}

}  // namespace runner
