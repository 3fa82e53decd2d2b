#include "runner/data/plugin/source.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/data/plugin/data_plugin.h"
#include "runner/data/plugin/process.hpp"
#include "runner/data/source_files.hpp"
#include "strategies/engine/row_batch.hpp"

namespace runner {

using nlohmann::json;

namespace {

ElementType element_type_of(uint32_t type) {
  switch (type) {
    case RUNNER_DATA_INT32:
      return ElementType::int32;
    case RUNNER_DATA_UINT8:
      return ElementType::uint8;
    case RUNNER_DATA_BOOL:
      return ElementType::boolean;
    case RUNNER_DATA_FLOAT32:
      return ElementType::float32;
    default:
      return ElementType::int64;
  }
}

/// A row that stands for no sample must not count in the loss.
BatchField field_of(const json& from) {
  BatchField field{.name = from.at("name"),
                   .type = element_type_of(from.at("type")),
                   .row = from.at("row").get<std::vector<int64_t>>()};
  const bool target = field.name == row_field::targets_name || field.name == row_field::labels_name;
  if (target && field.type == ElementType::int64) field.padding = ignored_target;
  if (target && field.type == ElementType::float32) field.padding = std::nan("");
  return field;
}

}  // namespace

const BatchField* PluginContent::find(const std::string& name) const {
  const auto found = std::ranges::find(fields, name, &BatchField::name);
  return found == fields.end() ? nullptr : &*found;
}

PluginSource::PluginSource(const Recipe::Data& data, std::vector<std::string> paths, int64_t seq_len, int64_t processes)
    : start_(
          {{"library", data.plugin.value_or("")}, {"options", data.options}, {"seq_len", seq_len}, {"paths", paths}}),
      paths_(std::move(paths)),
      most_(std::max<int64_t>(1, processes)) {
  if (!data.plugin) throw usage_error("data.format = \"plugin\" needs data.plugin, the library that reads the data");
  if (!fs::is_regular_file(*data.plugin)) {
    const auto near = nearest_file(*data.plugin);
    throw usage_error("data.plugin: there is no file {}{}", *data.plugin, near ? "; did you mean " + *near + "?" : "");
  }
}

PluginSource::~PluginSource() = default;

std::unique_ptr<PluginProcess> PluginSource::take() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !idle_.empty() || running_ < most_; });
    if (!idle_.empty()) {
      auto process = std::move(idle_.back());
      idle_.pop_back();
      return process;
    }
    ++running_;
  }
  try {
    auto process = std::make_unique<PluginProcess>(start_);
    process->ask({.kind = PluginQuestion::Kind::start}, start_.dump());
    return process;
  } catch (...) {
    give_back(nullptr);
    throw;
  }
}

/// Null: the process is gone, and another may be started.
void PluginSource::give_back(std::unique_ptr<PluginProcess> process) {
  const std::lock_guard lock(mutex_);
  if (process)
    idle_.push_back(std::move(process));
  else
    --running_;
  changed_.notify_one();
}

std::string PluginSource::ask(PluginQuestion question) {
  auto process = take();
  try {
    auto answer = process->ask(question);
    give_back(std::move(process));
    return answer;
  } catch (...) {
    process.reset();
    give_back(nullptr);
    throw;
  }
}

PluginContent PluginSource::content(size_t path) {
  const auto text = ask({.kind = PluginQuestion::Kind::describe, .source = static_cast<uint32_t>(path)});
  const auto description = json::parse(text);
  PluginContent content{.count = description.at("count"),
                        .records = description.at("records"),
                        .text = description.at("text"),
                        .weighs = description.at("weighs")};
  for (const auto& field : description.at("fields")) {
    content.fields.push_back(field_of(field));
    content.classes.push_back(field.at("classes"));
  }
  if (content.count == 0)
    throw usage_error("data.plugin: {} has no {}", paths_[path], content.records ? "record" : "sample");
  return content;
}

PluginContent plugin_content(const Recipe::Data& data, int64_t seq_len) {
  const auto& train = data.sources.empty() ? data.train : data.sources.front().train;
  check_source_paths("data.train", train);
  static std::mutex mutex;
  static std::map<std::string, PluginContent> kept;
  const std::lock_guard lock(mutex);
  if (!data.plugin || !fs::is_regular_file(*data.plugin)) PluginSource(data, {}, seq_len, 1);  // throws
  const auto key = fmt::format("{}{}{}", json{data.options, seq_len}.dump(), fingerprint({train.front()}),
                               fingerprint({*data.plugin}));
  if (const auto found = kept.find(key); found != kept.end()) return found->second;
  return kept.emplace(key, PluginSource(data, {train.front()}, seq_len, 1).content(0)).first->second;
}

json plugin_identity(const Recipe::Data& data) {
  static std::mutex mutex;
  static std::map<std::string, std::string> kept;
  const auto state = fingerprint({data.plugin.value()});
  const std::lock_guard lock(mutex);
  auto& digest = kept[state];
  if (digest.empty()) digest = xxh3_hex(MappedFile(*data.plugin).bytes());
  return {{"name", fs::path(*data.plugin).filename().string()}, {"xxh3", digest}, {"options", data.options}};
}

}  // namespace runner
