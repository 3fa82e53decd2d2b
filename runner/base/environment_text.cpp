#include "runner/base/environment_text.hpp"

#include <cstdlib>

namespace runner {

namespace {

/// ${env:NAME:-default} at bytes [begin, end) of a text.
struct Reference {
  size_t begin, end;
  std::string name;
  std::optional<std::string> otherwise;
};

std::optional<Reference> next_reference(const std::string& text, size_t from) {
  constexpr std::string_view mark = "${env:", default_mark = ":-";
  const size_t begin = text.find(mark, from), close = text.find('}', begin);
  if (begin == std::string::npos || close == std::string::npos) return std::nullopt;
  Reference found{.begin = begin, .end = close + 1, .name = "", .otherwise = {}};
  found.name = text.substr(begin + mark.size(), close - begin - mark.size());
  if (const auto dash = found.name.find(default_mark); dash != std::string::npos) {
    found.otherwise = found.name.substr(dash + default_mark.size());
    found.name.resize(dash);
  }
  return found;
}

}  // namespace

std::string expand_environment(const std::string& text, const std::function<void(const std::string& name)>& missing) {
  std::string out;
  size_t at = 0;
  while (const auto reference = next_reference(text, at)) {
    const char* found = std::getenv(reference->name.c_str());
    if (!found && !reference->otherwise && missing) missing(reference->name);
    out += text.substr(at, reference->begin - at) + (found ? found : reference->otherwise.value_or(""));
    at = reference->end;
  }
  return out + text.substr(at);
}

std::vector<std::string> missing_variables(const std::string& text) {
  std::vector<std::string> names;
  expand_environment(text, [&](const std::string& name) { names.push_back(name); });
  return names;
}

std::string shell_references(const std::string& command) {
  std::string out;
  char quote = 0;  // the one that is open at `at`
  size_t at = 0;
  const auto copy_until = [&](size_t end) {
    for (; at < end; ++at) {
      const char c = command[at];
      out += c;
      if (c == '\\' && quote != '\'' && at + 1 < end)
        out += command[++at];
      else if (quote == 0 && (c == '"' || c == '\''))
        quote = c;
      else if (c == quote)
        quote = 0;
    }
  };
  while (const auto reference = next_reference(command, at)) {
    copy_until(reference->begin);
    const std::string plain =
        "${" + reference->name + (reference->otherwise ? ":-" + *reference->otherwise : std::string()) + "}";
    out += quote == '"' ? plain : quote == '\'' ? "'\"" + plain + "\"'" : "\"" + plain + "\"";
    at = reference->end;
  }
  copy_until(command.size());
  return out;
}

std::string given_or_variable(const std::optional<std::string>& given, const char* variable,
                              const std::string& otherwise) {
  const char* found = std::getenv(variable);
  return given ? *given : found && *found ? found : otherwise;
}

}  // namespace runner
