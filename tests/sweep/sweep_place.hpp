// The folder of a sweep: a recipe that trains a tiny model in ten steps.
#pragma once
#include <functional>
#include <string>

#include "runner/base/files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace runner::testing {

inline const std::string swept_recipe = R"([model]
name = "gpt"
n_layers = 1
dim = 32
n_heads = 2
max_seq_len = 16
[data]
format = "text"
train = ["text.txt"]
[train]
max_steps = 10
global_batch_size = 4
)";

/// Has the recipe as base.toml, and its text.
struct SweepPlace : TemporaryFolder {
  SweepPlace() {
    write_file_atomic(path / "base.toml", swept_recipe);
    write_file_atomic(path / "text.txt", "some text");
  }
  /// The message of the Failure that `act` throws, without the folder; or "".
  template <typename Failure>
  std::string message_of(const std::function<void()>& act) const {
    try {
      act();
    } catch (const Failure& failure) {
      std::string text = failure.what(), folder = path.string() + "/";
      for (size_t at; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
      return text;
    }
    return "";
  }
};

}  // namespace runner::testing
