#include "runner/data/image_data.hpp"

#include <algorithm>
#include <mutex>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/data/cache.hpp"
#include "runner/data/image.hpp"
#include "runner/data/image_augment.hpp"
#include "runner/data/image_folder.hpp"
#include "runner/data/parallel_for.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/table.hpp"
#include "strategies/engine/row_batch.hpp"
#include "strategies/engine/token_batch.hpp"

namespace runner {

namespace {

const std::string skip_hint = "; data.skip_corrupt = true leaves out damaged images";

class ImageDataset final : public Dataset {
 public:
  ImageDataset(Recipe::Data data, ImageFolder folder, const nlohmann::json& learned, bool training, int64_t left_out)
      : data_(std::move(data)),
        folder_(std::move(folder)),
        crop_(learned.is_object() ? learned.value("crop", "") : "centre"),
        augments_(training && data_.augment),
        left_out_(left_out) {
    for (size_t c = 0; c < 3; ++c)
      for (size_t value = 0; value < 256; ++value)
        normalized_[c][value] = static_cast<float>((static_cast<double>(value) / 255 - data_.mean[c]) / data_.std[c]);
  }

  int64_t size() const override { return std::ssize(folder_.entries); }
  std::string describe() const override {
    return fmt::format("{} of {}{}", counted(size(), "image"),
                       folder_.classes.size() == 1 ? "1 class" : fmt::format("{} classes", folder_.classes.size()),
                       left_out_ > 0 ? fmt::format(", without {} that are damaged", left_out_) : "");
  }
  std::vector<BatchField> fields() const override { return {pixels_field(data_.image_size), labels_field()}; }
  int64_t weight(int64_t) const override { return 1; }
  nlohmann::json learned() const override {
    nlohmann::json names = nlohmann::json::object(), indices = nlohmann::json::object();
    for (size_t c = 0; c < folder_.classes.size(); ++c) {
      names[std::to_string(c)] = folder_.classes[c];
      indices[folder_.classes[c]] = c;
    }
    nlohmann::json learned = {{"id2label", names}, {"label2id", indices}};
    if (!crop_.empty()) learned["crop"] = crop_;
    return learned;
  }

  void read(int64_t sample, HostBatch& batch, int64_t row) const override { draw(sample, batch, row, {}); }

  void draw(int64_t sample, HostBatch& batch, int64_t row, const SampleDraw& draw) const override {
    const auto& entry = folder_.entries[static_cast<size_t>(sample)];
    SampleRandom random(draw.seed, draw.epoch, sample);
    const Image seen = seen_image(entry, random);
    const auto values = batch.row<float>(row_field::input, row);
    const auto plane = static_cast<size_t>(data_.image_size * data_.image_size);
    for (size_t at = 0; at < plane; ++at)
      for (size_t c = 0; c < 3; ++c) values[c * plane + at] = normalized_[c][seen.pixels[at * 3 + c]];
    batch.row<int64_t>(row_field::target, row)[0] = entry.label;
  }

 private:
  /// The image that the model sees.
  Image seen_image(const ImageFolder::Entry& entry, SampleRandom& random) const {
    const DecodedImage image = sound_image(entry);
    try {
      if (augments_) return training_image(data_, image, random);
      if (crop_ == "none") return squashed_image(data_, image);
      return validation_image(data_, image, /*to_even=*/crop_ != "centre");
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", entry.path, error.what()));
    }
  }

  /// The advice is for training data, which have labels.
  static DecodedImage sound_image(const ImageFolder::Entry& entry) try {
    return read_image(entry.path);
  } catch (const DamagedImage& error) {
    if (entry.label == ignored_target) throw;
    throw Error(error.code(), error.what() + skip_hint);
  }

