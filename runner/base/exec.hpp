// Argument lists for exec and posix_spawn.
#pragma once
#include <string>
#include <vector>

namespace runner {

/// Null-terminated pointers into `words`. `words` must not change while they are used.
inline std::vector<char*> exec_words(std::vector<std::string>& words) {
  std::vector<char*> list;
  for (auto& word : words) list.push_back(word.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace runner
