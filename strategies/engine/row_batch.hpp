// Batches whose rows are not sequences of tokens: an input and a target for each row.
#pragma once
#include <cmath>

#include "strategies/engine/batch_field.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace row_field {
inline constexpr const char *features_name = "features", *pixels_name = "pixels", *labels_name = "labels",
                            *targets_name = "targets", *partner_labels_name = "partner_labels",
                            *label_share_name = "label_share";
inline constexpr size_t input = 0, target = 1;
}  // namespace row_field

/// The features of a row: numbers.
inline BatchField features_field(int64_t count) {
  return {.name = row_field::features_name, .type = ElementType::float32, .row = {count}};
}

/// An image: red, green and blue, normalized.
inline BatchField pixels_field(int64_t size) {
  return {.name = row_field::pixels_name, .type = ElementType::float32, .row = {3, size, size}};
}

/// The class of a row, int64. ignored_target: the row does not count.
inline BatchField labels_field() {
  return {.name = row_field::labels_name, .type = ElementType::int64, .row = {}, .padding = ignored_target};
}

/// The class of the second one of two rows that are mixed, and the share in [0, 1] that the class in labels_field() has.
inline BatchField partner_labels_field() {
  auto field = labels_field();
  field.name = row_field::partner_labels_name;
  return field;
}
inline BatchField label_share_field() {
  return {.name = row_field::label_share_name, .type = ElementType::float32, .row = {}, .padding = 1};
}

/// The numbers that a row is compared with; for labels of two values 0 and 1. NaN: it does not count.
inline BatchField targets_field(int64_t count) {
  return {.name = row_field::targets_name, .type = ElementType::float32, .row = {count}, .padding = std::nan("")};
}

}  // namespace runner
