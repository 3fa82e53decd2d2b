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

}  // namespace runner::lua
