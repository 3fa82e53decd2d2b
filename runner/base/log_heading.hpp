// The lines that separate the output of a run's attempts in a log.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace runner {

/// The beginning of each line that separates attempts.
inline constexpr std::string_view log_heading_begin = "---- runner: attempt ";

/// The line of a log before the output of an attempt, without a line break.
std::string log_heading(const std::string& attempt, const std::string& time);
/// The attempt's number in such a line; empty for another line.
std::optional<int64_t> attempt_of_heading(std::string_view line);

}  // namespace runner
