// Libraries that tests build with LibTorch's headers, outside of the tree. Compiling one takes half a minute, so the build folder keeps
// them for the other tests, each of which is a process of its own.
#pragma once
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/command.hpp"

namespace runner::testing {

/// A header as `cmake --install` puts it: its path in the source folder, and the one that sources include.
struct InstalledHeader {
  std::string path, included;
};

/// Builds the library `made` from `source`, which stays beside it as a file of this name with .cpp.
inline void build_torch_library(const std::filesystem::path& made, const std::string& source,
                                const std::vector<InstalledHeader>& headers) {
  namespace fs = std::filesystem;
  const fs::path include = made.parent_path() / "include";
  const std::string torch = PLUGIN_LIBTORCH "/include";
  const std::string flags = std::string(PLUGIN_COMPILER) + " -std=c++20 -O1 -fPIC -shared -isystem " + torch +
                            " -isystem " + torch + "/torch/csrc/api/include";
  std::string all = flags + source;
  for (const auto& [path, included] : headers) {
    const auto own = fs::path(RUNNER_SOURCE_DIR) / path;
    fs::create_directories((include / included).parent_path());
    fs::copy_file(own, include / included, fs::copy_options::overwrite_existing);
    all += included + slurp(own);
  }
  const auto file = fs::path(made).replace_extension(".cpp");
  std::ofstream(file) << source;
  const fs::path folder = RUNNER_BINARY_DIR "/tests/libraries";
  const auto kept = folder / (std::to_string(std::hash<std::string>()(all)) + ".so");
  if (!fs::exists(kept)) {
    const std::string command = flags + " -I" + include.string() + " -o " + made.string() + " " + file.string();
    REQUIRE(std::system(command.c_str()) == 0);
    fs::create_directories(folder);
    const auto draft = kept.string() + "." + std::to_string(::getpid());
    fs::copy_file(made, draft);
    fs::rename(draft, kept);
  }
  fs::copy_file(kept, made, fs::copy_options::overwrite_existing);
}

}  // namespace runner::testing
