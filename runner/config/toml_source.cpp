#include "runner/config/toml_source.hpp"

#include <optional>

#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/file_format.hpp"

namespace runner {

namespace {

/// A word without quotes where a value must be.
struct BareWord {
  size_t begin, size;  ///< in the line
};

/// The bare word around `at`. `of_value`: the parser knows that a value must be there, also at the beginning of a line.
std::optional<BareWord> bare_word(const std::string& line, size_t at, bool of_value) {
  if (at >= line.size() || trim(line).starts_with('[')) return std::nullopt;
  const size_t before = line.find_last_of("=,[ \t", at);
  const size_t begin = before == std::string::npos ? 0 : before + 1;
  const size_t left = begin == 0 ? begin : line.find_last_not_of(" \t", begin - 1);
  const bool after_equals =
      begin > 0 && left != std::string::npos && std::string("=,[").find(line[left]) != std::string::npos;
  if (!after_equals && !of_value) return std::nullopt;
  const size_t size = trim(std::string_view(line).substr(begin, line.find_first_of(",]}#", begin) - begin)).size();
  const auto word = std::string_view(line).substr(begin, size);
  const bool number = word.find_first_not_of("0123456789+-._eE:") == std::string::npos;
  if (number || word.find_first_of("\"'{=") != std::string::npos) return std::nullopt;
  return BareWord{begin, size};
}

/// Explains a bare word at `place`, to which it moves the caret; empty: there is none.
std::string explain_bare_word(Origin& place, bool of_value) {
  const auto& line = place.excerpt;
  if (place.column < 1) return "";
  const auto found = bare_word(line, static_cast<size_t>(place.column) - 1, of_value);
  if (!found) return "";
  const std::string word = line.substr(found->begin, found->size);
  place.column = static_cast<int>(found->begin) + 1;
  place.span = static_cast<int>(found->size);
  const auto small = lower(word);
  if (small == "true" || small == "false") return fmt::format("TOML writes {}, not {}", small, word);
  if (small == "none" || small == "null") return fmt::format("TOML has no {}; leave the key out", word);
  const std::string quoted = json_text(nlohmann::json(word));
  const std::string after = line.substr(found->begin + found->size);
  const std::string corrected = line.substr(0, found->begin) + quoted + after.substr(0, after.find('#'));
  return fmt::format("strings need double quotes: {}", trim(corrected));
}

}  // namespace

toml::table parse_toml(const std::string& text, const TomlSource& source) {
  try {
    return toml::parse(std::string_view(text), std::string_view(source.name));
  } catch (const toml::parse_error& error) {
    Diagnostic mistake{source.at(error.source(), 1), "syntax", std::string(error.description())};
    if (const auto other = wrong_format(FileFormat::toml, source.name, text); !other.empty()) {
      mistake = {.code = "wrong-format", .message = other};
      mistake.place.file = source.name;
      throw RecipeError({mistake});
    }
    auto mentions = [&](const char* words) { return mistake.message.find(words) != std::string::npos; };
    if (mentions("parsing key-value pair")) throw RecipeError({mistake});  // such as a key that is set twice
    const auto why = explain_bare_word(mistake.place, /*of_value=*/mentions("parsing value"));
    if (!why.empty()) mistake.message = why;
    throw RecipeError({mistake});
  }
}

}  // namespace runner
