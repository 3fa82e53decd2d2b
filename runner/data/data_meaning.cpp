#include "runner/data/data_meaning.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/data/cache.hpp"
#include "runner/data/data.hpp"
#include "runner/data/image_folder.hpp"
#include "runner/data/plugin/source.hpp"
#include "runner/data/record_reader.hpp"
#include "runner/data/source_files.hpp"
#include "runner/data/tokenizers.hpp"
#include "runner/pretrained/model_files.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr size_t block_bytes = size_t{64} << 10;
constexpr const char* validation_key = "data.validation";
constexpr const char* targets_key = "the version of targets";

/// The digest of about `budget` bytes of the file, in evenly spaced blocks that include its first and its last byte; of
/// all bytes if the file is not larger.
std::string digest(const MappedFile& file, size_t budget) {
  const auto bytes = file.bytes();
  if (bytes.size() <= budget) return xxh3_hex(bytes);
  const size_t blocks = std::max<size_t>(2, budget / block_bytes);
  Xxh3 hash;
  for (size_t i = 0; i < blocks; ++i) {
    const auto begin = static_cast<size_t>(static_cast<double>(bytes.size() - block_bytes) * static_cast<double>(i) /
                                           static_cast<double>(blocks - 1));
    hash.update(bytes.subspan(begin, std::min(block_bytes, bytes.size() - begin)));
  }
  return hash.hex();
}

json digests(const std::vector<std::string>& files, size_t hashed_bytes) {
  size_t total = 0;
  for (const auto& file : files) total += fs::file_size(file);
  if (total > hashed_bytes) log::info("hashing parts of {} of data; this is done once", format_bytes(total));
  json list = json::array();
  for (const auto& path : files) {
    MappedFile file(path);
    const double share = static_cast<double>(file.bytes().size()) / static_cast<double>(total);
    const size_t budget =
        total <= hashed_bytes
            ? file.bytes().size()
            : std::max(2 * block_bytes, static_cast<size_t>(share * static_cast<double>(hashed_bytes)));
    list.push_back({{"path", path}, {"bytes", file.bytes().size()}, {"xxh3", digest(file, budget)}});
  }
  return list;
}

