#include "runner/data/image_folder.hpp"

#include <algorithm>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/data/image.hpp"
#include "runner/data/random_split.hpp"
#include "runner/data/source_files.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> list;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory() && !hidden(entry.path())) list.push_back(entry.path());
  std::ranges::sort(list);
  return list;
}

std::vector<std::string> images_below(const fs::path& folder) {
  std::vector<std::string> list;
  const auto follow = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator entry(folder, follow), end; entry != end; ++entry) {
    if (hidden(entry->path())) {
      if (entry->is_directory()) entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && is_image_name(entry->path().filename().string())) {
      list.push_back(entry->path().string());
    }
  }
  std::ranges::sort(list);
  return list;
}

void check_folders(const std::string& key, const std::vector<std::string>& folders) {
  if (folders.empty()) throw usage_error("{} names no folder", key);
  for (const auto& folder : folders) {
    if (!fs::exists(folder)) throw usage_error("{}: {} does not exist", key, folder);
    if (!fs::is_directory(folder))
      throw usage_error("{}: {} is a file; images are read from a folder with a folder for each class", key, folder);
  }
}

/// The images of each class in these folders.
std::map<std::string, std::vector<std::string>> by_class(const std::string& key,
                                                         const std::vector<std::string>& folders) {
  std::map<std::string, std::vector<std::string>> classes;
  for (const auto& folder : folders) {
    for (const auto& of_class : folders_in(folder)) {
      const auto images = images_below(of_class);
      if (images.empty()) continue;
      auto& list = classes[of_class.filename().string()];
      list.insert(list.end(), images.begin(), images.end());
    }
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.is_regular_file() && is_image_name(entry.path().filename().string()))
        throw usage_error("{}: {} is not in the folder of a class; a folder for each class contains its images", key,
                          entry.path().string());
  }
  if (classes.empty()) throw usage_error("{}: {} has no folder with .jpg, .jpeg or .png files", key, folders.front());
  return classes;
}

/// Refuses one class, and folders of splits that were taken for classes.
void check_classes(const std::string& folder, const std::vector<std::string>& classes) {
  static const std::vector<std::string> splits = {"train", "training", "val", "valid", "validation", "test"};
  const auto is_split = [](const std::string& name) { return std::ranges::find(splits, name) != splits.end(); };
  const auto split = std::ranges::find_if(classes, is_split);
  const bool all_splits = std::ranges::all_of(classes, is_split);
  if (classes.size() > 1 && !all_splits) return;
  const auto hint = all_splits && !folders_in(fs::path(folder) / *split).empty()
                        ? fmt::format("; did you mean {}?", (fs::path(folder) / *split).string())
                        : "";
  throw usage_error("data.train: the folders in {} are the classes, and a model needs two of them; found: {}{}", folder,
                    join(classes, ", "), hint);
}

/// Adds the images of folders, whose classes are among those of `list`.
void add_known(ImageFolder& list, const std::map<std::string, std::vector<std::string>>& by_class,
               const std::string& owner) {
  for (const auto& [name, images] : by_class) {
    const auto found = std::ranges::find(list.classes, name);
    if (found == list.classes.end()) {
      const auto near = nearest(name, list.classes);
      throw usage_error("data.validation: the class `{}` is not in {}{}; it has {}", name, owner,
                        near ? fmt::format(" (did you mean `{}`?)", *near) : "", join(list.classes, ", "));
    }
    for (const auto& image : images) list.entries.push_back({image, found - list.classes.begin()});
  }
}

}  // namespace

ImageFolder list_images(const Recipe::Data& data, Split split) {
  check_folders("data.train", data.train);
  const auto training = by_class("data.train", data.train);
  ImageFolder list;
  for (const auto& [name, images] : training) list.classes.push_back(name);
  check_classes(data.train.front(), list.classes);
  if (!data.labels.empty()) {
    if (!std::ranges::is_permutation(data.labels, list.classes))
      throw usage_error("model.labels: data.train has the classes {}, and here are {}", join(list.classes, ", "),
                        join(data.labels, ", "));
    list.classes = data.labels;
  }
  const bool own = split == Split::validation && !data.validation.empty();
  if (own) check_folders("data.validation", data.validation);
  if (split == Split::validation && !own && !data.validation_fraction) return list;
  add_known(list, own ? by_class("data.validation", data.validation) : training, "data.train");
  if (!own && data.validation_fraction) keep_random_part(list.entries, *data.validation_fraction, split, "images");
  return list;
}

ImageFolder list_validation_images(const Recipe::Data& data, const std::vector<std::string>& classes) {
  check_folders("data.validation", data.validation);
  const auto images = by_class("data.validation", data.validation);
  ImageFolder list{.classes = classes};
  bool numbered = images.size() == classes.size();
  for (size_t c = 0; c < classes.size(); ++c) numbered = numbered && classes[c] == fmt::format("LABEL_{}", c);
  if (numbered) {
    list.classes.clear();
    for (const auto& [name, of_class] : images) list.classes.push_back(name);
  }
  add_known(list, images, "the model");
  return list;
}

ImageFolder list_unlabelled_images(const std::vector<std::string>& paths) {
  ImageFolder list;
  for (const auto& path : paths) {
    if (!fs::exists(path)) {
      const auto near = nearest_file(path);
      throw usage_error("{} does not exist{}", path, near ? fmt::format("; did you mean {}?", *near) : "");
    }
    const bool folder = fs::is_directory(path);
    if (!folder && !is_image_name(fs::path(path).filename().string()))
      throw usage_error("{}: an image is a file .jpg, .jpeg or .png", path);
    const auto images = folder ? images_below(path) : std::vector<std::string>{path};
    if (images.empty()) throw usage_error("{} has no .jpg, .jpeg or .png files", path);
    for (const auto& image : images) list.entries.push_back({image, ignored_target});
  }
  return list;
}

std::vector<std::string> image_classes(const Recipe::Data& data) { return list_images(data, Split::train).classes; }

}  // namespace runner
