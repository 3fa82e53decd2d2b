#include "runner/base/environment_text.hpp"

#include <cstdlib>

namespace runner {

std::string expand_environment(const std::string& text, const std::function<void(const std::string& name)>& missing) {
  constexpr std::string_view begin = "${env:", default_mark = ":-";
  std::string out;
  size_t at = 0;
  for (size_t open; (open = text.find(begin, at)) != std::string::npos;) {
    const size_t close = text.find('}', open);
    if (close == std::string::npos) break;
    out += text.substr(at, open - at);
    std::string name = text.substr(open + begin.size(), close - open - begin.size()), otherwise;
    const auto dash = name.find(default_mark);
    const bool has_default = dash != std::string::npos;
    if (has_default) {
      otherwise = name.substr(dash + default_mark.size());
      name.resize(dash);
    }
    const char* found = std::getenv(name.c_str());
    if (!found && !has_default && missing) missing(name);
    out += found ? found : otherwise;
    at = close + 1;
  }
  return out + text.substr(at);
}

}  // namespace runner
