// Errors of a template, with the place in its text.
#pragma once
#include <string>
#include <string_view>

#include "runner/base/error.hpp"

namespace runner::jinja {

/// A mistake in a template, or an operation that fails while it is rendered. what() is "NAME:LINE:COLUMN: MESSAGE", the line of
/// the template and a caret.
class TemplateError : public Error {
 public:
  TemplateError(std::string name, std::string_view source, size_t offset, std::string message);

  int line() const { return line_; }
  int column() const { return column_; }  ///< in code points, from 1
  const std::string& message() const { return message_; }

 private:
  TemplateError(std::string name, std::string_view source, size_t offset, std::string message, int line, int column);

  std::string message_;
  int line_, column_;
};

/// The template called raise_exception: it does not accept these messages.
class RaisedByTemplate : public TemplateError {
 public:
  using TemplateError::TemplateError;
};

}  // namespace runner::jinja
