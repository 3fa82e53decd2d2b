// Builds parts that need LibTorch outside of the tree.
#pragma once
#include "tests/commands/resume_support.hpp"
#include "tests/support/torch_library.hpp"

namespace runner::testing {

/// Builds libparts.so from `source` in `folder`.
inline void build_torch_parts(const fs::path& folder, const std::string& source) {
  build_torch_library(folder / "libparts.so", source,
                      {{"runner/train/parts/torch_parts.hpp", "runner/plugins/torch_parts.hpp"},
                       {"runner/plugins/options.hpp", "runner/plugins/options.hpp"}});
}

/// Runs `runner VERB tiny.toml` with settings KEY=VALUE.
inline CommandResult run_with(const Workplace& place, const std::string& verb,
                              const std::vector<std::string>& settings) {
  std::vector<std::string> arguments = {verb, "tiny.toml"};
  if (verb == "run") arguments.emplace_back("--json");
  if (!settings.empty()) arguments.emplace_back("--set");
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  return place.run(arguments);
}

inline nlohmann::json trained_with(const Workplace& place, const std::vector<std::string>& settings) {
  const auto result = run_with(place, "run", settings);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return result.json();
}

/// What `runner check` says about mistakes.
inline std::string refused_with(const Workplace& place, const std::vector<std::string>& settings) {
  const auto result = run_with(place, "check", settings);
  CHECK(result.code == 2);
  return result.out + result.err;
}

}  // namespace runner::testing
