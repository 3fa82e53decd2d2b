#include "runner/models/spec_parts.hpp"

#include <cmath>

#include "runner/base/error.hpp"
#include "runner/models/moments_without_graph.hpp"

namespace runner {

void train_only(ModelSpec& spec, const std::function<bool(const ParameterSpec& parameter, size_t slot)>& trained) {
  size_t slot = 0;
  for (auto& block : spec.blocks)
    for (auto& parameter : block.parameters) parameter.trainable = trained(parameter, slot++);
  // The lookups of a frozen embedding save nothing.
  auto& embedding = spec.blocks.front();
  if (spec.first_trained_block() > 0 && embedding.kind == BlockKind::embedding) embedding.saved = {};
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

BlockSpec embedding_block(const Recipe::Model& model, std::vector<ParameterSpec> parameters,
                          const TensorDivision& division, int lookups) {
  BlockSpec block;
  block.name = "embedding";
  block.kind = BlockKind::embedding;
  block.parameters = std::move(parameters);
  for (auto& parameter : block.parameters) divide(parameter, division);
  const HiddenElements h(model.dim, division);
  const bool drops = model.dropout > 0;
  block.output_elements_per_token = h.stream;
  MomentsWithoutGraph moments(model, /*seq_len=*/0);
  double places = 0;  // of rows in the tables, int64
  if (division.divides()) {
    // Rows of all tokens with their places and a mask, and then the sum over the ranks. A second table has places of its own.
    // If tokens have positions (two lookups), those are the places.
    const bool two = block.parameters.size() > 1;
    places = two && lookups == 1 ? division.of_rows(2) : 0;
    if (two) lookups = 2;
    block.saved.float32_per_token = 2.25 + places;
    moments.list.push_back({.compute_elements_per_token = h.all, .float32_per_token = 4.5});
    moments.list.push_back(
        {.compute_elements_per_token = h.all + (h.gathers ? h.stream : 0), .float32_per_token = 2.25});
    add_leave(block, {.elements_per_token = h.all, .values = BlockCollective::Values::table}, division);
  }
  moments.list.push_back({.compute_elements_per_token = lookups * h.stream, .float32_per_token = places});
  moments.add_dropout(h.stream, h.stream);
  block.moments_without_graph = moments.list;
  const int64_t tokens = block.parameters[0].numel(), others = block.parameter_count() - tokens;
  if (drops)
    block.backward_moments.push_back({.compute_elements_per_token = 3 * h.stream, .mask_bytes_per_token = h.stream});
  const double residual = drops ? h.stream : 0;  // the gradient before dropout
  if (division.divides())                        // the rows of other ranks' tokens are set to zero in a copy
    block.backward_moments.push_back({.compute_elements_per_token = residual + 2 * h.all,
                                      .float32_per_token = block.saved.float32_per_token,
                                      .arrived = others});
  block.backward_moments.push_back({.compute_elements_per_token = residual + h.all,
                                    .float32_per_token = block.saved.float32_per_token,
                                    .arrived = others,
                                    .arriving = tokens,
                                    .arrives_as_rows = true});
  return block;
}

int64_t elements_of(const std::vector<ParameterSpec>& parameters, std::initializer_list<std::string_view> endings) {
  int64_t count = 0;
  for (const auto& parameter : parameters)
    for (auto ending : endings) count += parameter.name.ends_with(ending) ? parameter.numel() : 0;
  return count;
}

MemoryMoment dropout_attention_moment(int64_t heads, int64_t seq_len, double elements) {
  const auto scores = static_cast<double>(heads * seq_len);
  return {.compute_elements_per_token = 3 * scores + elements, .mask_bytes_per_token = scores};
}

namespace {

/// What of a chunk's logits exists until their gradient.
MemoryMoment logits_moment(double hidden, double vocab, int64_t weight, const TensorDivision& division) {
  MemoryMoment moment{.compute_elements_per_token = hidden, .summed_over_chunks = weight};
  // The logits and their log-softmax, unless the logits are overwritten.
  moment.float32_per_chunk_token = 2 * vocab + static_cast<double>(division.loss_values());
  // If ranks divide the vocabulary, there is no log-softmax: the fp32 copy of the logits is overwritten.
  if (division.divides()) moment.compute_elements_per_chunk_token = -vocab;
  return moment;
}

}  // namespace

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
  const HiddenElements h(model.dim, division);
  const int64_t columns = division.most(vocab_size), weight = model.dim * columns;
  const auto vocab = static_cast<double>(columns);
  head.forward_flops_per_token = 2 * h.all * vocab;
  // The norm's input, and the gradients of the norm's output and of the vocabulary projection, which the cross entropy
  // computes in forward.
  head.saved = {h.stream + h.all, division.of_rows(memory.saved_float32), weight};
  // First the logits. Then the logits' gradient, whose product with the hidden states is the weight's gradient. Beside them, the norm's
  // input, its output and the gradient of the output.
  const double beside = h.stream + 2 * h.all;
  head.forward_moments = {logits_moment(beside, vocab, weight, division),
                          {.compute_elements_per_token = beside,
                           .compute_elements_per_chunk_token = h.all + vocab,
                           .summed_over_chunks = weight,
                           .arriving = weight,
                           .out_features = columns,
                           .in_features = model.dim}};
  int64_t own = model.tie_embeddings ? 0 : weight, norms = head.parameter_count() - own;
  head.backward_moments = {{.compute_elements_per_token = h.stream + h.all, .arriving = own}};
  if (h.gathers)  // the sum over the ranks, of which each keeps its rows
    head.backward_moments.push_back({.compute_elements_per_token = 2 * h.stream + h.all, .arrived = own});
  const double temporaries = division.of_rows(memory.temporaries);
  head.backward_moments.push_back({.compute_elements_per_token = 3 * h.stream + temporaries,
                                   .widened_per_token = division.of_rows(memory.widened),
                                   .arrived = own,
                                   .arriving = norms,
                                   .released_per_token = h.stream + temporaries});
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
