#include "runner/base/log_heading.hpp"

#include <fmt/format.h>

#include <charconv>

namespace runner {

namespace {
constexpr std::string_view heading_end = " ----";
}  // namespace

std::string log_heading(const std::string& attempt, const std::string& time) {
  return fmt::format("{}{}, {}{}", log_heading_begin, attempt, time, heading_end);
}

std::optional<int64_t> attempt_of_heading(std::string_view line) {
  int64_t attempt = 0;
  if (!line.starts_with(log_heading_begin) || !line.ends_with(heading_end)) return std::nullopt;
  const auto* first = line.data() + log_heading_begin.size();
  const auto [last, failed] = std::from_chars(first, line.data() + line.size(), attempt);
  return failed == std::errc() && *last == ',' ? std::optional(attempt) : std::nullopt;
}

}  // namespace runner
