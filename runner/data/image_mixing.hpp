// Mixup and CutMix: training images that are mixed from two, with the labels of both.
//
// Zhang et al. 2018, arXiv:1710.09412, and Yun et al. 2019, arXiv:1905.04899, with the settings of timm/data/mixup.py. An image is mixed
// with its neighbour in the global batch (SampleDraw::neighbour), and what is drawn depends on seed, epoch and place in it. So ranks and
// micro-batches do not matter, and most neighbours are read by the same thread, which decodes each file once.
#pragma once
#include <memory>

#include "runner/data/data.hpp"
#include "runner/data/image.hpp"
#include "runner/data/image_augment.hpp"

namespace runner {

/// How an image is mixed with another one.
struct Mixing {
  double share = 1;  ///< of the label of the first image; 1: nothing is mixed
  /// CutMix: the part that the other image replaces. Without it, pixels are share * first + (1 - share) * other.
  std::optional<ImageBox> box = {};
};

/// A number of Beta(alpha, alpha), alpha > 0.
double draw_beta(double alpha, SampleRandom& random);

/// The box of CutMix around pixel (x, y) of an image [size, size]. Its sides are sqrt(1 - lambda) of the image's, rounded down, and it
/// is cut at the border. The share is that of the pixels outside.
Mixing cut_mixing(int64_t size, double lambda, int64_t x, int64_t y);

/// The random mixing of a row of a global batch.
Mixing draw_mixing(const Recipe::Data& data, const SampleDraw& draw);

/// The data set with image_fields(). Rows are mixed only by draw() and if `training`.
std::unique_ptr<Dataset> mixed_images(const Recipe::Data& data, std::unique_ptr<Dataset> images, bool training);

}  // namespace runner
