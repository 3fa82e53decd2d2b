// SmolLM2-135M-Instruct, which scripts/setup --smollm2 downloads, and the table of its reference values.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "runner/base/files.hpp"

namespace runner::testing {

/// Skips the test if the file is missing.
inline fs::path smollm2_file() {
  fs::path path = RUNNER_SOURCE_DIR "/.deps/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!fs::exists(path)) SKIP("scripts/setup --smollm2 has not downloaded the model");
  return path;
}

inline nlohmann::json smollm2_table() {
  return nlohmann::json::parse(read_file(RUNNER_SOURCE_DIR "/tests/pretrained/reference/smollm2.json"));
}

}  // namespace runner::testing
