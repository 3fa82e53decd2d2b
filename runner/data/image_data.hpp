// Data sets of image files: a sample is the pixels of an image and its class (row_batch.hpp).
#pragma once
#include <memory>

#include "runner/data/data.hpp"

namespace runner {

/// Opens images as open_dataset() does. `learned`: that of a checkpoint, whose classes must be those of the folders; null: none. With it,
/// the folders of data.validation are read without those of data.train. Its "crop" is "none" if the complete image is resized
/// (squashed_image()), and "centre" for validation_image(); checkpoints without it were validated with `to_even`.
/// With data.skip_corrupt, all images are decoded once, and `cache_dir` keeps the names of the damaged ones.
std::unique_ptr<Dataset> open_images(const Recipe::Data& data, Split split, const std::string& cache_dir,
                                     const nlohmann::json& learned = nullptr);

/// A sentence on damaged images among some of a split, of which it decodes at most 256; empty: there is none.
std::string damaged_sample(const Recipe::Data& data, Split split);
/// `first`, the message about a damaged image of some files or folders, with the names of others as in damaged_sample().
std::string damaged_inputs(const std::vector<std::string>& files, const std::string& first);

/// The fields of open_images(): pixels and class; with data.mixup or data.cutmix also those of rows that are mixed.
std::vector<BatchField> image_fields(const Recipe::Data& data);

/// Opens image files, and all images in folders, as open_inputs() does. Their names have "file".
InputData open_image_inputs(const Recipe::Data& data, const std::vector<std::string>& files,
                            const nlohmann::json& learned);

}  // namespace runner
