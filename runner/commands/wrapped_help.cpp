#include "runner/commands/wrapped_help.hpp"

#include <unistd.h>

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

namespace {

/// Breaks the lines of `text` at spaces. Spaces inside shorter lines stay.
std::string wrapped(const std::string& text, size_t width) {
  std::string out;
  for (const auto& line : split(text, '\n')) {
    std::string rest = line;
    if (!out.empty()) out += "\n";
    while (rest.size() > width) {
      auto space = rest.rfind(' ', width);
      if (space == std::string::npos || space == 0) space = rest.find(' ', width);
      if (space == std::string::npos) break;
      out += rest.substr(0, space) + "\n";
      rest.erase(0, space + 1);
    }
    out += rest;
  }
  return out;
}

}  // namespace

WrappedHelp::WrappedHelp() {
  const int columns = terminal_width(STDOUT_FILENO);
  width_ = columns > 0 ? std::max(60, columns) : 100;
}

std::string WrappedHelp::make_option_desc(const CLI::Option* option) const {
  return wrapped(CLI::Formatter::make_option_desc(option), width_ - get_column_width());
}

std::string WrappedHelp::make_footer(const CLI::App* app) const {
  return wrapped(CLI::Formatter::make_footer(app), width_);
}

}  // namespace runner
