#include "runner/data/image_folder.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/data/image.hpp"
#include "runner/data/order.hpp"
#include "runner/data/source_files.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

fs::file_type type_behind(const fs::path& path) {
  std::error_code ignored;  // a link that leads nowhere is not_found
  return fs::status(path, ignored).type();
}

/// The entries of a folder that are not hidden, sorted.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> list;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (!hidden(entry->path())) list.push_back(entry->path());
  if (error) throw environment_error("cannot read the folder {}: {}", folder.string(), error.message());
  std::ranges::sort(list);
  return list;
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  auto list = entries_of(folder);
  std::erase_if(list, [](const fs::path& path) { return type_behind(path) != fs::file_type::directory; });
  return list;
}

struct FilesBelow {
  std::vector<std::string> images = {};
  std::map<std::string, int64_t> others = {};      ///< numbers of files, by the end of their names
  std::set<std::pair<dev_t, ino_t>> folders = {};  ///< those that have been read
};

void add_files_below(const fs::path& folder, FilesBelow& found) {
  struct stat status {};
  if (::stat(folder.c_str(), &status) == 0 && !found.folders.emplace(status.st_dev, status.st_ino).second) return;
  for (const auto& path : entries_of(folder)) {
    const auto kind = type_behind(path);
    if (kind == fs::file_type::directory)
      add_files_below(path, found);
    else if (kind == fs::file_type::regular && is_image_name(path.filename().string()))
      found.images.push_back(path.string());
    else if (kind == fs::file_type::regular)
      ++found.others[path.has_extension() ? lower(path.extension().string()) : "without an ending"];
    else
      ++found.others["that cannot be opened"];
  }
}

FilesBelow files_below(const fs::path& folder) {
  FilesBelow found;
  add_files_below(folder, found);
  std::ranges::sort(found.images);
  return found;
}

/// "3 files .webp, 1 file .txt".
std::string counted_kinds(const std::map<std::string, int64_t>& kinds) {
  std::vector<std::string> texts;
  for (const auto& [kind, count] : kinds) texts.push_back(fmt::format("{} {}", counted(count, "file"), kind));
  return escape_invalid_utf8(join(texts, ", "));
}

/// Whether there are images of kinds that are not read.
bool has_other_images(const std::map<std::string, int64_t>& kinds) {
  static const std::set<std::string> others = {".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic", ".jp2"};
  return std::ranges::any_of(kinds, [&](const auto& kind) { return others.contains(kind.first); });
}

/// Class names and paths are written to records and checkpoints, which are JSON.
void require_utf8(const std::string& key, const std::string& path) {
  if (first_invalid_utf8(path))
    throw usage_error("{}: the name {} is not UTF-8; rename it", key, escape_invalid_utf8(path));
}

void check_folders(const std::string& key, const std::vector<std::string>& folders) {
  if (folders.empty()) throw usage_error("{} names no folder", key);
  for (const auto& folder : folders) {
    if (!fs::exists(folder))
      throw usage_error("{}: {} does not exist{}", key, folder,
                        key == "data.validation"
                            ? "; instead of it, data.validation_fraction = 0.2 takes a part of the "
                              "images of data.train"
                            : "");
    if (!fs::is_directory(folder))
      throw usage_error("{}: {} is a file; images are read from a folder with a folder for each class", key, folder);
  }
}

/// The images of each class in these folders.
std::map<std::string, std::vector<std::string>> by_class(const std::string& key,
                                                         const std::vector<std::string>& folders,
                                                         std::vector<std::string>& notes) {
  std::map<std::string, std::vector<std::string>> classes;
  std::map<std::string, int64_t> left_out;
  for (const auto& folder : folders)
    for (const auto& path : entries_of(folder)) {
      if (type_behind(path) == fs::file_type::regular && is_image_name(path.filename().string()))
        throw usage_error("{}: {} is not in the folder of a class; a folder for each class contains its images", key,
                          path.string());
      if (type_behind(path) != fs::file_type::directory) continue;
      const auto found = files_below(path);
      const auto kinds = counted_kinds(found.others);
      if (found.images.empty() && has_other_images(found.others))
        throw usage_error("{}: the folder {} has no .jpg, .jpeg or .png files: convert its images ({})", key,
                          path.string(), kinds);
      if (found.images.empty()) {
        notes.push_back(fmt::format("{}: the folder {} has no images{}, so it is no class", key, path.string(),
                                    kinds.empty() ? "" : fmt::format(" ({})", kinds)));
        continue;
      }
      for (const auto& image : found.images) require_utf8(key, image);
      for (const auto& [kind, count] : found.others) left_out[kind] += count;
      auto& list = classes[path.filename().string()];
      list.insert(list.end(), found.images.begin(), found.images.end());
    }
  if (!left_out.empty())
    notes.push_back(
        fmt::format("{}: left out, because images are .jpg, .jpeg and .png files: {}", key, counted_kinds(left_out)));
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
  ImageFolder list;
  const auto training = by_class("data.train", data.train, list.notes);
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
  add_known(list, own ? by_class("data.validation", data.validation, list.notes) : training, "data.train");
  if (!own && data.validation_fraction) keep_random_part(list.entries, *data.validation_fraction, split, "images");
  return list;
}

ImageFolder list_validation_images(const Recipe::Data& data, const std::vector<std::string>& classes) {
  check_folders("data.validation", data.validation);
  ImageFolder list{.classes = classes};
  const auto images = by_class("data.validation", data.validation, list.notes);
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
    const auto images = folder ? files_below(path).images : std::vector<std::string>{path};
    if (images.empty()) throw usage_error("{} has no .jpg, .jpeg or .png files", path);
    for (const auto& image : images) {
      if (first_invalid_utf8(image))
        throw usage_error("the name {} is not UTF-8; rename it", escape_invalid_utf8(image));
      list.entries.push_back({image, ignored_target});
    }
  }
  return list;
}

std::vector<std::string> image_classes(const Recipe::Data& data) { return list_images(data, Split::train).classes; }

}  // namespace runner
