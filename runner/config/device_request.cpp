#include "runner/config/device_request.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

std::optional<DeviceRequest> count_of(int count, std::string& problem) {
  if (count == 0) problem = "0 devices cannot train anything";
  if (count < -1) problem = "a negative number other than -1 (all) is not allowed";
  if (!problem.empty()) return std::nullopt;
  return DeviceRequest{DeviceRequest::Kind::count, count, {}};
}

std::optional<DeviceRequest> indices_of(std::vector<int> indices, std::string& problem) {
  if (indices.empty()) problem = "the list of device indices is empty";
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0) problem = fmt::format("device index {} is negative", indices[i]);
    if (std::count(indices.begin(), indices.end(), indices[i]) > 1)
      problem = fmt::format("device index {} is named twice", indices[i]);
  }
  if (!problem.empty()) return std::nullopt;
  return DeviceRequest{DeviceRequest::Kind::indices, 0, std::move(indices)};
}

std::optional<DeviceRequest> parse_text(std::string_view text, std::string& problem) {
  text = trim(text);
  if (text == "auto") return DeviceRequest{};
  if (text.starts_with("free:")) {
    auto count = parse_number<int>(trim(text.substr(5)));
    if (count && *count > 0) return DeviceRequest{DeviceRequest::Kind::free_count, *count, {}};
    problem = "\"free:N\" needs a positive number of devices";
    return std::nullopt;
  }
  if (auto count = parse_number<int>(text)) return count_of(*count, problem);
  std::vector<int> indices;
  for (const auto& part : split(text, ',')) {
    if (trim(part).empty() && !indices.empty()) continue;  // "1," is the one with index 1
    auto index = parse_number<int>(trim(part));
    if (!index) {
      problem = fmt::format("\"{}\" is not a device string", shortened_text(std::string(text)));
      return std::nullopt;
    }
    indices.push_back(*index);
  }
  return indices_of(std::move(indices), problem);
}

}  // namespace

std::optional<DeviceRequest> parse_devices(const nlohmann::json& value, std::string& problem) {
  problem.clear();
  if (value.is_number_integer()) {
    auto count = parse_number<int>(value.dump());
    if (!count) problem = fmt::format("there are no {} devices", value.dump());
    return count ? count_of(*count, problem) : std::nullopt;
  }
  if (value.is_string()) return parse_text(value.get<std::string>(), problem);
  if (value.is_array()) {
    std::vector<int> indices;
    for (const auto& item : value) {
      auto index = item.is_number_integer() ? parse_number<int>(item.dump()) : std::nullopt;
      if (!index) {
        problem = fmt::format("{} is not a device index", item.dump());
        return std::nullopt;
      }
      indices.push_back(*index);
    }
    return indices_of(std::move(indices), problem);
  }
  problem = fmt::format("{} is not a device string", value.dump());
  return std::nullopt;
}

std::string write_devices(const DeviceRequest& request) {
  using Kind = DeviceRequest::Kind;
  if (request.kind == Kind::automatic) return "\"auto\"";
  if (request.kind == Kind::count) return std::to_string(request.count);
  if (request.kind == Kind::free_count) return fmt::format("\"free:{}\"", request.count);
  return nlohmann::json(request.indices).dump();
}

}  // namespace runner
