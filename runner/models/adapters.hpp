// Fine-tuning as a change of a model's spec: which parameters are trained, and low-rank adapters of matrices.
//
// LoRA (Hu et al. 2021, arXiv:2106.09685): a matrix W [out, in] gets A [rank, in] and B [out, rank], and
//   y = x W^T + scale * dropout(x) A^T B^T.
// DoRA (Liu et al. 2024, arXiv:2402.09353) also trains the lengths m [out] of the rows: with n, the norms of the rows of
// W + scale B A, which counts as constant in backward,
//   y = (m / n) (x W^T + scale x A^T B^T) + bias;
// m starts as the norms of the rows of W. With dropout, as in PEFT: y = x W^T + bias + (m / n - 1) (d W^T) + (m / n) scale d A^T B^T
// for the dropped input d.
// A is drawn uniformly from +-1 / sqrt(in) and B is 0, as in PEFT, so the first step has the loss of the base. Modules find the
// parameters of their adapters in the spec (Linear in layers.hpp), so families do not know them.
#pragma once
#include <string>
#include <vector>

#include "runner/models/models.hpp"

namespace runner {

/// Changes the spec of a base model as the recipe's [fine_tune] says. Targets that match nothing are left out.
void fine_tune(ModelSpec& spec, const Recipe& recipe);

/// The parameters of a matrix's adapter: "blocks.0.attention.wq.weight" -> "blocks.0.attention.wq.lora_a".
struct AdapterNames {
  std::string a, b, magnitude;
};
AdapterNames adapter_names(const std::string& matrix);
/// The matrix of "X.lora_a", "X.lora_b" or "X.lora_magnitude": "X.weight"; empty for other parameters.
std::string adapted_matrix(const std::string& parameter);

/// An entry of fine_tune.targets, modules_to_save or trainable that matches nothing that it could.
struct UnmatchedTarget {
  std::string key;                     ///< "fine_tune.targets"
  std::string name;                    ///< the entry
  std::vector<std::string> available;  ///< names that match something
  std::string reason;                  ///< why a module of that name cannot be meant; or empty
};
/// `base`: the spec of the base model, without adapters.
std::vector<UnmatchedTarget> unmatched_targets(const Recipe& recipe, const ModelSpec& base);

/// The name of a module in Hugging Face's format as PEFT's modules_to_save has it: of a head of several layers, its own name.
std::string saved_module(const std::string& module);

}  // namespace runner
