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
      : all(static_cast<double>(dim)), stream(division.of_rows(all)), gathers(division.divides_rows()) {}
  double all;     ///< of all rows: the input of column-parallel products and the results of row-parallel ones
  double stream;  ///< of the rows that the rank has between the products
  bool gathers;   ///< a tensor of all rows is not the one of the stream
  /// If all rows have to be gathered.
  double gathered() const { return gathers ? all : 0; }
};

/// Adds the collectives of TensorAxis::enter() and leave() of hidden states to the lists of a block.
void add_enter(BlockSpec& block, double elements, const TensorDivision& division);
void add_leave(BlockSpec& block, BlockCollective leave, const TensorDivision& division);

/// The first block: its parameters and memory moments. The first of `parameters` is the token table. `lookups`: results of lookups that
/// exist at a time.
BlockSpec embedding_block(const Recipe::Model& model, std::vector<ParameterSpec> parameters,
                          const TensorDivision& division, int lookups = 1);

/// The last block of models that predict labels or numbers: head.weight [outputs, dim] and head.bias, as torch.nn.Linear draws
/// them; with `init_std` only the weight, drawn from normal(0, init_std).
BlockSpec task_head_block(int64_t dim, int64_t outputs, std::optional<double> init_std = {});
/// The same behind a norm, for one of the `tokens` tokens of a row: all but the input is of this token only.
BlockSpec one_token_head(BlockSpec head, std::vector<ParameterSpec> norm, int64_t dim, int64_t tokens);
/// The last block of decoders with model.num_labels (text_label_head.hpp).
BlockSpec text_label_head_block(const Recipe::Model& model, std::vector<ParameterSpec> norm, int64_t seq_len);

/// Number of elements in those `parameters` whose names end with one of `endings`.
int64_t elements_of(const std::vector<ParameterSpec>& parameters, std::initializer_list<std::string_view> endings);

/// Elements per token of a block's gradient before dropout, which exists in addition to the residual's.
inline double masked_elements(const Recipe::Model& model) {
  return model.dropout > 0 ? static_cast<double>(model.dim) : 0;
}
/// Backward of attention with dropout, which has no fused kernel: three matrices of scores and a mask exist at once, and other `elements`
/// per token.
MemoryMoment dropout_attention_moment(int64_t heads, int64_t seq_len, double elements);

/// What a norm needs in addition to its input, its output and their gradients, per token.
struct NormMemory {
  double saved_float32 = 0;  ///< statistics for its backward
  double temporaries = 0;    ///< elements of its backward beside the gradients
  double widened = 0;        ///< elements that its backward copies to fp32 on a CPU if they have 16 bits
};
/// The last block: `norm` parameters, then the head's matrix unless it is tied.
BlockSpec head_block(const Recipe::Model& model, std::vector<ParameterSpec> norm, int64_t vocab_size,
                     const NormMemory& memory, const TensorDivision& division);

}  // namespace runner
