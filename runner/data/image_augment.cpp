#include "runner/data/image_augment.hpp"

#include <algorithm>
#include <cmath>

namespace runner {

namespace {

Interpolation interpolation_of(const Recipe::Data& data) {
  return data.interpolation == "bicubic" ? Interpolation::bicubic : Interpolation::bilinear;
}

void mirror(Image& image) {
  for (int64_t y = 0; y < image.height; ++y) {
    uint8_t* row = image.pixels.data() + y * image.width * 3;
    for (int64_t x = 0; x < image.width / 2; ++x)
      std::swap_ranges(row + x * 3, row + x * 3 + 3, row + (image.width - 1 - x) * 3);
  }
}

void turn_over(Image& image) {
  const int64_t bytes = image.width * 3;
  for (int64_t y = 0; y < image.height / 2; ++y)
    std::swap_ranges(image.pixels.data() + y * bytes, image.pixels.data() + (y + 1) * bytes,
                     image.pixels.data() + (image.height - 1 - y) * bytes);
}

double grey(const uint8_t* pixel) { return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]; }

uint8_t to_byte(double value) { return static_cast<uint8_t>(std::clamp(value + 0.5, 0.0, 255.0)); }

/// Each pixel becomes factor * pixel + (1 - factor) * other(pixel).
template <typename Other>
void blend(Image& image, double factor, Other&& other) {
  for (size_t at = 0; at < image.pixels.size(); at += 3) {
    const double base = other(image.pixels.data() + at);
    for (size_t c = 0; c < 3; ++c) image.pixels[at + c] = to_byte(factor * image.pixels[at + c] + (1 - factor) * base);
  }
}

/// Brightness, contrast and saturation with factors in [1 - strength, 1 + strength] each.
void jitter(Image& image, double strength, SampleRandom& random) {
  const auto factor = [&] { return random.uniform(std::max(0.0, 1 - strength), 1 + strength); };
  blend(image, factor(), [](const uint8_t*) { return 0.0; });
  double mean = 0;
  for (size_t at = 0; at < image.pixels.size(); at += 3) mean += grey(image.pixels.data() + at);
  mean /= static_cast<double>(image.pixels.size() / 3);
  blend(image, factor(), [&](const uint8_t*) { return mean; });
  blend(image, factor(), [](const uint8_t* pixel) { return grey(pixel); });
}

}  // namespace

ImageBox random_box(const Recipe::Data& data, const Image& image, SampleRandom& random) {
  const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  for (int tries = 0; tries < 10; ++tries) {
    const double area = width * height * random.uniform(data.crop_scale[0], data.crop_scale[1]);
    const double ratio = std::exp(random.uniform(std::log(data.crop_ratio[0]), std::log(data.crop_ratio[1])));
    const auto w = std::llround(std::sqrt(area * ratio)), h = std::llround(std::sqrt(area / ratio));
    if (w < 1 || h < 1 || w > image.width || h > image.height) continue;
    const auto top = static_cast<int64_t>(random.uniform() * static_cast<double>(image.height - h + 1));
    const auto left = static_cast<int64_t>(random.uniform() * static_cast<double>(image.width - w + 1));
    return {left, top, w, h};
  }
  int64_t w = image.width, h = image.height;
  if (width / height < data.crop_ratio[0]) h = std::max<int64_t>(1, std::llround(width / data.crop_ratio[0]));
  if (width / height > data.crop_ratio[1]) w = std::max<int64_t>(1, std::llround(height * data.crop_ratio[1]));
  return {(image.width - w) / 2, (image.height - h) / 2, w, h};
}

Image training_image(const Recipe::Data& data, const Image& image, SampleRandom& random) {
  const auto box = random_box(data, image, random);
  Image result = crop_and_resize(image, box, data.image_size, data.image_size, interpolation_of(data));
  if (random.uniform() < data.hflip) mirror(result);
  if (random.uniform() < data.vflip) turn_over(result);
  if (data.color_jitter > 0) jitter(result, data.color_jitter, random);
  return result;
}

int64_t resized_side(const Recipe::Data& data) {
  constexpr double rounding = 1e-6;  // of a crop_pct that is a quotient of two sizes
  return static_cast<int64_t>(std::floor(static_cast<double>(data.image_size) / data.crop_pct + rounding));
}

Image squashed_image(const Recipe::Data& data, const Image& image) {
  return crop_and_resize(image, {0, 0, image.width, image.height}, data.image_size, data.image_size,
                         interpolation_of(data));
}

Image validation_image(const Recipe::Data& data, const Image& image, bool to_even) {
  const int64_t size = data.image_size;
  const ImageBox all{0, 0, image.width, image.height};
  const int64_t shorter = resized_side(data);
  const bool upright = image.height >= image.width;
  const int64_t longer = shorter * std::max(image.width, image.height) / std::min(image.width, image.height);
  const int64_t width = upright ? shorter : longer, height = upright ? longer : shorter;
  const auto half = [&](int64_t margin) { return to_even ? std::lrint(static_cast<double>(margin) / 2) : margin / 2; };
  const ImageBox centre{half(width - size), half(height - size), size, size};
  return crop_and_resize(image, all, width, height, interpolation_of(data), centre);
}

}  // namespace runner
