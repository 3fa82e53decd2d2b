#include "runner/models/spec_parts.hpp"

#include <cmath>

#include "runner/base/error.hpp"
#include "runner/models/moments_without_graph.hpp"

namespace runner {

void train_only(ModelSpec& spec, const std::function<bool(const ParameterSpec& parameter, size_t slot)>& trained) {
  size_t slot = 0;
  for (auto& block : spec.blocks)
    for (auto& parameter : block.parameters) parameter.trainable = trained(parameter, slot++);
  if (spec.task || spec.family == "plugin") return;
  // The head computes the gradient of its vocabulary projection in forward.
  auto& head = spec.blocks.back();
  const auto* projection =
      spec.parameters()[head.shared.empty() ? spec.slot("head.weight") : spec.slot(head.shared[0])];
  if (projection->trainable) return;
  head.saved.gradient_elements = 0;
  for (auto& moment : head.forward_moments) moment.arriving = moment.summed_over_chunks = 0;
}

void check_shape(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len) {
  auto positive = [](const char* key, int64_t value) {
    if (value < 1) throw usage_error("{} = {}: must be at least 1", key, value);
  };
  positive("model.n_layers", model.n_layers);
  positive("model.dim", model.dim);
  positive("model.n_heads", model.n_heads);
  positive("model.max_seq_len", model.max_seq_len);
  positive("model.vocab_size", vocab_size);
  positive("data.seq_len", seq_len);
  if (model.hidden_dim) positive("model.hidden_dim", *model.hidden_dim);
  if (model.head_dim) positive("model.head_dim", *model.head_dim);
  if (model.dim % model.n_heads != 0 && !model.head_dim)
    throw usage_error("model.n_heads = {}: does not divide model.dim = {}", model.n_heads, model.dim);
  if (seq_len > model.max_seq_len)
    throw usage_error("data.seq_len = {}: longer than model.max_seq_len = {}", seq_len, model.max_seq_len);
  if (!(model.dropout >= 0 && model.dropout < 1))
    throw usage_error("model.dropout = {}: must be at least 0 and below 1", model.dropout);
  if (model.loss_chunk_tokens < 0)
    throw usage_error("model.loss_chunk_tokens = {}: must be 0 (all tokens at once) or more", model.loss_chunk_tokens);
}

void check_gelu(const Recipe::Model& model) {
  if (const auto activation = activation_of(model); activation != "gelu" && activation != "gelu_tanh")
    throw usage_error("model.activation = \"{}\": allowed: gelu or gelu_tanh", activation);
}

ParameterSpec matrix_parameter(std::string name, int64_t out, int64_t in, double std,
                               std::optional<TensorSplit> split) {
  return {std::move(name), {out, in}, {Init::Kind::normal, std}, std::move(split)};
}

ParameterSpec vector_parameter(std::string name, int64_t size, Init::Kind init, std::optional<TensorSplit> split) {
  return {std::move(name), {size}, {init, 0.0}, std::move(split)};
}

double residual_std(const Recipe::Model& model) {
  return model.init_std / std::sqrt(2.0 * static_cast<double>(model.n_layers));
}

double matrix_flops_per_token(const std::vector<ParameterSpec>& parameters) {
  double flops = 0;
  for (const auto& parameter : parameters)
    if (parameter.shape.size() == 2) flops += 2.0 * static_cast<double>(parameter.numel());
  return flops;
}

BlockSpec embedding_block(const Recipe::Model& model, std::vector<ParameterSpec> parameters,
                          const TensorDivision& division, int lookups) {
  BlockSpec block;
  block.name = "embedding";
  block.kind = BlockKind::embedding;
  block.parameters = std::move(parameters);
  for (auto& parameter : block.parameters) divide(parameter, division);
  auto dim = static_cast<double>(model.dim);
  block.output_elements_per_token = dim;
  MomentsWithoutGraph moments(model, /*seq_len=*/0);
  moments.add(lookups * dim);
  moments.add_dropout(dim, dim);
  block.moments_without_graph = moments.list;
  int64_t tokens = block.parameters[0].numel();
  if (model.dropout > 0)
    block.backward_moments.push_back({.compute_elements_per_token = 3 * dim, .mask_bytes_per_token = dim});
  block.backward_moments.push_back({.compute_elements_per_token = (model.dropout > 0 ? 2 : 1) * dim,
                                    .arrived = block.parameter_count() - tokens,
                                    .arriving = tokens});
  return block;
}

int64_t elements_of(const std::vector<ParameterSpec>& parameters, std::initializer_list<std::string_view> endings) {
  int64_t count = 0;
  for (const auto& parameter : parameters)
    for (auto ending : endings) count += parameter.name.ends_with(ending) ? parameter.numel() : 0;
  return count;
}

MemoryMoment dropout_attention_moment(const Recipe::Model& model, int64_t seq_len) {
  auto scores = static_cast<double>(model.n_heads * seq_len);
  return {.compute_elements_per_token = 3 * scores + 12 * static_cast<double>(model.dim),
          .mask_bytes_per_token = scores};
}

BlockSpec head_block(const Recipe::Model& model, std::vector<ParameterSpec> norm, int64_t vocab_size,
                     const NormMemory& memory, const TensorDivision& division) {
  BlockSpec head;
  head.name = "head";
  head.kind = BlockKind::head;
  head.parameters = std::move(norm);
  if (model.tie_embeddings)
    head.shared = {"embedding.tokens.weight"};
  else
    head.parameters.push_back(matrix_parameter("head.weight", vocab_size, model.dim, model.init_std, TensorSplit{}));
  for (auto& parameter : head.parameters) divide(parameter, division);
  auto dim = static_cast<double>(model.dim), vocab = static_cast<double>(vocab_size);
  int64_t weight = model.dim * vocab_size;
  head.forward_flops_per_token = 2 * dim * vocab;
  // The norm's input, and the gradients of the norm's output and of the vocabulary projection, which the cross entropy
  // computes in forward.
  head.saved = {2 * dim, memory.saved_float32, weight};
  // First the logits and their log-softmax, unless the logits are overwritten. Then the logits' gradient, whose product
  // with the hidden states is the weight's gradient.
  head.forward_moments = {
      {.compute_elements_per_token = 3 * dim, .float32_per_chunk_token = 2 * vocab, .summed_over_chunks = weight},
      {.compute_elements_per_token = 3 * dim,
       .compute_elements_per_chunk_token = dim + vocab,
       .summed_over_chunks = weight,
       .arriving = weight,
       .out_features = vocab_size,
       .in_features = model.dim}};
  int64_t own = model.tie_embeddings ? 0 : weight, norms = head.parameter_count() - own;
  head.backward_moments = {{.compute_elements_per_token = 2 * dim, .arriving = own},
                           {.compute_elements_per_token = 5 * dim,
                            .widened_per_token = memory.widened,
                            .arrived = own,
                            .arriving = norms,
                            .released_per_token = 3 * dim}};
  return head;
}

BlockSpec task_head_block(int64_t dim, int64_t outputs, std::optional<double> init_std) {
  BlockSpec block{.name = "head", .kind = BlockKind::head};
  if (init_std) {
    block.parameters = {matrix_parameter("head.weight", outputs, dim, *init_std)};
  } else {  // as torch.nn.Linear
    const Init init{Init::Kind::uniform, 1 / std::sqrt(static_cast<double>(dim))};
    block.parameters = {{.name = "head.weight", .shape = {outputs, dim}, .init = init},
                        {.name = "head.bias", .shape = {outputs}, .init = init}};
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

BlockSpec text_label_head_block(const Recipe::Model& model, std::vector<ParameterSpec> norm, int64_t seq_len) {
  return one_token_head(task_head_block(model.dim, *model.num_labels, model.init_std), std::move(norm), model.dim,
                        seq_len);
}

}  // namespace runner
