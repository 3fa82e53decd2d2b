// The common part of the resnet family: the shapes of its layers.
#pragma once
#include <string>
#include <vector>

#include "runner/models/models.hpp"

namespace runner::resnet {

/// A convolution without bias, and the BatchNorm after it.
struct Conv {
  std::string name;  ///< of the module: "stages.0.layers.1.0"; its parts are NAME.conv and NAME.norm
  int64_t in = 0, out = 0, kernel = 1, stride = 1;
  int64_t size_in = 0;  ///< width and height of its input
  int64_t padding() const { return kernel / 2; }
  int64_t size_out() const { return (size_in + 2 * padding() - kernel) / stride + 1; }
  int64_t values_out() const { return out * size_out() * size_out(); }
};

/// A residual layer: the convolutions of its branch, and of its shortcut if that changes the shape.
struct ResidualLayer {
  std::string name;  ///< "stages.0.layers.1"
  std::vector<Conv> branch = {};
  std::vector<Conv> shortcut = {};  ///< none or one
};

Conv stem_of(const Recipe::Model& model);
/// Width and height after the stem's pooling.
int64_t pooled_size(const Recipe::Model& model);
std::vector<ResidualLayer> layers_of(const Recipe::Model& model);

}  // namespace runner::resnet