/// Text that changes with every write to the files, also if size and modification time stay the same.
std::string state_of(const std::vector<std::string>& files) {
  std::string text = fingerprint(files);
  for (const auto& file : files) {
    struct stat status {};
    if (::stat(file.c_str(), &status) != 0) throw environment_error("cannot open {}: {}", file, std::strerror(errno));
    text +=
        fmt::format("{} {} {}.{:09}\n", status.st_dev, status.st_ino, status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
  }
  return text;
}

json cached_digests(const std::vector<std::string>& files, const std::string& cache_dir, size_t hashed_bytes) {
  auto path = make_once(cache_dir, "digests-" + xxh3_hex(state_of(files)) + ".json", [&](CacheWriter& out) {
    const std::string text = digests(files, hashed_bytes).dump(1) + "\n";
    out.append(std::as_bytes(std::span(text)));
  });
  return json::parse(read_file(path));
}

std::string changed_value(const std::string& key, const json& before, const json& now) {
  if (key.starts_with("the images of ")) return key.substr(4) + " were added, removed, renamed, or have other sizes";
  if (key == "the contents of the images")
    for (const auto& [name, digest] : now.items())
      if (before.value(name, "") != digest)
        return fmt::format("the content of an image of the class `{}` has changed", name);
  if (key == "data.tokenizer" && before.value("name", "") == now.value("name", ""))
    return fmt::format("{}: the tokenizer {} has changed", key, now.value("name", ""));
  if (key == "data.plugin" && before.value("options", json()) == now.value("options", json()))
    return fmt::format("{}: the library {} has changed", key, now.value("name", ""));
  if (key == "data.plugin")
    return fmt::format("data.options was {} and is {}", before.value("options", json()).dump(),
                       now.value("options", json()).dump());
  if (key == "data.tokenizer")
    return fmt::format("{} was \"{}\" and is \"{}\"", key, before.value("name", ""), now.value("name", ""));
  auto text = [](const json& value) { return value.is_null() ? "not set" : value.dump(); };
  return fmt::format("{} was {} and is {}", key, text(before), text(now));
}

/// Compares the files of a key in order and by content. Their paths do not matter.
void compare_files(const std::string& key, const json& before, const json& now, std::vector<std::string>& changes) {
  auto path = [](const json& file) { return file.at("path").get<std::string>(); };
  if (before.size() != now.size())
    changes.push_back(fmt::format("the number of files in {} was {} and is {}", key, before.size(), now.size()));
  const size_t both = std::min(before.size(), now.size());
  for (const char* fact : {"bytes", "xxh3"})  // digests of blocks depend on all sizes, so sizes are compared first
    for (size_t i = 0; i < both; ++i)
      if (before[i].at(fact) != now[i].at(fact))
        return changes.push_back(
            path(before[i]) == path(now[i])
                ? fmt::format("the content of {} has changed", path(now[i]))
                : fmt::format("{}: {} has other contents than {}", key, path(now[i]), path(before[i])));
}

/// The settings that determine the documents of records, and the samples that they become.
json record_meaning(const Recipe::Data& data) {
  if (!data.has_records()) return json::object();
  const auto reader = make_record_reader(data, data.train, make_bytes_tokenizer());
  json meaning = reader->settings();
  meaning["data.packing"] = reader->packing();
  meaning["data.too_long"] = data.too_long;
  meaning["data.group_by_length"] = data.group_by_length;
  if (data.labels_texts())
    meaning.update({{"data.target", data.target},
                    {"data.target_type", data.target_type},
                    {"data.missing", data.missing},
                    {"data.missing_values", data.missing_values}});
  return meaning;
}

/// The images to hash: if all have more than `hashed_bytes`, evenly spaced ones that have about this size together.
std::vector<std::string> hashed_images(const ImageFolder& folder, size_t hashed_bytes) {
  double total = 0;
  for (const auto& entry : folder.entries) total += static_cast<double>(fs::file_size(entry.path));
  const double share = std::min(1.0, static_cast<double>(hashed_bytes) / std::max(1.0, total));
  std::vector<std::string> files;
  for (size_t i = 0; i < folder.entries.size(); ++i)
    if (const auto before = static_cast<double>(i);
        fs::file_size(folder.entries[i].path) > 0 && std::floor((before + 1) * share) > std::floor(before * share))
      files.push_back(folder.entries[i].path);
  return files;
}

/// The digest of the images of each class, in order.
json image_digests(const ImageFolder& folder, const std::string& cache_dir, size_t hashed_bytes) {
  const auto files = hashed_images(folder, hashed_bytes);
  std::map<std::string, json> digests;
  if (!files.empty())
    for (const auto& file : cached_digests(files, cache_dir, hashed_bytes)) digests[file.at("path")] = file.at("xxh3");
  std::vector<std::string> lists(folder.classes.size());
  for (const auto& entry : folder.entries)
    if (const auto found = digests.find(entry.path); found != digests.end())
      lists[static_cast<size_t>(entry.label)] += found->second.get<std::string>() + "\n";
  json of_classes = json::object();
  for (size_t i = 0; i < lists.size(); ++i) of_classes[folder.classes[i]] = xxh3_hex(lists[i]);
  return of_classes;
}

/// Whether a post-processor of tokenizer.json takes white space out of the bytes of tokens.
bool trims_offsets(const json& processor) {
  if (!processor.is_object()) return false;
  const auto type = processor.value("type", json());
  if (type == "Sequence") return std::ranges::any_of(processor.value("processors", json::array()), trims_offsets);
  return (type == "ByteLevel" || type == "RobertaProcessing") && processor.value("trim_offsets", json()) != false;
}

/// The keys that determine how images are changed.
json image_keys(const Recipe::Data& data) {
  return {{"data.augment", data.augment},
          {"data.crop_scale", data.crop_scale},
          {"data.crop_ratio", data.crop_ratio},
          {"data.hflip", data.hflip},
          {"data.vflip", data.vflip},
          {"data.color_jitter", data.color_jitter},
          {"data.interpolation", data.interpolation},
          {"data.mean", data.mean},
          {"data.std", data.std},
          {"data.skip_corrupt", data.skip_corrupt},
          {"data.mixup", data.mixup},
          {"data.cutmix", data.cutmix},
          {"data.mixup_prob", data.mixup_prob},
          {"data.mixup_switch_prob", data.mixup_switch_prob},
          {"data.mixup_mode", data.mixup_mode},
          {"data.mixup_off_epoch", data.mixup_off_epoch}};
}

/// An image in a list that changes with names and sizes.
std::string image_line(const std::string& class_name, const fs::path& path) {
  return fmt::format("{}/{} {}\n", class_name, path.filename().string(), fs::file_size(path));
}

/// `meaning` with the facts that determine the pixels of images: the list of files with their sizes, their contents, and the changes.
json image_meaning(const Recipe::Data& data, json meaning, const std::string& cache_dir, size_t hashed_bytes) {
  const auto folder = list_images(data, Split::train);
  std::string list;
  for (const auto& entry : folder.entries)
    list += image_line(folder.classes[static_cast<size_t>(entry.label)], entry.path);
  meaning["the images of data.train"] = xxh3_hex(list);
  meaning["the contents of the images"] = image_digests(folder, cache_dir, hashed_bytes);
  meaning.update(image_keys(data));
  return meaning;
}

/// The keys that determine the numbers of a table's rows.
json table_keys(const Recipe::Data& data) {
  return {{"data.target", data.target},
          {"data.target_type", data.target_type},
          {"data.drop", data.drop},
          {"data.categorical", data.categorical},
          {"data.missing", data.missing},
          {"data.missing_values", data.missing_values},
          {"data.standardize", data.standardize},
          {"data.standardize_target", data.standardize_target.value_or(data.standardize)},
          {"data.delimiter", data.delimiter},
          {"data.decimal", data.decimal}};
}

json source_meaning(const DataSource& source) {
  json meaning = {{"name", source.name}, {"files", source.data.train.size()}, {"epochs", source.epochs}};
  if (source.weight) meaning["weight"] = *source.weight;
  if (source.format) meaning["format"] = *source.format;
  const auto records = record_meaning(source.data);
  for (const auto& [key, value] : records.items()) meaning[key] = value;
  return meaning;
}

}  // namespace

