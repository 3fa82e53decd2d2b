#include "runner/chat/template_error.hpp"

#include <algorithm>

#include "runner/chat/unicode.hpp"

namespace runner::jinja {
namespace {
constexpr int64_t excerpt_points = 120;

size_t line_begin(std::string_view source, size_t offset) {
  return offset == 0 ? 0 : source.rfind('\n', offset - 1) + 1;  // npos + 1 is 0
}

int line_of(std::string_view source, size_t offset) {
  return 1 + static_cast<int>(std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(offset), '\n'));
}

int column_of(std::string_view source, size_t offset) {
  size_t begin = line_begin(source, offset);
  return 1 + static_cast<int>(count_code_points(source.substr(begin, offset - begin)));
}

/// The line with a caret under the column. Long lines (templates of one line are common) are cut around the caret.
std::string excerpt(std::string_view source, size_t offset, int line, int column) {
  size_t begin = line_begin(source, offset);
  auto points = code_points(source.substr(begin, std::min(source.find('\n', begin), source.size()) - begin));
  int64_t caret = column - 1, count = static_cast<int64_t>(points.size());
  int64_t first =
      count <= excerpt_points ? 0 : std::clamp<int64_t>(caret - excerpt_points / 2, 0, count - excerpt_points);
  int64_t last = std::min(count, first + excerpt_points);
  std::string text = first > 0 ? "..." : "";
  std::string margin(first > 0 ? 3 : 0, ' ');
  for (int64_t i = first; i < last; ++i) {
    text += points[static_cast<size_t>(i)];
    if (i < caret) margin += points[static_cast<size_t>(i)] == "\t" ? '\t' : ' ';
  }
  if (last < count) text += "...";
  auto number = std::to_string(line);
  return fmt::format(" {} | {}\n {} | {}^", number, text, std::string(number.size(), ' '), margin);
}
}  // namespace

TemplateError::TemplateError(std::string name, std::string_view source, size_t offset, std::string message)
    : TemplateError(std::move(name), source, std::min(offset, source.size()), std::move(message),
                    line_of(source, std::min(offset, source.size())),
                    column_of(source, std::min(offset, source.size()))) {}

TemplateError::TemplateError(std::string name, std::string_view source, size_t offset, std::string message, int line,
                             int column)
    : Error(ExitCode::usage,
            fmt::format("{}:{}:{}: {}\n{}", name, line, column, message, excerpt(source, offset, line, column))),
      message_(std::move(message)),
      line_(line),
      column_(column) {}

}  // namespace runner::jinja
