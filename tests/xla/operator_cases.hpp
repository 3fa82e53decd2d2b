// Uses of the operators that have a lowering, by the name of the lowering.
#pragma once
#include <string>
#include <vector>

#include "tests/xla/run_traced.hpp"

namespace runner::testing {

/// The operands of the cases.
struct Operands {
  // Of the tested type; those with several dimensions and the rows are differentiated.
  torch::Tensor x, y;      ///< [2, 3, 4]
  torch::Tensor positive;  ///< [2, 3, 4], between 0.2 and 3
  torch::Tensor row;       ///< [4]
  torch::Tensor column;    ///< [3, 1]
  torch::Tensor a, b;      ///< [3, 4] and [4, 5]
  torch::Tensor image;     ///< [2, 4, 7, 6]
  torch::Tensor kernel;    ///< [6, 2, 3, 2]
  torch::Tensor special;   ///< not a number, infinities, zeros, and halves of integers
  // Of other types.
  torch::Tensor n, m;  ///< int64 [2, 3, 4], between -9 and 9; m without 0
  torch::Tensor ids;   ///< int64 [2, 3], between 0 and 3
  torch::Tensor mask;  ///< bool [2, 3, 4]
  torch::Tensor few;   ///< int32 [4]
};

struct OperatorCase {
  std::string name;  ///< of the lowering: "aten::add"
  Tensors (*compute)(const Operands& in);
  bool in_all_types = false;  ///< tested in float32 and bfloat16, too
};

std::vector<OperatorCase> elementwise_cases();
std::vector<OperatorCase> activation_cases();
std::vector<OperatorCase> new_tensor_cases();
std::vector<OperatorCase> product_cases();
std::vector<OperatorCase> reduction_cases();
std::vector<OperatorCase> loss_cases();
std::vector<OperatorCase> indexing_cases();
std::vector<OperatorCase> join_cases();
std::vector<OperatorCase> norm_cases();
std::vector<OperatorCase> image_cases();
std::vector<OperatorCase> dropout_cases();

}  // namespace runner::testing
