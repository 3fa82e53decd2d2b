// Numbers in tensors of TensorFlow (tensorflow/core/framework/tensor.proto), which event files have.
#pragma once
#include <optional>
#include <string_view>

namespace runner {

/// The first number of a TensorProto: of the types float, double, half, bfloat16, bool and integers of 8 to 64 bits, in the field of its
/// type or as bytes, in any order of the fields. Nothing for other types and for a tensor without a number. Throws Error(environment) if
/// the message is damaged.
std::optional<double> scalar_in_tensor(std::string_view tensor);

}  // namespace runner
