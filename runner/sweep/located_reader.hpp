// Reads a located table: each key is read once, the remaining keys are unknown, and all mistakes are collected.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "runner/base/text.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/located_json.hpp"

namespace runner::sweep {

class Problems {
 public:
  void add(const Origin& place, const std::string& code, const std::string& message,
           const std::vector<std::string>& allowed = {}, const std::string& wrong_name = "") {
    Diagnostic diagnostic{.place = place, .code = code, .message = message, .allowed = allowed};
    if (!wrong_name.empty()) diagnostic.suggestion = nearest(wrong_name, allowed);
    list_.push_back(std::move(diagnostic));
  }
  void add(Diagnostic diagnostic) { list_.push_back(std::move(diagnostic)); }
  bool empty() const { return list_.empty(); }
  void throw_if_any() {
    if (list_.empty()) return;
    sort_by_place(list_);
    throw RecipeError(list_);
  }

 private:
  std::vector<Diagnostic> list_;
};

/// Reports the keys of `table` that are not in `known`: "unknown key `x` in WHERE".
inline void check_names(const LocatedJson& table, const std::vector<std::string>& known, const std::string& where,
                        Problems& problems) {
  for (const auto& [name, value] : table.members)
    if (std::find(known.begin(), known.end(), name) == known.end())
      problems.add(value.key_place, "unknown-key", fmt::format("unknown key `{}` in {}", name, where), known, name);
}

/// "`gamma` must be a number, not "x"".
inline void wrong_type(const LocatedJson& value, const std::string& name, const std::string& wanted,
                       Problems& problems) {
  problems.add(value.place, "wrong-type",
               fmt::format("`{}` must be {}, not {}", name, wanted, value.is_object ? "a table" : value.value.dump()));
}

}  // namespace runner::sweep
