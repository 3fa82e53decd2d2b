#include "runner/data/image_augment.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <numbers>

#include "runner/data/image_data.hpp"
#include "strategies/engine/row_batch.hpp"

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

constexpr size_t partner_field = 2, share_field = 3;  // of image_fields()

/// Uniform in (0, 1].
double positive_uniform(SampleRandom& random) { return 1 - random.uniform(); }

double draw_normal(SampleRandom& random) {
  const double radius = std::sqrt(-2 * std::log(positive_uniform(random)));
  return radius * std::cos(2 * std::numbers::pi * random.uniform());
}

/// The logarithm of a number of Gamma(alpha, 1): Marsaglia and Tsang 2000, "A simple method for generating gamma variables", for
/// alpha + 1, times u^(1 / alpha). A small alpha gives numbers that are too small for a double.
double draw_log_gamma(double alpha, SampleRandom& random) {
  const double d = alpha + 1 - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = draw_normal(random), root = 1 + c * x;
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(positive_uniform(random)) < 0.5 * x * x + d - d * v + d * std::log(v))
      return std::log(d * v) + std::log(positive_uniform(random)) / alpha;
  }
}

/// The images of the rows that a thread has read last.
struct LastPair {
  uint64_t owner = 0;  ///< MixedImages::id_; 0: none
  SampleDraw draw = {};
  std::array<int64_t, 2> samples = {};
  HostBatch images = {};
};

class MixedImages final : public Dataset {
 public:
  MixedImages(Recipe::Data data, std::unique_ptr<Dataset> images, bool training)
      : data_(std::move(data)), images_(std::move(images)), training_(training) {}

  int64_t size() const override { return images_->size(); }
  int64_t sample_at(int64_t epoch, int64_t position, const SampleOrderOptions& options) const override {
    return images_->sample_at(epoch, position, options);
  }
  std::string describe() const override { return images_->describe(); }
  std::vector<BatchField> fields() const override { return image_fields(data_); }
  int64_t weight(int64_t sample) const override { return images_->weight(sample); }
  nlohmann::json learned() const override { return images_->learned(); }
  int64_t rows_together() const override { return training_ ? 2 : 1; }

  void read(int64_t sample, HostBatch& batch, int64_t row) const override { unmixed(sample, batch, row, {}); }

  void draw(int64_t sample, HostBatch& batch, int64_t row, const SampleDraw& draw) const override {
    const auto mixing = training_ && draw.neighbour ? draw_mixing(data_, draw) : Mixing{};
    if (mixing.share == 1) return unmixed(sample, batch, row, draw);
    const auto& [own, other] = pair(sample, draw);
    const auto share = static_cast<float>(mixing.share);
    mix(mixing, own.pixels, other.pixels, batch.row<float>(row_field::input, row));
    batch.row<int64_t>(row_field::target, row)[0] = own.label;
    batch.row<int64_t>(partner_field, row)[0] = other.label;
    batch.row<float>(share_field, row)[0] = share;
  }

 private:
  struct Read {
    std::span<const float> pixels;
    int64_t label;
  };

  void unmixed(int64_t sample, HostBatch& batch, int64_t row, const SampleDraw& draw) const {
    images_->draw(sample, batch, row, draw);
    batch.row<int64_t>(partner_field, row)[0] = batch.row<int64_t>(row_field::target, row)[0];
    batch.row<float>(share_field, row)[0] = 1;
  }

  /// The sample and its neighbour.
  std::pair<Read, Read> pair(int64_t sample, const SampleDraw& draw) const {
    static thread_local LastPair last;
    const std::array wanted = {std::min(sample, *draw.neighbour), std::max(sample, *draw.neighbour)};
    const bool known = last.owner == id_ && last.draw.epoch == draw.epoch && last.draw.seed == draw.seed;
    if (!known || last.samples != wanted) {
      last.owner = 0;
      last.images = HostBatch(2, images_->fields());
      for (size_t i = 0; i < 2; ++i) images_->draw(wanted[i], last.images, static_cast<int64_t>(i), draw);
      last.owner = id_;
      last.draw = draw;
      last.samples = wanted;
    }
    const auto image = [](int64_t row) {
      const auto& images = last.images;
      return Read{images.row<float>(row_field::input, row), images.row<int64_t>(row_field::target, row)[0]};
    };
    const int64_t own = sample == wanted[0] ? 0 : 1;
    return {image(own), image(1 - own)};
  }

