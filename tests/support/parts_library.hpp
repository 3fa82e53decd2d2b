// Builds libraries of parts outside of the tree, against the headers as `cmake --install` puts them.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace runner::testing {

/// A file of tests/plugin/parts.
inline std::string parts_source(const std::string& name) {
  std::ifstream file(std::string(RUNNER_SOURCE_DIR "/tests/plugin/parts/") + name);
  std::ostringstream text;
  text << file.rdbuf();
  REQUIRE_FALSE(text.str().empty());
  return text.str();
}

/// `text` with `from`, which it must contain, replaced by `to`.
inline std::string with_replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// Builds FOLDER/LIBRARY from `source` and returns its path.
inline std::string build_parts(const std::filesystem::path& folder, const std::string& library,
                               const std::string& source) {
  const auto headers = folder / "include/runner/plugins";
  std::filesystem::create_directories(headers);
  for (const char* name : {"options.hpp", "parts.hpp"})
    std::filesystem::copy_file(std::filesystem::path(RUNNER_SOURCE_DIR "/runner/plugins") / name, headers / name,
                               std::filesystem::copy_options::overwrite_existing);
  const auto file = (folder / (library + ".cpp")).string(), made = (folder / library).string();
  std::ofstream(file) << source;
  const std::string command = std::string(PLUGIN_COMPILER) + " -std=c++20 -Wall -Wextra -Werror -O1 -fPIC -shared -I" +
                              (folder / "include").string() + " -o " + made + " " + file;
  REQUIRE(std::system(command.c_str()) == 0);
  return made;
}

}  // namespace runner::testing
