// A training of a tiny model on two ranks in a temporary folder: `runner lua check` tries a script in it.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runner/base/option.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

class TinyTraining {
 public:
  /// Makes the folder with the data. `script` is the checked file as the user wrote it. Messages show it in this form.
  explicit TinyTraining(const std::string& script);

  /// The script as an absolute path, which is valid in any folder; a bare name of a shipped script is unchanged.
  const std::string& script() const { return script_; }
  fs::path folder() const { return folder_.path(); }
  /// The lines of scripts that ran, each as FILE:LINE; missing if there are none.
  fs::path lines_file() const { return folder() / "lines"; }
  /// The folder of the training's own ledger, for Ledger::Mode::read.
  std::string home() const { return (folder() / "home").string(); }

  /// Trains `recipe` for `steps` steps. The first call begins a run, later calls resume it, with these overrides. Prints
  /// the output, except lines about the temporary run and lines for which `hide` is true. Returns the exit code.
  int train(int64_t steps, const std::vector<std::string>& overrides = {},
            const std::function<bool(const std::string& line)>& hide = {});

  /// Steps of the run so far. A script may have ended a call of train() early.
  int64_t steps_done() const;

  Recipe recipe;  ///< change it before the first call of train()

 private:
  void forward(std::string line) const;

  ScratchFolder folder_;
  std::string shown_, script_;
  bool begun_ = false;
};

/// Steps to train, at least `least`: enough for what a script does every N steps, if N is the value of one of its options.
int64_t steps_to_train(const std::vector<Option>& options, const nlohmann::json& given, int64_t least);

}  // namespace runner
