#include "runner/data/image_processor.hpp"

#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/data/image_augment.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr int pillow_bilinear = 2, pillow_bicubic = 3;

Error unsupported(const std::string& key, const json& value, const std::string& allowed) {
  return usage_error("preprocessor_config.json: {} = {} is not supported; {}", key, value.dump(), allowed);
}

/// {"height": n, "width": n} or n. Throws Error(usage) unless both are equal.
int64_t square_side(const std::string& key, const json& size) {
  if (size.is_number_integer()) return size;
  const auto height = size.value("height", int64_t{0}), width = size.value("width", int64_t{0});
  if (height < 1 || height != width) throw unsupported(key, size, "images are square");
  return height;
}

/// The shorter side is resized to `shorter`, and the centre is taken.
ImageCrop take_centre(Recipe::Data& data, int64_t shorter, int64_t side) {
  if (side > shorter)
    throw usage_error("preprocessor_config.json: the crop of {} is larger than the resized image of {}", side, shorter);
  data.image_size = side;
  data.crop_pct = static_cast<double>(side) / static_cast<double>(shorter);
  return ImageCrop::centre;
}

ImageCrop take_size(const json& config, Recipe::Data& data) {
  const json size = config.value("size", json(224));
  const bool by_side = size.is_object() && size.contains("shortest_edge");
  const bool crops = config.value("do_center_crop", false) && config.contains("crop_size");
  if (config.contains("crop_pct")) {  // ConvNext
    const int64_t side = by_side ? size.at("shortest_edge").get<int64_t>() : square_side("size", size);
    constexpr int64_t not_cropped = 384;
    data.image_size = side;
    if (side >= not_cropped) return ImageCrop::none;
    data.crop_pct = config.at("crop_pct").get<double>();
    return ImageCrop::centre;
  }
  if (crops && (by_side || size.is_number_integer()))
    return take_centre(data, by_side ? size.at("shortest_edge").get<int64_t>() : size.get<int64_t>(),
                       square_side("crop_size", config.at("crop_size")));
  if (by_side || crops)
    throw unsupported("size", size, "images must become squares, with do_center_crop and crop_size");
  data.image_size = square_side("size", size);
  return ImageCrop::none;
}

void take_interpolation(const json& config, Recipe::Data& data) {
  const auto resample = config.value("resample", pillow_bilinear);
  if (resample != pillow_bilinear && resample != pillow_bicubic)
    throw unsupported("resample", resample, "2 (bilinear) and 3 (bicubic) are");
  data.interpolation = resample == pillow_bicubic ? "bicubic" : "bilinear";
}

void take_normalization(const json& config, Recipe::Data& data) {
  constexpr double bytes_to_one = 1.0 / 255;
  const auto factor = config.value("rescale_factor", bytes_to_one);
  if (!config.value("do_rescale", true) || std::abs(factor - bytes_to_one) > 1e-9)
    throw unsupported("rescale_factor", factor, "pixels are divided by 255");
  data.mean = {0, 0, 0};
  data.std = {1, 1, 1};
  if (!config.value("do_normalize", true)) return;
  data.mean = config.value("image_mean", std::vector<double>{0.5, 0.5, 0.5});
  data.std = config.value("image_std", std::vector<double>{0.5, 0.5, 0.5});
  if (data.mean.size() != 3 || data.std.size() != 3)
    throw unsupported("image_mean", config.value("image_mean", json()), "images have three channels");
}

}  // namespace

ImageCrop take_image_processor(const json& config, Recipe::Data& data) {
  try {
    if (!config.value("do_resize", true)) throw unsupported("do_resize", false, "images are resized");
    take_interpolation(config, data);
    take_normalization(config, data);
    return take_size(config, data);
  } catch (const json::exception& error) {
    throw usage_error("preprocessor_config.json: a value has the wrong type: {}", error.what());
  }
}

json image_processor(const Recipe::Data& data) {
  json config = {
      {"do_resize", true},    {"resample", data.interpolation == "bicubic" ? pillow_bicubic : pillow_bilinear},
      {"do_rescale", true},   {"rescale_factor", 1.0 / 255},
      {"do_normalize", true}, {"image_mean", data.mean},
      {"image_std", data.std}};
  const json square = {{"height", data.image_size}, {"width", data.image_size}};
  config.update({{"image_processor_type", "BitImageProcessor"},
                 {"do_convert_rgb", true},
                 {"size", {{"shortest_edge", resized_side(data)}}},
                 {"do_center_crop", true},
                 {"crop_size", square}});
  return config;
}

}  // namespace runner
