#include "runner/selection/device_kinds.hpp"

#include <cctype>
#include <cstdio>

#include "runner/base/toml.hpp"
#include "runner/selection/tables.hpp"

namespace runner {

namespace {

constexpr double gigabytes = 1e9;

DeviceKind read_kind(const std::string& name, const toml::table& table) {
  DeviceKind kind;
  kind.name = name;
  for (const auto& word : *table["matches"].as_array()) kind.matches.push_back(word.value<std::string>().value());
  std::sscanf(table["capability"].value<std::string>().value().c_str(), "%d.%d", &kind.major, &kind.minor);
  kind.memory_bytes = static_cast<int64_t>(table["memory_gib"].value<double>().value() * (1LL << 30));
  for (const auto& [dtype, rate] : *table["tflops"].as_table())
    kind.flops[std::string(dtype.str())] = rate.value<double>().value() * 1e12;
  kind.memory_bandwidth = table["memory_gbps"].value<double>().value() * gigabytes;
  kind.link_bandwidth = table["link_gbps"].value<double>().value() * gigabytes;
  kind.network_bandwidth = table["network_gbps"].value<double>().value() * gigabytes;
  kind.source = table["source"].value<std::string>().value();
  return kind;
}

/// Whether `text` contains `word` as a complete word: "NVIDIA A10" is not in "NVIDIA A100", and "H200" is not in
/// "GH200".
bool has_word(const std::string& text, const std::string& word) {
  auto goes_on = [&](size_t at) { return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])); };
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1))
    if (!goes_on(at + word.size()) && (at == 0 || !goes_on(at - 1))) return true;
  return false;
}

}  // namespace

double DeviceKind::peak_flops(DType dtype) const {
  const char* name = dtype == DType::float32    ? "fp32"
                     : dtype == DType::float16  ? "fp16"
                     : dtype == DType::bfloat16 ? "bf16"
                                                : "fp64";
  auto found = flops.find(name);
  return found == flops.end() ? 0 : found->second;
}

const std::vector<DeviceKind>& device_kinds() {
  static const std::vector<DeviceKind> list = [] {
    std::vector<DeviceKind> kinds;
    toml::table table = toml::parse(devices_text, std::string_view("schemas/devices.toml"));
    for (const auto& [name, kind] : table) kinds.push_back(read_kind(std::string(name.str()), *kind.as_table()));
    return kinds;
  }();
  return list;
}

const DeviceKind* find_device_kind(const std::string& name) {
  for (const auto& kind : device_kinds())
    if (kind.name == name) return &kind;
  return nullptr;
}

const DeviceKind* kind_of_device(const std::string& driver_name) {
  for (const auto& kind : device_kinds())
    for (const auto& word : kind.matches)
      if (has_word(driver_name, word)) return &kind;
  return nullptr;
}

int64_t workspace_bytes(const DeviceKind* kind) {
  constexpr int64_t workspaces = 4, lt = 1 << 20;
  const int64_t each = kind && kind->major >= 9 ? 32 << 20 : 2 * (4096 << 10) + 8 * (16 << 10);
  return workspaces * each + lt;
}

}  // namespace runner
