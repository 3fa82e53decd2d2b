// Ids of runs and sweeps, "20261121-065403-k3f9" (time in UTC and four random letters), and the short forms that name them.
#pragma once
#include <string>
#include <string_view>

namespace runner {

/// The letters after the last "-", which are enough to name a run: "k3f9".
inline std::string id_end(std::string_view id) { return std::string(id.substr(id.rfind('-') + 1)); }

/// Whether `text` is the beginning of an id, or its whole end. A part of the end is too easily another run.
inline bool shortens(std::string_view text, std::string_view id) {
  return !text.empty() && (id.starts_with(text) || id_end(id) == text);
}

}  // namespace runner
