#include "runner/lua/script_error.hpp"

namespace runner::lua {

RecipeError located(const LuaError& error, const KeyPlaces& places, const std::string& file, const std::string& code) {
  const bool here = error.file() == file || error.file().empty();
  Origin place = places.line(here ? error.line() : 0);
  if (!here) {
    place.file = error.file();
    place.line = error.line();
    place.column = 1;
  }
  Diagnostic diagnostic{place, code, error.message()};
  const auto& trace = error.trace();
  auto begin = trace.find_first_not_of(' ');
  if (begin != std::string::npos)
    diagnostic.other_message = trace.substr(begin, trace.find_last_not_of('\n') + 1 - begin);
  return RecipeError({diagnostic});
}

std::string failure_text(const std::string& who, const std::string& function, const std::string& what,
                         const Origin& asked_at) {
  auto text = fmt::format("{} failed in {}: {}", who, function, what);
  if (asked_at.line > 0)
    text += fmt::format("\n  the recipe names it at {}:{}:{}", asked_at.file, asked_at.line, asked_at.column);
  return text;
}

}  // namespace runner::lua
