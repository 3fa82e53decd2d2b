#include "runner/base/outside_fault.hpp"

#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runner/base/text.hpp"

namespace runner {

namespace {

/// Numbers of the JSON library's exceptions.
constexpr int number_overflow = 406, not_utf8 = 316;

/// "/data/loop and /data/there: Too many levels of symbolic links"
std::string of_paths(const std::filesystem::filesystem_error& error) {
  std::string paths = escape_invalid_utf8(error.path1().string());
  if (!error.path2().empty()) paths += " and " + escape_invalid_utf8(error.path2().string());
  return fmt::format("{}: {}", paths.empty() ? "a file" : paths, error.code().message());
}

}  // namespace

std::optional<Error> outside_fault(const std::exception& error) {
  if (const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return environment_error("{}", of_paths(*file));
  if (dynamic_cast<const std::system_error*>(&error)) return environment_error("the system refuses: {}", error.what());
  if (dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const std::length_error*>(&error))
    return environment_error("there is not enough memory for what was asked ({})", error.what());
  const auto* json = dynamic_cast<const nlohmann::json::exception*>(&error);
  if (json && json->id == not_utf8)
    return usage_error("a name or a text is not UTF-8 ({}): rename the file, or write the text in UTF-8", error.what());
  if (dynamic_cast<const nlohmann::json::parse_error*>(json) || (json && json->id == number_overflow))
    return environment_error("a file with JSON is damaged: {}", error.what());
  return std::nullopt;
}

}  // namespace runner