  /// Pixels are [3, image_size, image_size].
  void mix(const Mixing& mixing, std::span<const float> own, std::span<const float> other, std::span<float> out) const {
    if (!mixing.box) {
      const auto share = static_cast<float>(mixing.share), rest = static_cast<float>(1 - mixing.share);
      for (size_t i = 0; i < out.size(); ++i) out[i] = share * own[i] + rest * other[i];
      return;
    }
    std::ranges::copy(own, out.begin());
    const auto& box = *mixing.box;
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t y = box.top; y < box.top + box.height; ++y) {
        const auto at = static_cast<size_t>((c * data_.image_size + y) * data_.image_size + box.left);
        std::ranges::copy(other.subspan(at, static_cast<size_t>(box.width)), out.begin() + static_cast<ptrdiff_t>(at));
      }
  }

  static uint64_t next_id() {
    static std::atomic<uint64_t> last = 0;
    return ++last;
  }

  Recipe::Data data_;
  std::unique_ptr<Dataset> images_;
  bool training_;
  uint64_t id_ = next_id();
};

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

double draw_beta(double alpha, SampleRandom& random) {
  const double first = draw_log_gamma(alpha, random), second = draw_log_gamma(alpha, random);
  return 1 / (1 + std::exp(second - first));
}

Mixing cut_mixing(int64_t size, double lambda, int64_t x, int64_t y) {
  const auto side = static_cast<int64_t>(static_cast<double>(size) * std::sqrt(1 - lambda));
  const auto begin = [&](int64_t centre) { return std::max<int64_t>(0, centre - side / 2); };
  const auto end = [&](int64_t centre) { return std::min(size, centre + (side + 1) / 2); };
  const ImageBox box{.left = begin(x), .top = begin(y), .width = end(x) - begin(x), .height = end(y) - begin(y)};
  const auto area = static_cast<double>(box.width * box.height), all = static_cast<double>(size * size);
  return {.share = 1 - area / all, .box = box};
}

Mixing draw_mixing(const Recipe::Data& data, const SampleDraw& draw) {
  constexpr int64_t own_numbers = 0x6d6978;  // other numbers than those of the crops
  if (data.mixup_off_epoch > 0 && draw.epoch >= data.mixup_off_epoch) return {};
  const int64_t drawn_for = data.mixup_mode == "elem" ? draw.row : data.mixup_mode == "pair" ? draw.row / 2 : 0;
  SampleRandom random(static_cast<int64_t>(mix64(static_cast<uint64_t>(draw.seed) ^ own_numbers)), draw.epoch,
                      draw.batch + drawn_for);
  if (random.uniform() >= data.mixup_prob) return {};
  const bool both = data.mixup > 0 && data.cutmix > 0;
  const bool cuts = both ? random.uniform() < data.mixup_switch_prob : data.cutmix > 0;
  const double lambda = draw_beta(cuts ? data.cutmix : data.mixup, random);
  if (!cuts) return {.share = lambda};
  const auto coordinate = [&] { return static_cast<int64_t>(random.uniform() * static_cast<double>(data.image_size)); };
  const int64_t x = coordinate(), y = coordinate();
  return cut_mixing(data.image_size, lambda, x, y);
}

std::unique_ptr<Dataset> mixed_images(const Recipe::Data& data, std::unique_ptr<Dataset> images, bool training) {
  return std::make_unique<MixedImages>(data, std::move(images), training);
}

}  // namespace runner
