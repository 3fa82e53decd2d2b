// The last blocks of models that predict labels or numbers.
#include <cmath>

#include "runner/models/family.hpp"

namespace runner {

BlockSpec task_head_block(int64_t dim, int64_t outputs, std::optional<double> init_std) {
  BlockSpec block{.name = "head", .kind = BlockKind::head};
  if (init_std) {
    block.parameters = {matrix_parameter("head.weight", outputs, dim, *init_std, 0)};
  } else {  // as torch.nn.Linear
    const Init init{Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(dim))};
    block.parameters = {{.name = "head.weight", .shape = {outputs, dim}, .init = init, .tensor_parallel_dim = 0},
                        {.name = "head.bias", .shape = {outputs}, .init = init, .tensor_parallel_dim = 0}};
  }
  const auto d = static_cast<double>(dim), k = static_cast<double>(outputs);
  block.forward_flops_per_token = matrix_flops_per_token(block.parameters);
  block.saved.compute_elements_per_token = d;
  block.saved.float32_per_token = k;  // the log-softmax
  block.backward_moments = {{.compute_elements_per_token = d + 3 * k},
                            {.compute_elements_per_token = 2 * d + k,
                             .arriving = block.parameter_count(),
                             .released_per_token = k,
                             .out_features = outputs,
                             .in_features = dim},
                            {.compute_elements_per_token = 2 * d, .arrived = block.parameter_count()}};
  return block;
}

BlockSpec one_token_head(BlockSpec head, std::vector<ParameterSpec> norm, int64_t dim, int64_t tokens) {
  const auto per_row = 1.0 / static_cast<double>(tokens), d = static_cast<double>(dim);
  head.forward_flops_per_token *= per_row;
  head.saved.compute_elements_per_token = d + 2 * d * per_row;
  head.saved.float32_per_token *= per_row;
  for (auto& moment : head.backward_moments)
    moment.compute_elements_per_token = d + moment.compute_elements_per_token * per_row;
  head.backward_moments.back().compute_elements_per_token += d;  // the gradient of all tokens
  norm.insert(norm.end(), head.parameters.begin(), head.parameters.end());
  head.parameters = std::move(norm);
  head.backward_moments.back().arrived = head.parameter_count();
  return head;
}

BlockSpec text_label_head(const Recipe::Model& model, std::vector<ParameterSpec> norm, int64_t seq_len) {
  return one_token_head(task_head_block(model.dim, *model.num_labels, model.init_std), std::move(norm), model.dim,
                        seq_len);
}

}  // namespace runner
