#include "runner/models/spec_parts.hpp"

#include <cmath>
#include <numeric>

#include "runner/base/error.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner {

void train_only(ModelSpec& spec, const std::function<bool(const ParameterSpec& parameter, size_t slot)>& trained) {
  size_t slot = 0;
  for (auto& block : spec.blocks)
    for (auto& parameter : block.parameters) parameter.trainable = trained(parameter, slot++);
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

std::vector<ParameterSpec> layer_norm_parameters(const std::string& name, int64_t dim, bool bias) {
  std::vector<ParameterSpec> parameters = {vector_parameter(name + ".weight", dim, Init::Kind::ones)};
  if (bias) parameters.push_back(vector_parameter(name + ".bias", dim, Init::Kind::zeros));
  return parameters;
}

void add_linear(BlockSpec& block, const std::string& name, int64_t out, int64_t in, double std, bool bias,
                const std::optional<TensorSplit>& split) {
  block.parameters.push_back(matrix_parameter(name + ".weight", out, in, std, split));
  const auto of_bias = split && split->dim == 0 ? split : std::nullopt;
  if (bias) block.parameters.push_back(vector_parameter(name + ".bias", out, Init::Kind::zeros, of_bias));
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

void add_enter(BlockSpec& block, double elements, const TensorDivision& division) {
  if (!division.divides()) return;
  const bool rows = division.divides_rows();
  auto& [forward, backward] = block.over_tensor_axis;
  if (rows) forward.push_back({.kind = Collective::all_gather, .elements_per_token = elements});
  backward.insert(backward.begin(), {.kind = rows ? Collective::reduce_scatter : Collective::all_reduce,
                                     .elements_per_token = elements,
                                     .of_input = true});
}

void add_leave(BlockSpec& block, BlockCollective leave, const TensorDivision& division) {
  if (!division.divides()) return;
  auto& [forward, backward] = block.over_tensor_axis;
  leave.kind = division.divides_rows() ? Collective::reduce_scatter : Collective::all_reduce;
  forward.push_back(leave);
  if (!division.divides_rows()) return;
  leave.kind = Collective::all_gather;
  leave.of_output = false;
  backward.insert(backward.begin(), leave);
}

BlockSpec input_block(double elements_per_token) {
  BlockSpec block{.name = "input", .kind = BlockKind::embedding};
  block.output_elements_per_token = elements_per_token;
  block.passes_field = row_field::input;
  return block;
}

BlockSpec embedding_block(const Recipe::Model& model, std::vector<ParameterSpec> parameters,
                          const TensorDivision& division) {
  BlockSpec block{.name = "embedding", .kind = BlockKind::embedding, .parameters = std::move(parameters)};
  for (auto& parameter : block.parameters) divide(parameter, division);
  const HiddenElements h(model.dim, division);
  block.output_elements_per_token = h.stream;
  add_leave(block, {.elements_per_token = h.all, .values = BlockCollective::Values::table}, division);
  return block;
}

BlockSpec head_block(const Recipe::Model& model, std::vector<ParameterSpec> norm, int64_t vocab_size,
                     const TensorDivision& division) {
  BlockSpec head{.name = "head", .kind = BlockKind::head, .parameters = std::move(norm)};
  if (model.tie_embeddings)
    head.shared = {"embedding.tokens.weight"};
  else
    head.parameters.push_back(matrix_parameter("head.weight", vocab_size, model.dim, model.init_std, TensorSplit{}));
  for (auto& parameter : head.parameters) divide(parameter, division);
  const HiddenElements h(model.dim, division);
  head.forward_flops_per_token = 2 * h.all * static_cast<double>(division.most(vocab_size));
  add_enter(head, h.all, division);
  if (division.divides())
    head.over_tensor_axis.forward.push_back({.kind = Collective::all_gather,
                                             .elements_per_token = 3.0 * division.ranks,
                                             .values = BlockCollective::Values::statistics,
                                             .per_chunk = true});
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
  block.forward_flops_per_token = matrix_flops_per_token(block.parameters);
  return block;
}

BlockSpec one_token_head(BlockSpec head, std::vector<ParameterSpec> norm, int64_t tokens) {
  head.forward_flops_per_token /= static_cast<double>(tokens);
  norm.insert(norm.end(), head.parameters.begin(), head.parameters.end());
  head.parameters = std::move(norm);
  return head;
}

BlockSpec text_label_head_block(const Recipe::Model& model, std::vector<ParameterSpec> norm, int64_t seq_len) {
  return one_token_head(task_head_block(model.dim, *model.num_labels, model.init_std), std::move(norm), seq_len);
}

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