json data_meaning(const Recipe& recipe, int64_t global_batch_size, const std::string& cache_dir, size_t hashed_bytes) {
  const auto& data = recipe.data;
  json meaning = {{"data.seq_len", data.seq_len.value_or(1)},
                  {"data.shuffle", data.shuffle},
                  {"data.format", data.format},
                  {"data.validation_fraction", data.validation_fraction ? json(*data.validation_fraction) : json()},
                  {"global_batch_size", global_batch_size}};
  if (needs_tokenizing(data)) meaning["data.streaming"] = data.streaming;
  if (data.shuffle) meaning["run.seed"] = recipe.run.seed;
  std::vector<std::string> files;
  for (const auto& source : sources_of(data)) {
    const auto own = data.is_plugin() ? files_of(source.data.train) : source.data.train;
    files.insert(files.end(), own.begin(), own.end());
    if (source.data.has_records() && !data.labels_texts()) meaning[targets_key] = targets_version;
    if (source.name.empty())
      meaning.update(record_meaning(source.data));
    else
      meaning["data.sources"].push_back(source_meaning(source));
  }
  if (data.is_images()) return image_meaning(data, std::move(meaning), cache_dir, hashed_bytes);
  meaning["files"] = cached_digests(files, cache_dir, hashed_bytes);
  if (!data.sources.empty()) {
    meaning["data.temperature"] = data.temperature;
    meaning["data.mixture_end"] = data.mixture_end;
  }
  if (data.is_plugin()) meaning["data.plugin"] = plugin_identity(data);
  if (data.masks_tokens()) meaning["data.mlm_probability"] = data.mlm_probability;
  if (data.is_table()) {
    meaning.update(table_keys(data));
  } else if (data.gives_samples()) {
    return meaning;
  } else if (data.format == "bin") {
    meaning["data.token_dtype"] = data.token_dtype;
  } else {
    meaning["data.tokenizer"] = {{"name", data.tokenizer}};
    if (data.tokenizer != "bytes") meaning["data.tokenizer"]["xxh3"] = open_tokenizer(data, cache_dir)->hash();
  }
  return meaning;
}

