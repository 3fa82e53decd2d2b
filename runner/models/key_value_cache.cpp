#include "runner/models/key_value_cache.hpp"

#include <algorithm>
#include <limits>

#include "runner/base/error.hpp"
#include "runner/models/attention.hpp"
#include "runner/models/decoder/decoder.hpp"
#include "runner/models/eager_attention.hpp"
#include "runner/models/host_decoding.hpp"

namespace runner {

using torch::Tensor;

KeyValueCache::Shape KeyValueCache::Shape::of(const Recipe::Model& model) {
  return {.layers = model.n_layers, .key_heads = decoder::n_kv_heads(model), .head_dim = decoder::head_dim(model)};
}

KeyValueCache::KeyValueCache(const Shape& shape, const torch::TensorOptions& options, std::vector<int64_t> padding)
    : shape_(shape),
      options_(options),
      padding_(std::move(padding)),
      padded_(std::ranges::any_of(padding_, [](int64_t columns) { return columns > 0; })),
      keys_(static_cast<size_t>(shape.layers)),
      values_(static_cast<size_t>(shape.layers)) {}

void KeyValueCache::reserve(int64_t columns) {
  if (columns <= capacity_) return;
  constexpr int64_t least = 64;
  const int64_t capacity = std::max({columns, 2 * capacity_, least});
  for (auto* stores : {&keys_, &values_})
    for (auto& store : *stores) {
      auto larger = at::empty({rows(), shape_.key_heads, capacity, shape_.head_dim}, options_);
      if (length_ > 0) larger.narrow(2, 0, length_).copy_(store.narrow(2, 0, length_));
      store = std::move(larger);
    }
  capacity_ = capacity;
}

void KeyValueCache::begin(int64_t columns) {
  RUNNER_CHECK(new_ == 0 && columns > 0);
  reserve(length_ + columns);
  new_ = columns;
  auto positions = at::empty({rows(), columns}, torch::kInt64);
  auto* position = positions.data_ptr<int64_t>();
  positions_end_ = 1;
  for (const int64_t padding : padding_)
    for (int64_t column = length_; column < length_ + columns; ++column) {
      *position = std::max<int64_t>(column - padding, 0);
      positions_end_ = std::max(positions_end_, *position++ + 1);
    }
  positions_ = {.on_device = positions.to(options_.device()), .on_host = positions};
}

void KeyValueCache::end() {
  length_ += new_;
  new_ = 0;
}

void KeyValueCache::keep(int64_t columns) { length_ = std::min(length_, columns); }

void KeyValueCache::keep_rows(const std::vector<int64_t>& rows) {
  std::vector<int64_t> padding;
  for (const int64_t row : rows) padding.push_back(this->padding(row));
  padding_ = std::move(padding);
  padded_ = std::ranges::any_of(padding_, [](int64_t columns) { return columns > 0; });
  const auto index = torch::tensor(rows, torch::kInt64).to(options_.device());
  for (auto* stores : {&keys_, &values_})
    for (auto& store : *stores)
      if (store.defined()) store = store.index_select(0, index);
}

void KeyValueCache::append(int64_t layer, const Tensor& k, const Tensor& v) {
  const auto place = [&](std::vector<Tensor>& stores, const Tensor& x) {
    stores[static_cast<size_t>(layer)].narrow(2, length_, new_).copy_(x.transpose(1, 2));
  };
  place(keys_, k);
  place(values_, v);
}

namespace {

/// Rows [T, heads * head_dim] of a sequence whose new tokens are the last ones of all. q [1, T, ...], k and v [1, columns, ...].
Tensor sequence_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionForm& form) {
  if (q.size(1) == k.size(1)) return undropped_attention(q, k, v, form);
  return tiled_attention(q, k, v, form);
}

}  // namespace

Tensor cached_attention(const Tensor& q, const Tensor& k, const Tensor& v, KeyValueCache& cache, int64_t layer,
                        AttentionForm form) {
  form.many_lengths = true;
  const int64_t rows = q.size(0), columns = q.size(1);
  cache.append(layer, k, v);
  const auto keys = cache.keys(layer), values = cache.values(layer);
  if (columns == 1 && decodes_on_host(q)) return decode_attention(q, keys, values, cache, form);
  if (cache.length() == 0 && !cache.padded()) return undropped_attention(q, k, v, form);
  std::vector<Tensor> results;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t first = cache.padding(row), hidden = std::clamp<int64_t>(first - cache.length(), 0, columns);
    auto seen = [&](const Tensor& all) {
      return all.narrow(0, row, 1).narrow(2, first, all.size(2) - first).transpose(1, 2);
    };
    if (hidden > 0) results.push_back(at::zeros({hidden, q.size(2) * q.size(3)}, q.options()));
    results.push_back(
        sequence_attention(q.narrow(0, row, 1).narrow(1, hidden, columns - hidden), seen(keys), seen(values), form));
  }
  return at::cat(results);
}

int64_t rotations_change_after(const Recipe::Model& model) {
  if (model.rope_scaling && model.rope_scaling->rope_type == "longrope")
    return model.rope_scaling->original_max_position_embeddings;
  return std::numeric_limits<int64_t>::max();
}

}  // namespace runner
