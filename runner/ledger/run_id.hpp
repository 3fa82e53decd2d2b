// Ids of runs and sweeps, "20261121-065403-k3f9" (time in UTC and four random letters), and the short forms that name them.
#pragma once
#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace runner {

/// Whether a text that comes from elsewhere may be an id: one visible part of a path.
inline bool is_run_id(std::string_view id) {
  return !id.empty() && std::ranges::all_of(id, [](char c) {
    return static_cast<unsigned char>(c) < 0x80 && (std::isalnum(c) || c == '-' || c == '_');
  });
}

/// The letters after the last "-", which are enough to name a run: "k3f9".
inline std::string id_end(std::string_view id) { return std::string(id.substr(id.rfind('-') + 1)); }

/// Whether `text` is the beginning of an id, or its whole end. A part of the end is too easily another run.
inline bool shortens(std::string_view text, std::string_view id) {
  return !text.empty() && (id.starts_with(text) || id_end(id) == text);
}

}  // namespace runner
