// The conversion of parameters for the computation, and of gradients before they are clipped: a precision plug-in as strategies see it
// (runner/train/parts/torch_parts.hpp). ParameterSpec::converted says which parameters it is asked for.
#pragma once
#include <string>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/model_spec.hpp"

namespace runner {

/// The elements of a parameter whose gradient a rank has.
struct GradientRange {
  std::string name;
  std::vector<int64_t> shape;  ///< of the parameter
  int64_t offset = 0;          ///< of the first element in the flattened parameter
  double scale = 1;            ///< the gradient is multiplied by it (loss scale)
};

class Conversion {
 public:
  virtual ~Conversion() = default;
  /// The converted parameter `name`, with the shape, dtype and device of `value`; differentiable with respect to it. Called for each block
  /// that uses the parameter, each time that it runs, with the same result for the same values. Must not change `value`.
  virtual torch::Tensor parameter(const torch::Tensor& value, const std::string& name) = 0;
  /// Changes a gradient, 1-d, in place. It was summed over the ranks.
  virtual void gradient(const torch::Tensor& gradient, const GradientRange& range) = 0;
};

/// parameter() of a conversion. Throws Error(run_failed) if it fails, or breaks one of its rules.
torch::Tensor convert(Conversion& conversion, const torch::Tensor& value, const std::string& name);
/// gradient() of a conversion. Throws Error(run_failed) if it fails.
void convert_gradient(Conversion& conversion, const torch::Tensor& gradient, const GradientRange& range);

/// The slots of the parameters that a block uses and that are converted, each once.
std::vector<size_t> converted_slots(const ModelSpec& spec, size_t block);

}  // namespace runner
