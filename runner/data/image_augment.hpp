// Which part of an image a model sees, and how it is changed in training: a pure function of (seed, epoch, sample).
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "runner/base/hash.hpp"
#include "runner/config/recipe.hpp"
#include "runner/data/data.hpp"
#include "runner/data/image.hpp"

namespace runner {

/// Random numbers of one sample in one epoch.
class SampleRandom {
 public:
  SampleRandom(int64_t seed, int64_t epoch, int64_t sample)
      : key_(mix64(mix64(mix64(static_cast<uint64_t>(seed)) + static_cast<uint64_t>(epoch)) +
                   static_cast<uint64_t>(sample))) {}
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(mix64(key_ + ++drawn_) >> 11) * 0x1p-53; }
  double uniform(double low, double high) { return low + (high - low) * uniform(); }

 private:
  uint64_t key_, drawn_ = 0;
};

/// A random box as torchvision's RandomResizedCrop draws it: in 10 tries an area of data.crop_scale times that of the image and
/// a ratio of width to height between the values of data.crop_ratio, uniform in its logarithm; if none fits, the largest centred
/// box with an allowed ratio.
ImageBox random_box(const Recipe::Data& data, const Image& image, SampleRandom& random);

/// The image of a training sample, data.image_size wide and high: a random box, mirrored with probability data.hflip (left and right)
/// and data.vflip (top and bottom), and with data.color_jitter other brightness, contrast and saturation.
Image training_image(const Recipe::Data& data, const Image& image, SampleRandom& random);

/// The size of the shorter side of a validation image before its centre is taken: image_size / crop_pct, rounded down.
int64_t resized_side(const Recipe::Data& data);

/// The complete image, data.image_size wide and high.
Image squashed_image(const Recipe::Data& data, const Image& image);

/// The image of a validation sample: the shorter side becomes image_size / crop_pct, and the centre is taken. Half of an odd margin is
/// rounded down, as in transformers (image_transforms.py, center_crop), or with `to_even` to the even number, as in torchvision.
Image validation_image(const Recipe::Data& data, const Image& image, bool to_even = false);

// Mixup and CutMix: training images that are mixed from two, with the labels of both.
//
// Zhang et al. 2018, arXiv:1710.09412, and Yun et al. 2019, arXiv:1905.04899, with the settings of timm/data/mixup.py. An image is mixed
// with its neighbour in the global batch (SampleDraw::neighbour), and what is drawn depends on seed, epoch and place in it. So ranks and
// micro-batches do not matter, and most neighbours are read by the same thread, which decodes each file once.

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