json validation_meaning(const Recipe::Data& data, const std::string& cache_dir, size_t hashed_bytes) {
  if (data.is_images() && !data.validation.empty()) {
    std::string list;
    for (const auto& entry : list_unlabelled_images(data.validation).entries)
      list += image_line(fs::path(entry.path).parent_path().filename().string(), entry.path);
    return {{"the images of data.validation", xxh3_hex(list)}};
  }
  std::vector<std::string> files;
  for (const auto& source : sources_of(data))
    for (const auto& file : files_of(source.data.validation)) files.push_back(file);
  return files.empty() ? json::object() : json{{validation_key, cached_digests(files, cache_dir, hashed_bytes)}};
}

std::string older_targets_note(const json& before, const json& now, const Recipe::Data& data,
                               const std::string& cache_dir) {
  if (!now.contains(targets_key) || before.contains(targets_key)) return "";
  const auto files = open_tokenizer(data, cache_dir)->files();
  if (files.empty() || files.front().name != "tokenizer.json") return "";
  if (!trims_offsets(json::parse(read_model_file(files.front().path)).value("post_processor", json()))) return "";
  return "an older runner may have left tokens of white space in records without a target, because the tokenizer trims "
         "their offsets (trim_offsets); from here on they are learned, which changes the loss";
}

json weight_digests(const std::string& init_from, const std::string& cache_dir) {
  auto files = files_of({init_from});
  std::erase_if(files, [](const std::string& file) { return fs::file_size(file) == 0; });
  return files.empty() ? json::array() : cached_digests(files, cache_dir, size_t{64} << 20);
}

json short_meaning(json meaning) {
  constexpr size_t files_max = 1000;
  const auto files = meaning.find("files");
  if (files == meaning.end() || files->size() <= files_max) return meaning;
  int64_t bytes = 0;
  std::string list;
  for (const auto& file : *files) {
    bytes += file.at("bytes").get<int64_t>();
    list += fmt::format("{} {}\n", file.at("bytes").get<int64_t>(), file.at("xxh3").get<std::string>());
  }
  meaning["files"] = {{"count", files->size()}, {"bytes", bytes}, {"xxh3", xxh3_hex(list)}};
  return meaning;
}

bool changes_meaning(const Recipe& recipe, const std::string& key) {
  static const std::vector<std::string> keys = {"data.train",
                                                "data.format",
                                                "data.seq_len",
                                                "data.shuffle",
                                                "data.streaming",
                                                "data.tokenizer",
                                                "data.tokenizer_vocab_size",
                                                "data.token_dtype",
                                                "data.validation_fraction",
                                                "data.layout",
                                                "data.columns",
                                                "data.packing",
                                                "data.too_long",
                                                "data.chat_template",
                                                "data.train_on",
                                                "data.train_on_input",
                                                "data.sources",
                                                "data.temperature",
                                                "data.mixture_end",
                                                "data.group_by_length",
                                                "data.objective",
                                                "data.mlm_probability",
                                                "data.plugin",
                                                "data.options"};
  if (key == "run.seed") return recipe.data.shuffle;
  return std::ranges::find(keys, key) != keys.end() || table_keys(recipe.data).contains(key) ||
         image_keys(recipe.data).contains(key);
}

std::vector<std::string> changed_meaning(const json& before, const json& now) {
  std::vector<std::string> changes;
  for (const auto& [key, value] : now.items()) {
    const auto old = before.find(key);
    if (key == "global_batch_size" || key == targets_key || old == before.end() || *old == value) continue;
    if (key == "files" && (old->is_object() || value.is_object()))
      changes.push_back("the contents of the files in data.train have changed");
    else if (key == "files" || key == validation_key)
      compare_files(key == "files" ? "data.train" : key, *old, value, changes);
    else
      changes.push_back(changed_value(key, *old, value));
  }
  return changes;
}

}  // namespace runner
