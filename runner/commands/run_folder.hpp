// The files of a run's folder that contain its settings, the code that they name, and the folder for verbs that need it.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "runner/base/files.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/selection/plan.hpp"

namespace runner {

/// Writes recipe.toml, resolved.toml, plan.json and the places of hooks.
class RunFolder {
 public:
  /// Reads the settings that an earlier attempt has left.
  explicit RunFolder(const fs::path& run_dir);
  void write(const Recipe& recipe, const Plan& plan) const;
  /// Copies a tokenizer that was trained for the run (data.tokenizer = "sentencepiece"): another text would give other tokens.
  void keep_tokenizer(const Recipe::Data& data, const std::string& cache_dir) const;
  /// Restores the settings of the earlier attempt. Returns false if they are the same, or if there was no earlier
  /// attempt.
  bool put_back() const;

 private:
  fs::path run_dir_;
  std::map<fs::path, std::optional<std::string>> before_;  ///< empty: the file did not exist
  std::set<fs::path> private_;                             ///< of these, those that only their owner could read
};

/// The run's folder. Throws Error(usage) if it is missing: why, what is gone with it, and what still works. `verb`: "resumed".
fs::path needed_folder(const Ledger& ledger, const std::string& run, const std::string& verb);

/// {dotted key: value} of the keys that name code, without secret values: plug-ins, hooks with their options, scripts.
nlohmann::json code_of(const Recipe& recipe);

/// Throws Error(usage) if RUN_DIR/resolved.toml, which another node has written, names code that `own`, the recipe of this node, does not.
void refuse_other_code(const Recipe& own, const fs::path& run_dir);

}  // namespace runner
