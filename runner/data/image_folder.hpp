// The files of an image data set: a folder with a folder of images for each class.
#pragma once
#include <string>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/data/data.hpp"

namespace runner {

struct ImageFolder {
  struct Entry {
    std::string path;
    int64_t label = 0;  ///< index of a class
  };
  std::vector<std::string> classes = {};  ///< in order of their bytes, or of data.labels
  std::vector<Entry> entries = {};        ///< in order of the bytes of their paths, class by class
  std::vector<std::string> notes = {};    ///< what the folders have besides images
};

/// Lists the images of a split. A folder of data.train has a folder for each class. With data.validation_fraction, some images are for
/// validation: they are drawn at random, and always the same. Images in folders below that of a class belong to it; hidden names are
/// left out, links are followed, and a folder that links lead to again is read once. Empty entries: the recipe has no such split. Throws
/// Error(usage) with the recipe's key, also for a name that is not UTF-8, and Error(environment) for a folder that cannot be read.
ImageFolder list_images(const Recipe::Data& data, Split split);

/// The images of data.validation, of classes that are known. Classes that are only numbered ("LABEL_0") have the names of the folders.
ImageFolder list_validation_images(const Recipe::Data& data, const std::vector<std::string>& classes);

/// These files, and the images in these folders, in order, without labels. Throws Error(usage) with the path that is neither.
ImageFolder list_unlabelled_images(const std::vector<std::string>& paths);

/// The classes of the training images.
std::vector<std::string> image_classes(const Recipe::Data& data);

}  // namespace runner
