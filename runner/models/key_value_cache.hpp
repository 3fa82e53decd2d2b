// The keys and values of the tokens that a model has read, for decoding: the next tokens attend to them, so they need not be computed
// again.
#pragma once
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/models/attention_form.hpp"
#include "runner/models/sequences.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/module.hpp"

namespace runner {

/// Sequences are rows, and their tokens are columns. Shorter sequences are padded on the left, so all have their newest token in the
/// last column. The number of columns grows as needed.
///
/// One forward pass reads new columns: begin(), the blocks, end(). Each layer appends its keys and values.
class KeyValueCache {
 public:
  struct Shape {
    int64_t layers = 0, key_heads = 0, head_dim = 0;
    static Shape of(const Recipe::Model& model);
  };
  /// `padding`: the number of columns before the first token of each sequence.
  KeyValueCache(const Shape& shape, const torch::TensorOptions& options, std::vector<int64_t> padding);

  int64_t rows() const { return static_cast<int64_t>(padding_.size()); }
  int64_t length() const { return length_; }  ///< columns that were read
  int64_t padding(int64_t row) const { return padding_[static_cast<size_t>(row)]; }
  bool padded() const { return padded_; }

  void begin(int64_t columns);
  void end();
  /// Forgets all columns from `columns` on.
  void keep(int64_t columns);
  /// Forgets all sequences but these, in this order.
  void keep_rows(const std::vector<int64_t>& rows);

  /// The positions of the new tokens in their sequences, [rows, new columns]; 0 for padding. Between begin() and end().
  const TokenPositions& positions() const { return positions_; }
  int64_t positions_end() const { return positions_end_; }  ///< greater than every position

  /// k and v [rows, new columns, key heads, head_dim].
  void append(int64_t layer, const torch::Tensor& k, const torch::Tensor& v);
  /// [rows, key heads, columns with the new ones, head_dim], views.
  torch::Tensor keys(int64_t layer) const { return filled(keys_[static_cast<size_t>(layer)]); }
  torch::Tensor values(int64_t layer) const { return filled(values_[static_cast<size_t>(layer)]); }

 private:
  torch::Tensor filled(const torch::Tensor& store) const { return store.narrow(2, 0, length_ + new_); }
  void reserve(int64_t columns);

  Shape shape_;
  torch::TensorOptions options_;
  std::vector<int64_t> padding_;
  bool padded_;
  int64_t length_ = 0, new_ = 0, capacity_ = 0, positions_end_ = 0;
  TokenPositions positions_;
  std::vector<torch::Tensor> keys_, values_;  ///< by layer: [rows, key heads, capacity, head_dim]
};

/// Appends k and v to the layer's cache. Returns attention of the queries to all columns of their sequences, as rows
/// [rows * new columns, heads * head_dim]; 0 for padding. q [rows, new columns, heads, head_dim].
torch::Tensor cached_attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v,
                               KeyValueCache& cache, int64_t layer, AttentionForm form);

/// The number of positions from which on earlier keys have other rotations (longrope): a cache that was filled before must be filled
/// again. INT64_MAX for other models.
int64_t rotations_change_after(const Recipe::Model& model);

}  // namespace runner
