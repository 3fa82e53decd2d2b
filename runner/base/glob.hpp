// Shell-like patterns over names.
#pragma once
#include <fnmatch.h>

#include <string>

namespace runner {

/// Whether `pattern`, with `*`, `?` and `[...]`, matches the complete text.
inline bool glob_matches(const std::string& pattern, const std::string& text) {
  return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

}  // namespace runner
