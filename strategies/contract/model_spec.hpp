// The torch-free view of a model: ordered blocks with named parameter shapes, FLOPs and the bytes kept for backward.
// Strategies, checkpoints and the planner read models only through this; modules are built from it, so shapes stand
// once.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace runner {

struct Init {
  enum class Kind { zeros, ones, normal };
  Kind kind = Kind::zeros;
  double std = 0.0;  ///< for normal
};

struct ParameterSpec {
  std::string name;            ///< unique in the model, e.g. "blocks.3.attention.qkv.weight"
  std::vector<int64_t> shape;  ///< global shape, row-major
  Init init;
  /// The dim that tensor parallelism splits; none = replicated.
  std::optional<int> tensor_parallel_dim;

  int64_t numel() const {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }
};

/// What a block keeps for its backward, its input included, its output not: that is the next block's input. Per token
/// of the micro-batch; two parts because of their dtypes.
struct SavedActivations {
  double compute_elements_per_token = 0;  ///< elements of the compute dtype
  double float32_per_token = 0;           ///< elements that stay fp32 (statistics, log-sum-exp)
  int64_t gradient_elements = 0;  ///< of a parameter's gradient that forward computes already (the head's weight)
};

/// A moment inside a block at which memory may peak: all that exists then, beside what the blocks before it keep.
/// Backward moments hold what is left of the block's saved activations too.
struct MemoryMoment {
  double compute_elements_per_token = 0;
  double mask_bytes_per_token = 0;
  double compute_elements_per_chunk_token = 0;  ///< for each token of one loss chunk
  double float32_per_chunk_token = 0;
  double widened_per_token = 0;        ///< fp32 copies of 16-bit values, which only CPUs make
  double widened_per_chunk_token = 0;  ///< such copies for each token of one loss chunk
  int64_t summed_over_chunks = 0;      ///< elements of a gradient that is added up when there are several chunks
  int64_t arrived = 0;                 ///< elements of the block's parameters whose gradients have been delivered
  int64_t arriving = 0;                ///< of the parameter whose gradient is being computed, and then delivered
  double released_per_token = 0;       ///< compute elements that are gone when that gradient is delivered
  /// Of the linear layer whose backward this is, 0 where it is of none: it multiplies into its input's gradient, which
  /// exists already in what is counted above, and then into its weight's.
  int64_t out_features = 0, in_features = 0;
};

enum class BlockKind { embedding, transformer, head };

/// One link of the chain. The first block takes token ids, the last returns the summed loss; between them flows [B, T,
/// dim].
struct BlockSpec {
  std::string name;  ///< "embedding", "blocks.0", ..., "head"
  BlockKind kind = BlockKind::transformer;
  std::vector<ParameterSpec> parameters;
  /// Parameters of earlier blocks that this block uses too (tied weights), by name. Not counted twice.
  std::vector<std::string> shared;
  double forward_flops_per_token = 0;  ///< at the spec's seq_len; multiply-add = 2
  SavedActivations saved;
  std::vector<MemoryMoment> forward_moments;   ///< only where forward takes more than what it leaves
  std::vector<MemoryMoment> backward_moments;  ///< in order; the last is the block's end
  double output_elements_per_token = 0;        ///< of the compute dtype; what activation checkpointing keeps

  /// Elements of its own parameters.
  int64_t parameter_count() const;
};

struct ModelSpec {
  std::string family;  ///< "gpt", "llama"
  std::vector<BlockSpec> blocks;
  int64_t vocab_size = 0;
  int64_t dim = 0;
  int64_t seq_len = 0;  ///< T that FLOPs and activations were computed for
  int64_t loss_chunk_tokens = 0;
  int64_t buffer_elements = 0;  ///< of the compute dtype, kept all the time: tables that are no parameters

  /// Unique parameters (tied ones once).
  int64_t parameter_count() const;
  /// Training FLOPs per token: 3 x forward (backward = 2 x forward), without recomputation.
  double training_flops_per_token() const;
  /// All parameters in block order; indices into this list are "parameter slots".
  std::vector<const ParameterSpec*> parameters() const;
  /// Elements of the parameter in a slot, without the list.
  int64_t numel(size_t slot) const;
  /// Throws std::logic_error when the name is not a parameter.
  size_t slot(const std::string& parameter_name) const;
};

}  // namespace runner
