// The torch-free description of a model: ordered blocks with named parameter shapes, FLOPs and collectives.
// Strategies, checkpoints and the planner use only this description. Modules are built from it, so shapes are defined in one
// place.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strategies/collective/operation.hpp"
#include "strategies/contract/context_division.hpp"
#include "strategies/contract/stage_spec.hpp"
#include "strategies/contract/task_spec.hpp"
#include "strategies/contract/tensor_division.hpp"
#include "strategies/engine/batch_field.hpp"

namespace runner {

struct Init {
  /// `row_norms`: the norms of the rows of another parameter, a matrix (with_row_norms() in initialize.hpp).
  enum class Kind { zeros, ones, normal, uniform, row_norms };
  Kind kind = Kind::zeros;
  double std = 0.0;     ///< for normal; for uniform: the bound of the absolute value
  std::string of = {};  ///< for row_norms: the matrix
};

/// Bytes, for each element of a parameter, of what the computation gets instead of it (conversion.hpp).
struct ConvertedBytes {
  /// From the block's forward to its backward; nullopt: one copy in the compute dtype.
  std::optional<double> kept = {};
  /// While it is computed, in addition; nullopt: two such copies.
  std::optional<double> working = {};
};

struct ParameterSpec {
  std::string name;            ///< unique in the model, e.g. "blocks.3.attention.qkv.weight"
  std::vector<int64_t> shape;  ///< row-major; of the part that this rank has
  Init init;
  /// How the ranks of the tensor axis divide it; nullopt: each has all of it, for `whole_use`.
  std::optional<TensorSplit> split = {};
  /// False: frozen. It keeps its initial value, and has no gradient and no optimizer state.
  bool trainable = true;
  /// It is a parameter of a transformer layer, and not of the embedding or of the head.
  bool of_layer = false;
  /// Layers between this parameter's and the loss, with the head: 0 for the head, 1 for the last transformer layer.
  int64_t layers_above = 0;
  /// The parameter's value is that of the folder that training started from. Checkpoints do not contain it.
  bool of_base = false;
  /// Stored in NF4 (ModelSpec::quantization). Only for frozen parameters.
  bool quantized = false;
  /// Set if the computation gets something else instead of it.
  std::optional<ConvertedBytes> converted = {};
  WholeUse whole_use = WholeUse::rows;
  /// A copy of a parameter that an earlier stage of the pipeline has (stage_spec.hpp).
  bool copied = false;
  /// If several ranks share the model's matrices: the part that this rank has (divide() in tensor_division.hpp).
  std::optional<TensorPart> part = {};

  /// The shape of the parameter in checkpoints and files.
  const std::vector<int64_t>& whole_shape() const { return part ? part->whole_shape : shape; }

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }
};

/// A collective of a block over the ranks of the tensor axis (tensor_axis.hpp) or of the context axis (context_axis.hpp).
struct BlockCollective {
  /// Hidden states in the compute dtype, or in the dtype of the token table; or values for a loss or a norm, and sums, in fp32 or wider.
  enum class Values { compute, table, statistics };
  /// A `transfer` is a message to the next rank of the axis and one from the rank before it.
  Collective kind = Collective::all_reduce;
  /// Elements of the complete tensor: the result of all_gather, the input of reduce_scatter and of all_to_all. Of a transfer, those of one
  /// message. With sequence parallelism, rows of hidden states are padded to a multiple of the ranks.
  double elements_per_token = 0;
  Values values = Values::compute;
  bool per_chunk = false;  ///< a call for each chunk of the loss (ModelSpec::loss_chunk_tokens)
  /// Forward: not called if nothing reads the block's output (ForwardContext::output_unused).
  bool of_output = false;
  /// Backward: of the gradient of the block's input, not called if neither an earlier block nor the norm of the input is trained.
  bool of_input = false;
  bool operator==(const BlockCollective&) const = default;
};

/// The collectives that a block calls over the ranks of one axis for a micro-batch, in order. Empty if they do not divide the model.
struct BlockCollectives {
  std::vector<BlockCollective> forward = {}, backward = {};
};

/// A hidden layer of a model without attention also has the kind `transformer`, and an input without parameters has the kind
/// `embedding`.
enum class BlockKind { embedding, transformer, head };

/// One block of the chain. The first block takes the batch, the last one returns the summed loss, and the tensors between blocks
/// are [B, T, dim], or with sequence parallelism this rank's rows of them. A transformer layer is two blocks: attention and MLP,
/// each with its norm and its residual.
struct BlockSpec {
  std::string name;  ///< "embedding", "blocks.0.attention", "blocks.0.mlp", ..., "head"
  /// The layer of which the block is a part: "blocks.0". Empty: the block is a layer by itself.
  std::string layer = "";
  BlockKind kind = BlockKind::transformer;
  int64_t variant = 0;  ///< blocks with other numbers may need other memory, although their parameters are alike
  std::vector<ParameterSpec> parameters = {};
  /// Names of parameters of earlier blocks that this block also uses (tied weights). They are not in `parameters`.
  std::vector<std::string> shared = {};
  double forward_flops_per_token = 0;    ///< at the spec's seq_len; a multiply-add counts as 2
  double output_elements_per_token = 0;  ///< of the compute dtype
  BlockCollectives over_tensor_axis = {};
  BlockCollectives over_context_axis = {};  ///< `backward` is empty if attention has no backward
  /// The output is this field of the batch, without a copy if the field has the compute dtype. Only of the first block.
  std::optional<size_t> passes_field = {};

