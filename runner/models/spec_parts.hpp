// Parts of specs that families share.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runner/models/models.hpp"

namespace runner {

/// Decides which parameters are trained.
void train_only(ModelSpec& spec, const std::function<bool(const ParameterSpec& parameter, size_t slot)>& trained);

/// Throws Error(usage) for values that no family supports.
void check_shape(const Recipe::Model& model, int64_t vocab_size, int64_t seq_len);

/// Throws Error(usage) unless model.activation is gelu or gelu_tanh, which a feed-forward without gate has (gelu.hpp).
void check_gelu(const Recipe::Model& model);

/// A matrix [out, in] drawn from normal(0, std).
ParameterSpec matrix_parameter(std::string name, int64_t out, int64_t in, double std,
                               std::optional<TensorSplit> split = {});
ParameterSpec vector_parameter(std::string name, int64_t size, Init::Kind init, std::optional<TensorSplit> split = {});

/// The parameters NAME.weight and NAME.bias of a LayerNorm.
std::vector<ParameterSpec> layer_norm_parameters(const std::string& name, int64_t dim, bool bias = true);
/// Adds the parameters NAME.weight and NAME.bias of a linear layer. The bias of a row-parallel layer is added to the sum over the ranks.
void add_linear(BlockSpec& block, const std::string& name, int64_t out, int64_t in, double std, bool bias,
                const std::optional<TensorSplit>& split = {});

/// Standard deviation of projections into the residual stream: init_std / sqrt(2 * n_layers), because each layer adds
/// to the stream twice (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3).
double residual_std(const Recipe::Model& model);

/// FLOPs of multiplying one token with each matrix of `parameters`.
double matrix_flops_per_token(const std::vector<ParameterSpec>& parameters);
/// FLOPs of Q K^T and P V for one token that attends to seq_len others.
inline double attention_flops_per_token(int64_t dim, int64_t seq_len) {
  return 4.0 * static_cast<double>(dim * seq_len);
}

/// Elements per token of hidden states, on the rank with the most. On one rank both are the same.
struct HiddenElements {
  HiddenElements(int64_t dim, const TensorDivision& division)
      : all(static_cast<double>(dim)), stream(division.of_rows(all)) {}
  double all;     ///< of all rows: the input of column-parallel products and the results of row-parallel ones
  double stream;  ///< of the rows that the rank has between the products
};

/// Adds the collectives of TensorAxis::enter() and leave() of hidden states to the lists of a block.
void add_enter(BlockSpec& block, double elements, const TensorDivision& division);
void add_leave(BlockSpec& block, BlockCollective leave, const TensorDivision& division);

/// The first block of models whose rows are not tokens (RowInput in row_input.hpp).
BlockSpec input_block(double elements_per_token);
/// The first block. The first of `parameters` is the token table.
BlockSpec embedding_block(const Recipe::Model& model, std::vector<ParameterSpec> parameters,
                          const TensorDivision& division);

/// The last block of models that predict labels or numbers: head.weight [outputs, dim] and head.bias, as torch.nn.Linear draws
/// them; with `init_std` only the weight, drawn from normal(0, init_std).
BlockSpec task_head_block(int64_t dim, int64_t outputs, std::optional<double> init_std = {});
/// The block `head` behind a norm, for one of the `tokens` tokens of a row.
BlockSpec one_token_head(BlockSpec head, std::vector<ParameterSpec> norm, int64_t tokens);
/// The last block of decoders with model.num_labels (TextLabelHead in head.hpp).
BlockSpec text_label_head_block(const Recipe::Model& model, std::vector<ParameterSpec> norm, int64_t seq_len);

/// The last block: `norm` parameters, then the head's matrix unless it is tied.
BlockSpec head_block(const Recipe::Model& model, std::vector<ParameterSpec> norm, int64_t vocab_size,
                     const TensorDivision& division);

// The collectives of attention on ranks that share the tokens of each row (context_attention.hpp). Torch-free.

/// The attention of a block, on this rank of the tensor axis.
struct AttentionSize {
  int64_t heads = 0, key_heads = 0, head_dim = 0;
};

/// Adds what the ranks of a context axis exchange. If one rank has complete rows, it adds nothing.
void add_context_traffic(BlockSpec& block, const AttentionSize& size, const ContextDivision& context);

}  // namespace runner
