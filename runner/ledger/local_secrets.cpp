#include "runner/ledger/local_secrets.hpp"

#include <functional>
#include <map>
#include <sstream>
#include <string_view>

#include "runner/base/secrets.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

/// Calls `use` with each line, and its section and key.
void for_each_line(const std::string& recipe,
                   const std::function<void(const std::string& line, const std::string& key)>& use) {
  std::istringstream lines(recipe);
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) section = line;
    use(line, section + "\n" + std::string(trim(line.substr(0, line.find('=')))));
  }
}

/// Whether `line` is `pattern` with other texts for each "***".
bool fits(const std::string& pattern, std::string_view line) {
  const std::string_view stars = redacted, all = pattern;
  size_t begin = 0, at = 0;
  for (size_t end = all.find(stars); end != std::string_view::npos; end = all.find(stars, begin)) {
    const auto part = all.substr(begin, end - begin);
    const size_t found = line.find(part, at);
    if (found == std::string_view::npos || (begin == 0 && found != 0)) return false;
    at = found + part.size();
    begin = end + stars.size();
  }
  return line.substr(at).ends_with(all.substr(begin));
}

}  // namespace

std::string with_local_secrets(const std::string& recipe, const std::string& here) {
  std::map<std::string, std::string> known;
  for_each_line(here, [&](const std::string& line, const std::string& key) {
    if (line.find(redacted) == std::string::npos) known[key] = line;
  });
  std::string text;
  for_each_line(recipe, [&](const std::string& line, const std::string& key) {
    const auto found = known.find(key);
    const bool secret = line.find(redacted) != std::string::npos;
    text += (secret && found != known.end() && fits(line, found->second) ? found->second : line) + "\n";
  });
  return text;
}

}  // namespace runner
