#include "runner/config/diagnostics.hpp"

#include <algorithm>
#include <tuple>

#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

/// The source line, and a caret under the location.
std::string excerpt(const Origin& origin) {
  if (origin.excerpt.empty() || origin.line == 0) return "";
  auto number = fmt::format("{:>5}", origin.line);
  std::string pad;
  for (int i = 1; i < origin.column && i <= static_cast<int>(origin.excerpt.size()); ++i)
    pad += origin.excerpt[static_cast<size_t>(i - 1)] == '\t' ? '\t' : ' ';
  return fmt::format("{} | {}\n{} | {}^{}\n", number, origin.excerpt, std::string(number.size(), ' '), pad,
                     std::string(static_cast<size_t>(std::max(0, origin.span - 1)), '~'));
}

/// place_of() for messages: a long value of --set is left out.
std::string short_place(Origin origin) {
  const bool longer = origin.kind == Origin::Kind::set && shortened_text(origin.file) != origin.file;
  if (longer) origin.file = shortened_text(origin.file.substr(0, origin.file.find('=') + 1) + "...");
  return place_of(origin);
}

std::string render_all(const std::vector<Diagnostic>& diagnostics) {
  std::string text;
  for (const auto& diagnostic : diagnostics) text += (text.empty() ? "" : "\n") + render(diagnostic);
  return std::string(trim(text));
}

}  // namespace

void sort_by_place(std::vector<Diagnostic>& diagnostics) {
  auto order = [](const Origin& place) { return std::tuple(place.line == 0, place.line, place.column); };
  std::stable_sort(diagnostics.begin(), diagnostics.end(),
                   [&](const Diagnostic& a, const Diagnostic& b) { return order(a.place) < order(b.place); });
}

std::string place_of(const Origin& origin) {
  const std::string unset = "unset=";
  if (origin.kind == Origin::Kind::set)
    return origin.file.starts_with(unset) ? "--unset " + origin.file.substr(unset.size()) : "--set " + origin.file;
  if (origin.line == 0) return origin.file.empty() ? "recipe" : origin.file;
  return fmt::format("{}:{}:{}", origin.file, origin.line, origin.column);
}

std::string render(const Diagnostic& diagnostic) {
  std::string text =
      fmt::format("{}: error: {}\n{}", short_place(diagnostic.place), diagnostic.message, excerpt(diagnostic.place));
  if (diagnostic.suggestion)
    text += fmt::format("  did you mean `{}`?\n", *diagnostic.suggestion);
  else if (!diagnostic.allowed.empty() && (diagnostic.other || diagnostic.other_message.empty()))
    text += fmt::format("  allowed: {}\n", join(diagnostic.allowed, ", "));
  if (diagnostic.other)
    text += fmt::format("{}: note: {}\n{}", short_place(*diagnostic.other), diagnostic.other_message,
                        excerpt(*diagnostic.other));
  else if (!diagnostic.other_message.empty())
    text += fmt::format("  {}\n", diagnostic.other_message);
  return text;
}

nlohmann::json to_json(const Diagnostic& diagnostic) {
  return {{"file", diagnostic.place.file},
          {"line", diagnostic.place.line},
          {"column", diagnostic.place.column},
          {"code", diagnostic.code},
          {"message", diagnostic.message},
          {"allowed", diagnostic.allowed},
          {"suggestion", diagnostic.suggestion ? nlohmann::json(*diagnostic.suggestion) : nlohmann::json()}};
}

RecipeError::RecipeError(std::vector<Diagnostic> diagnostics)
    : Error(ExitCode::usage, render_all(diagnostics)), diagnostics_(std::move(diagnostics)) {}

}  // namespace runner
