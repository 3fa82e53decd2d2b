// preprocessor_config.json of Hugging Face: how images become the pixels of a model.
#pragma once
#include <nlohmann/json.hpp>

#include "runner/config/recipe.hpp"

namespace runner {

/// The part of an image that a model sees: its centre, or all of it with another ratio of width to height.
enum class ImageCrop { centre, none };

/// Takes over size, crop, interpolation, mean and standard deviation, as the image processors of ViT, ConvNext, BiT and CLIP mean them
/// (transformers, models/*/image_processing_*.py). Throws Error(usage) for what has no equal here.
ImageCrop take_image_processor(const nlohmann::json& config, Recipe::Data& data);

/// The preprocessor_config.json of these settings: a BitImageProcessor, which takes the centre.
nlohmann::json image_processor(const Recipe::Data& data);

}  // namespace runner