  Recipe::Data data_;
  ImageFolder folder_;
  std::string crop_;
  bool augments_;
  int64_t left_out_;
  float normalized_[3][256];
};

bool is_damaged(const std::string& path) try {
  read_image(path);
  return false;
} catch (const DamagedImage&) {
  return true;
}

/// The damaged ones of these images. Throws Error if one cannot be opened, which may pass.
std::vector<std::string> damaged_among(const std::vector<std::string>& paths) {
  std::vector<uint8_t> damaged(paths.size(), 0);
  parallel_for(paths.size(), [&](size_t i) { damaged[i] = is_damaged(paths[i]); });
  std::vector<std::string> list;
  for (size_t i = 0; i < paths.size(); ++i)
    if (damaged[i]) list.push_back(paths[i]);
  return list;
}

std::vector<std::string> paths_in(const ImageFolder& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : folder.entries) paths.push_back(entry.path);
  return paths;
}

/// As damaged_among(), from the cache.
std::set<std::string> corrupt_images(const ImageFolder& folder, const std::string& cache_dir) {
  const auto paths = paths_in(folder);
  const auto name = "damaged-images-" + xxh3_hex(fingerprint(paths)) + ".json";
  const auto cached = make_once(cache_dir, name, [&](CacheWriter& out) {
    const std::string text = nlohmann::json(damaged_among(paths)).dump(1) + "\n";
    out.append(std::as_bytes(std::span(text)));
  });
  return nlohmann::json::parse(read_file(cached)).get<std::set<std::string>>();
}

/// Leaves damaged images out of those that are predicted, with a note that names at most five.
void leave_out_damaged(ImageFolder& folder) {
  auto damaged = damaged_among(paths_in(folder));
  if (damaged.empty()) return;
  std::ranges::sort(damaged);
  std::erase_if(folder.entries, [&](const auto& entry) { return std::ranges::binary_search(damaged, entry.path); });
  if (folder.entries.empty()) throw usage_error("all images are damaged, the first is {}", damaged.front());
  const auto count = counted(std::ssize(damaged), "damaged image");
  const bool more = damaged.size() > 5;
  if (more) damaged.resize(5);
  log::info("note: data.skip_corrupt leaves out {}: {}{}", count, join(damaged, ", "), more ? ", ..." : "");
}

/// The classes of Dataset::learned(), in the order of their indices.
std::vector<std::string> classes_of(const nlohmann::json& learned) {
  std::vector<std::string> classes;
  const auto& names = learned.at("id2label");
  for (size_t c = 0; c < names.size(); ++c) classes.push_back(names.at(std::to_string(c)).get<std::string>());
  return classes;
}

ImageFolder images_of(const Recipe::Data& data, Split split, const nlohmann::json& learned) {
  const bool known = learned.is_object() && learned.contains("id2label");
  if (known && split == Split::validation && !data.validation.empty())
    return list_validation_images(data, classes_of(learned));
  auto folder = list_images(data, split);
  if (folder.entries.empty() || !known) return folder;
  if (const auto before = classes_of(learned); before != folder.classes)
    throw usage_error("data.train has the classes {}, and the checkpoint was trained with {}",
                      join(folder.classes, ", "), join(before, ", "));
  return folder;
}

/// The message about the first damaged one of these images, `first` if it is known, with the names of others. Empty: there is none. Decodes
/// at most 256 images.
std::string damage_among(const std::vector<ImageFolder::Entry>& images, std::string first) {
  constexpr size_t most = 256;
  std::vector<std::string> reasons(std::min(images.size(), most)), others;
  const auto path = [&](size_t i) { return images[i * images.size() / reasons.size()].path; };
  parallel_for(reasons.size(), [&](size_t i) {
    try {
      read_image(path(i));
    } catch (const DamagedImage& error) {
      reasons[i] = error.what();
    }
  });
  for (size_t i = 0; i < reasons.size() && first.empty(); ++i) first = reasons[i];
  for (size_t i = 0; i < reasons.size(); ++i)
    if (!reasons[i].empty() && reasons[i] != first) others.push_back(path(i));
  const auto count = others.size();
  if (count == 0) return first;
  others.resize(std::min(count, and_more_named));
  return fmt::format("{} (and {} more of {} that were looked at: {}{})", first, count, reasons.size(),
                     join(others, ", "), count > others.size() ? " ..." : "");
}

}  // namespace

std::string damaged_sample(const Recipe::Data& data, Split split) {
  const auto damage = damage_among(images_of(data, split, nullptr).entries, "");
  return damage.empty() ? "" : damage + skip_hint;
}

std::string damaged_inputs(const std::vector<std::string>& files, const std::string& first) {
  return damage_among(list_unlabelled_images(files).entries, first);
}

std::vector<BatchField> image_fields(const Recipe::Data& data) {
  std::vector<BatchField> fields = {pixels_field(data.image_size), labels_field()};
  if (data.mixes_images()) fields.insert(fields.end(), {partner_labels_field(), label_share_field()});
  return fields;
}

InputData open_image_inputs(const Recipe::Data& data, const std::vector<std::string>& files,
                            const nlohmann::json& learned) {
  InputData inputs;
  auto list = list_unlabelled_images(files);
  if (data.skip_corrupt) leave_out_damaged(list);
  for (size_t i = 0; i < list.entries.size(); ++i) inputs.names.push_back({{"id", i}, {"file", list.entries[i].path}});
  inputs.samples = std::make_unique<ImageDataset>(data, std::move(list), learned, /*training=*/false, /*left_out=*/0);
  return inputs;
}

std::unique_ptr<Dataset> open_images(const Recipe::Data& data, Split split, const std::string& cache_dir,
                                     const nlohmann::json& learned) {
  auto folder = images_of(data, split, learned);
  if (folder.entries.empty()) return nullptr;
  int64_t left_out = 0;
  if (data.skip_corrupt) {
    const auto damaged = corrupt_images(folder, cache_dir);
    left_out = std::erase_if(folder.entries, [&](const auto& entry) { return damaged.contains(entry.path); });
    if (folder.entries.empty()) throw usage_error("data.train: all images are damaged");
  }
  const bool training = split == Split::train;
  auto images = std::make_unique<ImageDataset>(data, std::move(folder), learned, training, left_out);
  if (!data.mixes_images()) return images;
  return mixed_images(data, std::move(images), training);
}

}  // namespace runner
