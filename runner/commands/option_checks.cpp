#include "runner/commands/option_checks.hpp"

#include <charconv>

namespace runner {

CLI::Validator at_least_one() {
  auto problem = [](const std::string& text) {
    int64_t value = 0;
    auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool number = failed == std::errc() && end == text.data() + text.size();
    return number && value < 1 ? "must be at least 1, not " + text
                               : std::string();  // CLI11 refuses what is not a number
  };
  return CLI::Validator(problem, "POSITIVE");
}

}  // namespace runner