  /// Elements of `parameters`.
  int64_t parameter_count() const;
  const std::string& layer_name() const { return layer.empty() ? name : layer; }
};

/// Low-rank adapters of matrices (runner/models/adapters.hpp).
struct AdapterSpec {
  int64_t rank = 0;
  double scale = 1;         ///< of the product of B and A
  double dropout = 0;       ///< of the input of A
  bool magnitudes = false;  ///< the norms of the rows are parameters of their own (DoRA)
};

/// How parameters with ParameterSpec::quantized are stored (nf4.hpp).
struct QuantizationSpec {
  bool double_quantization = false;  ///< the factors of blocks have 8 bits, too
};

class BlockProfiler;  // block_profile.hpp

struct ModelSpec {
  std::string family;  ///< model.name in recipes
  std::vector<BlockSpec> blocks;
  /// The fields that a micro-batch must have. An index into this list is also one of MicroBatch::fields.
  std::vector<BatchField> batch;
  int64_t vocab_size = 0;
  int64_t dim = 0;
  int64_t seq_len = 0;            ///< T for which FLOPs and activations were computed
  int64_t loss_chunk_tokens = 0;  ///< tokens for which the loss is computed at a time; 0: all
  TensorDivision division = {};   ///< the parameters and the numbers of the blocks are those of one of its ranks
  /// `seq_len` and the numbers per token are those of one of the ranks that divide the tokens of each row. `batch` has complete rows.
  ContextDivision context = {};
  std::optional<StagePart> stage = {};  ///< set if the blocks are those of one rank of a pipeline
  std::optional<AdapterSpec> adapter = {};
  std::optional<QuantizationSpec> quantization = {};
  std::optional<TaskSpec> task = {};  ///< of models that predict labels or numbers; unset: the model predicts tokens
  /// Tensors that training changes without gradients: running statistics. Each rank has them completely, in fp32.
  std::vector<ParameterSpec> buffers = {};
  int64_t buffer_elements = 0;  ///< of the compute dtype: tables that are not parameters and always exist
  /// Knows what the model was made from, and tells what its blocks allocate. Null: nobody asks.
  std::shared_ptr<const BlockProfiler> profiler = {};

  /// Elements of all parameters; tied ones are counted once.
  int64_t parameter_count() const;
  /// Whether the block belongs to the same layer as the block before it.
  bool continues_layer(size_t block) const;
  /// Tokens of a row of the batch, with the padding of a context axis.
  int64_t row_tokens() const { return seq_len * context.ranks; }
  /// Number of transformer layers, and of those with a block for which `chosen` is true.
  int64_t layers() const;
  int64_t layers_with(const std::vector<bool>& chosen) const;
  /// The first block with a backward: it, or one before it in the model, has a trainable parameter. The number of blocks if there is none.
  size_t first_trained_block() const;
  /// Whether the block's backward computes the gradient of its input.
  bool passes_gradient(size_t block) const;
  /// Whether the input of the block is the output of another one, and not the batch.
  bool has_input(size_t block) const { return block > 0 || (stage && !stage->has_first); }
  /// Whether the block is the last one of the model.
  bool is_last(size_t block) const { return block + 1 == blocks.size() && (!stage || stage->has_last); }
  /// FLOPs per token of a block's backward: 2 x forward, without the gradients of frozen matrices; 0 before the first trained block.
  double backward_flops_per_token(size_t block) const;
  /// Training FLOPs per token: forward and backward, without recomputation.
  double training_flops_per_token() const;
  /// All parameters in block order. An index into this list is called a slot.
  std::vector<const ParameterSpec*> parameters() const;
  /// Elements of the parameter in `slot`. Does not build the list.
  int64_t numel(size_t slot) const;
  /// Throws std::logic_error if there is no parameter with this name.
  size_t slot(const std::string& parameter_name) const;
  /// Whether a parameter is converted (conversion.hpp).
  bool converts() const;
  /// parameters() and then `buffers`: all tensors of the model in checkpoints and files.
  std::vector<const ParameterSpec*> stored() const;
  /// Indices of `buffers` and of stored(). Throw std::logic_error if there is none with this name.
  size_t buffer(const std::string& name) const;
  size_t stored_index(const std::string& name) const;
  /// The index of a field of `batch`. Throws std::logic_error if there is no field with this name.
  size_t batch_field(const std::string& name) const;
  /// Bytes of one row of a micro-batch on the device: of all fields, or of this rank's tokens with their positions.
  int64_t batch_row_bytes() const;
};

/// Whether another stage of the pipeline has a copy of the parameter.
inline bool is_tied(const ModelSpec& model, const ParameterSpec& parameter) {
  return model.stage && model.stage->tied == parameter.name;
}

/// For errors about names of blocks: `"embedding", "blocks.0" to "blocks.3", "head", and parts such as "blocks.0.mlp"`.
std::string names_of_blocks(const ModelSpec& model);

}  // namespace runner
