#include "runner/config/file_format.hpp"

#include <fmt/format.h>

#include <optional>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

/// A format in words.
struct Described {
  const char* name;
  const char* command;  ///< which reads such a file
};

/// The rows are in the order of FileFormat.
constexpr Described formats[] = {{"a TOML recipe", "check it with: runner check"},
                                 {"JSON", "for a configuration of another tool: runner import"},
                                 {"a Lua file", "for a hook or a strategy: runner lua check"},
                                 {"YAML", "for a configuration of another tool: runner import"}};

const Described& described(FileFormat format) { return formats[static_cast<size_t>(format)]; }

/// The first character that is not part of a comment; '\0': there is none.
char first_character(const std::string& text) {
  for (const auto& line : split(text, '\n'))
    if (auto begin = trim(line); !begin.empty() && begin[0] != '#') return begin[0];
  return '\0';
}

std::optional<FileFormat> format_of(const std::string& file, const std::string& text) {
  const auto suffix = fs::path(file).extension();
  const char first = first_character(text);
  if (first == '{' || suffix == ".json") return FileFormat::json;
  if (suffix == ".lua") return FileFormat::lua;
  if (suffix == ".yaml" || suffix == ".yml") return FileFormat::yaml;
  return first == '[' || suffix == ".toml" ? std::optional(FileFormat::toml) : std::nullopt;
}

bool has_section(const std::string& text) {
  for (const auto& line : split(text, '\n'))
    if (trim(line).starts_with('[')) return true;
  return false;
}

}  // namespace

std::string wrong_format(FileFormat wanted, const std::string& file, const std::string& text) {
  const auto found = format_of(file, text);
  if (found && found != wanted) {
    const auto [name, command] = described(*found);
    return fmt::format("this looks like {}, not like {}; {} {}", name, described(wanted).name, command, file);
  }
  if (found || wanted != FileFormat::toml || has_section(text)) return "";
  return "this does not look like a recipe, which is a TOML file with sections such as [model]; files to train on are "
         "named in data.train";
}

std::string excerpt_of(std::string line) {
  constexpr size_t longest = 1000;
  if (line.ends_with('\r')) line.pop_back();
  return line.size() > longest ? "" : line;
}

}  // namespace runner
