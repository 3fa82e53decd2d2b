#include "strategies/pjrt/module_error.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <sstream>

namespace runner::pjrt {

namespace {

/// "-:3:10: error: message" of XLA's parser.
struct Located {
  size_t line = 0, column = 0;
  std::string message;
};

std::optional<size_t> number_before(std::string_view& text, char end) {
  size_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop == text.data() + text.size() || *stop != end) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(stop - text.data()) + 1);
  return value;
}

std::optional<Located> located(std::string_view line) {
  constexpr std::string_view start = "-:", kind = " error: ";
  if (!line.starts_with(start)) return std::nullopt;
  line.remove_prefix(start.size());
  const auto row = number_before(line, ':');
  const auto column = row ? number_before(line, ':') : std::nullopt;
  if (!column || !line.starts_with(kind)) return std::nullopt;
  return Located{*row, *column, std::string(line.substr(kind.size()))};
}

std::string line_of(const std::string& module, size_t number) {
  std::istringstream lines(module);
  std::string line;
  for (size_t i = 0; i < number; ++i)
    if (!std::getline(lines, line)) return "";
  return line;
}

}  // namespace

std::string module_error(const std::string& module, const std::string& problem) {
  std::istringstream lines(problem);
  std::string line;
  while (std::getline(lines, line))
    if (const auto found = located(line)) {
      const std::string caret(std::max<size_t>(found->column, 1) - 1, ' ');
      return fmt::format("XLA refuses line {} of the program: {}\n{:>5} | {}\n      | {}^", found->line, found->message,
                         found->line, line_of(module, found->line), caret);
    }
  return "XLA refuses the program: " + problem;
}

}  // namespace runner::pjrt
