// Helpers of the tests of `runner submit`: longer commands, and a sweep of the tiny recipe.
#pragma once
#include "tests/commands/sweep_support.hpp"

namespace runner::testing {

inline std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline void write_shared_sweep(const Workplace& place, const std::string& keys = "budget = { trials = 4 }\n") {
  write_tiny_recipe(place);
  place.write("sweep.toml",
              "[sweep]\nrecipe = \"tiny.toml\"\nmetric = \"loss\"\nmethod = \"random\"\nseed = 4\nset = { "
              "\"devices.cpu_processes\" = 1, \"train.max_steps\" = 3, \"checkpoint.save_at_end\" = true }\n" +
                  keys + lr_space);
}

}  // namespace runner::testing
