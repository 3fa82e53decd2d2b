// Builds parts that need LibTorch outside of the tree.
#pragma once
#include <cstdlib>

#include "tests/commands/resume_support.hpp"

namespace runner::testing {

/// Builds libparts.so from `source` in `folder`, against the headers as `cmake --install` puts them.
inline void build_torch_parts(const fs::path& folder, const std::string& source) {
  fs::create_directories(folder / "include/runner/plugins");
  for (const char* header : {"runner/train/parts/torch_parts.hpp", "runner/plugins/options.hpp"})
    fs::copy_file(fs::path(RUNNER_SOURCE_DIR) / header, folder / "include/runner/plugins" / fs::path(header).filename(),
                  fs::copy_options::overwrite_existing);
  std::ofstream(folder / "parts.cpp") << source;
  const std::string torch = PLUGIN_LIBTORCH "/include";
  const std::string command = std::string(PLUGIN_COMPILER) + " -std=c++20 -O1 -fPIC -shared -I" +
                              (folder / "include").string() + " -isystem " + torch + " -isystem " + torch +
                              "/torch/csrc/api/include -o " + (folder / "libparts.so").string() + " " +
                              (folder / "parts.cpp").string();
  REQUIRE(std::system(command.c_str()) == 0);
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
