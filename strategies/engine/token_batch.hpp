// Batches of next-token prediction: the fields that text data sets provide and language models need.
#pragma once
#include <algorithm>
#include <span>
#include <vector>

#include "strategies/engine/host_batch.hpp"

namespace runner {

/// A target that does not count in the loss.
inline constexpr int64_t ignored_target = -100;

/// The names and indices of token_fields() and packed_fields().
namespace token_field {
inline constexpr const char *inputs_name = "inputs", *targets_name = "targets", *positions_name = "positions",
                            *types_name = "types";
inline constexpr size_t inputs = 0, targets = 1, positions = 2;
}  // namespace token_field

/// Token ids, and for each of them the id of the next token.
inline std::vector<BatchField> token_fields(int64_t seq_len) {
  return {{.name = token_field::inputs_name, .row = {seq_len}, .padding_row = {1}},
          {.name = token_field::targets_name, .row = {seq_len}, .padding = ignored_target, .padding_row = {1}}};
}

/// The token_fields() and the positions of rows that contain several sequences one after another. `positions` are those of the tokens in
/// their sequences: 0 begins one. The first token of a row begins one, and tokens do not see those of other sequences.
inline std::vector<BatchField> packed_fields(int64_t seq_len) {
  auto fields = token_fields(seq_len);
  fields.push_back({.name = token_field::positions_name, .row = {seq_len}, .padding_row = {1}});
  return fields;
}

/// Writes the positions of a sequence of `length` tokens to the beginning of `positions`. Returns the rest.
inline std::span<int64_t> write_sequence(std::span<int64_t> positions, size_t length) {
  for (size_t i = 0; i < length; ++i) positions[i] = static_cast<int64_t>(i);
  return positions.subspan(length);
}
/// The padding behind the sequences of a row is a sequence of its own.
inline void write_padding(std::span<int64_t> positions) { write_sequence(positions, positions.size()); }

/// Texts that have a label or numbers as their target, without the target: token ids, and their positions as in packed_fields(). The
/// padding behind a text is a sequence of its own. `pairs`: a row has two texts, and `types` says of which of them a token is.
inline std::vector<BatchField> text_fields(int64_t seq_len, bool pairs) {
  const auto field = [&](const char* name) { return BatchField{.name = name, .row = {seq_len}, .padding_row = {1}}; };
  std::vector<BatchField> fields = {field(token_field::inputs_name), field(token_field::positions_name)};
  if (pairs) fields.push_back(field(token_field::types_name));
  return fields;
}

/// A micro-batch of `rows` sequences: packed_fields(). `inputs` and `targets` have the same size, a multiple of `rows`.
inline HostBatch token_batch(int64_t rows, std::span<const int64_t> inputs, std::span<const int64_t> targets) {
  RUNNER_CHECK(rows > 0 && inputs.size() == targets.size() && std::ssize(inputs) % rows == 0);
  const int64_t length = std::ssize(inputs) / rows;
  HostBatch batch(rows, packed_fields(length));
  std::ranges::copy(inputs, batch.values<int64_t>(token_field::inputs).begin());
  std::ranges::copy(targets, batch.values<int64_t>(token_field::targets).begin());
  auto positions = batch.values<int64_t>(token_field::positions);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int64_t>(i) % length;
  return batch;
}

}  // namespace runner
