#include "runner/logging/mlflow_names.hpp"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"
#include "runner/base/xxh3.hpp"

namespace runner {

namespace {

constexpr size_t longest = 230;  // MLflow allows 250, also for the tag that has the name
const std::string tag_prefix = "runner.metric.";

/// At most `size` bytes, without a part of a character at the end.
std::string cut(std::string name, size_t size) {
  if (name.size() <= size) return name;
  while (size > 0 && unicode::continues(name[size])) --size;
  name.resize(size);
  return name;
}

/// Removes parts at the end that a cut has made "", "." or "..".
std::string without_empty_end(std::string name) {
  while (name.ends_with('/') || name.ends_with("/.") || name.ends_with("/..")) name.resize(name.rfind('/'));
  return name;
}

}  // namespace

std::string mlflow_name(std::string name) {
  for (char& c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && !std::isalnum(byte) && std::string_view("_-. /").find(c) == std::string_view::npos) c = '_';
  }
  // MLflow compares with posixpath.normpath(), and refuses what begins with "..".
  auto parts = split(name, '/');
  for (auto& part : parts)
    if (part.empty() || part == "." || part == "..") part = "_";
  if (parts.front().starts_with("..")) parts.front()[0] = '_';
  return without_empty_end(cut(join(parts, "/"), longest));
}

void MlflowNames::restore(const std::map<std::string, std::string>& tags) {
  for (const auto& [tag, metric] : tags)
    if (tag.starts_with(tag_prefix)) {
      names_[metric] = tag.substr(tag_prefix.size());
      metrics_[names_[metric]] = metric;
    }
}

const std::string& MlflowNames::of(const std::string& metric) {
  const auto [found, is_new] = names_.try_emplace(metric);
  if (!is_new) return found->second;
  std::string name = mlflow_name(metric);
  if (metrics_.contains(name)) {
    constexpr size_t digits = 8;
    name = without_empty_end(cut(name, longest - digits - 1)) + "_" + xxh3_hex(metric).substr(0, digits);
  }
  if (name != metric) new_tags_[tag_prefix + name] = metric;
  metrics_[name] = metric;
  return found->second = name;
}

std::map<std::string, std::string> MlflowNames::take_new_tags() { return std::exchange(new_tags_, {}); }

std::string MlflowNames::metric_of(const std::string& name) const {
  const auto found = metrics_.find(name);
  return found == metrics_.end() ? name : found->second;
}

}  // namespace runner
