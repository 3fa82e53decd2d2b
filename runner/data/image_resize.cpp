// Resizing of images with antialiasing (Image::crop_and_resize).
#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/data/image.hpp"

namespace runner {

namespace {

constexpr int precision_bits = 32 - 8 - 2;  // of weights; sums of products with 8 bits fit in 32

struct Filter {
  double (*weight)(double x);
  double support;
};

double triangle(double x) { return std::max(0.0, 1.0 - std::abs(x)); }

/// Keys (1981) with a = -0.5.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0.0;
}

struct PlaceRange {
  int64_t begin = 0, end = 0;
};

/// For each wanted output place: the first input place, from `used.begin` on, and the weights of the input places from there on. Without
/// weights, the output is the input.
struct Weights {
  PlaceRange used = {};
  std::vector<int64_t> first = {};
  std::vector<std::vector<int32_t>> values = {};
};

Weights weights_of(int64_t in, int64_t out, const PlaceRange& wanted, const Filter& filter) {
  if (in == out) return {.used = wanted};
  Weights weights;
  const double scale = static_cast<double>(in) / static_cast<double>(out), widened = std::max(scale, 1.0);
  const double support = filter.support * widened;
  std::vector<double> exact;
  for (int64_t place = wanted.begin; place < wanted.end; ++place) {
    const double center = (static_cast<double>(place) + 0.5) * scale;
    const auto begin = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
    const auto end = std::min<int64_t>(in, static_cast<int64_t>(center + support + 0.5));
    double sum = 0;
    exact.clear();
    for (int64_t x = begin; x < end; ++x) {
      exact.push_back(filter.weight((static_cast<double>(x) - center + 0.5) * (1.0 / widened)));
      sum += exact.back();
    }
    auto& values = weights.values.emplace_back();
    for (double weight : exact) {
      if (sum != 0) weight /= sum;
      const double shifted = weight * (1 << precision_bits);
      values.push_back(static_cast<int32_t>(weight < 0 ? shifted - 0.5 : shifted + 0.5));
    }
    if (weights.first.empty()) weights.used.begin = begin;
    weights.first.push_back(begin - weights.used.begin);
    weights.used.end = end;
  }
  return weights;
}

uint8_t rounded(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> precision_bits, 0, 255)); }

constexpr int32_t half = 1 << (precision_bits - 1);

Image blank(int64_t width, int64_t height) {
  return {.width = width, .height = height, .pixels = std::vector<uint8_t>(static_cast<size_t>(width * height * 3))};
}

Image resize_rows(Image image, const Weights& across) {
  if (across.values.empty()) return image;
  const auto width = std::ssize(across.values);
  Image result = blank(width, image.height);
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* from = image.pixels.data() + y * image.width * 3;
    uint8_t* to = result.pixels.data() + y * width * 3;
    for (int64_t x = 0; x < width; ++x) {
      const auto& values = across.values[static_cast<size_t>(x)];
      const uint8_t* first = from + across.first[static_cast<size_t>(x)] * 3;
      int32_t sums[3] = {half, half, half};
      for (size_t i = 0; i < values.size(); ++i)
        for (size_t c = 0; c < 3; ++c) sums[c] += first[i * 3 + c] * values[i];
      for (size_t c = 0; c < 3; ++c) to[x * 3 + static_cast<int64_t>(c)] = rounded(sums[c]);
    }
  }
  return result;
}

Image resize_columns(Image image, const Weights& down) {
  if (down.values.empty()) return image;
  const auto height = std::ssize(down.values);
  Image result = blank(image.width, height);
  const auto bytes = static_cast<size_t>(image.width * 3);
  std::vector<int32_t> sums(bytes);
  for (int64_t y = 0; y < height; ++y) {
    const auto& values = down.values[static_cast<size_t>(y)];
    std::ranges::fill(sums, half);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto row = static_cast<size_t>(down.first[static_cast<size_t>(y)]) + i;
      const uint8_t* from = image.pixels.data() + row * bytes;
      for (size_t k = 0; k < bytes; ++k) sums[k] += from[k] * values[i];
    }
    uint8_t* to = result.pixels.data() + static_cast<size_t>(y) * bytes;
    for (size_t k = 0; k < bytes; ++k) to[k] = rounded(sums[k]);
  }
  return result;
}

Image cropped(const Image& image, const ImageBox& box) {
  Image result = blank(box.width, box.height);
  for (int64_t y = 0; y < box.height; ++y)
    std::copy_n(image.pixels.data() + ((box.top + y) * image.width + box.left) * 3, box.width * 3,
                result.pixels.data() + y * box.width * 3);
  return result;
}

}  // namespace

Image crop_and_resize(const Image& image, const ImageBox& box, int64_t width, int64_t height,
                      Interpolation interpolation, const std::optional<ImageBox>& part) {
  RUNNER_CHECK(box.left >= 0 && box.top >= 0 && box.width > 0 && box.height > 0 &&
                   box.left + box.width <= image.width && box.top + box.height <= image.height && width > 0 &&
                   height > 0,
               "box {}+{} x {}+{} of {} x {}", box.left, box.width, box.top, box.height, image.width, image.height);
  const Filter filter = interpolation == Interpolation::bilinear ? Filter{triangle, 1.0} : Filter{cubic, 2.0};
  const ImageBox wanted = part.value_or(ImageBox{0, 0, width, height});
  RUNNER_CHECK(wanted.left >= 0 && wanted.top >= 0 && wanted.width > 0 && wanted.height > 0 &&
                   wanted.left + wanted.width <= width && wanted.top + wanted.height <= height,
               "part {}+{} x {}+{} of {} x {}", wanted.left, wanted.width, wanted.top, wanted.height, width, height);
  const auto across = weights_of(box.width, width, {wanted.left, wanted.left + wanted.width}, filter);
  const auto down = weights_of(box.height, height, {wanted.top, wanted.top + wanted.height}, filter);
  Image used = cropped(image, {box.left + across.used.begin, box.top + down.used.begin,
                               across.used.end - across.used.begin, down.used.end - down.used.begin});
  // The sums between the passes are rounded and clipped, so the order matters. Pillow 13 made the reference of the test: columns
  // came first where the height shrinks and the width grows.
  if (height < box.height && width > box.width) return resize_rows(resize_columns(std::move(used), down), across);
  return resize_columns(resize_rows(std::move(used), across), down);
}

}  // namespace runner
