// Builds data plug-ins outside of the tree, against the header as `cmake --install` puts it.
#pragma once
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace runner::testing {

inline std::string plugin_source(const std::string& name) {
  std::ifstream file(std::string(RUNNER_SOURCE_DIR "/tests/plugin/data/") + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// `text` with `from`, which it must contain, replaced by `to`.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const auto at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// Builds `library` in `folder`; a source that begins with "/*" is C.
inline std::string build_data_plugin(const std::filesystem::path& folder, const std::string& library,
                                     const std::string& source) {
  std::filesystem::create_directories(folder / "include/runner");
  std::filesystem::copy_file(RUNNER_SOURCE_DIR "/runner/data/plugin/data_plugin.h",
                             folder / "include/runner/data_plugin.h",
                             std::filesystem::copy_options::overwrite_existing);
  const bool c = source.starts_with("/*");
  const auto file = (folder / (library + (c ? ".c" : ".cpp"))).string(), made = (folder / library).string();
  std::ofstream(file) << source;
  const std::string command = std::string(PLUGIN_COMPILER) + (c ? " -x c -std=gnu11" : " -std=c++20") +
                              " -Wall -Wextra -Werror -Wno-unused-function -O1 -fPIC -shared -I" +
                              (folder / "include").string() + " -o " + made + ".new " + file + " && mv " + made +
                              ".new " + made;
  REQUIRE(std::system(command.c_str()) == 0);
  return made;
}

/// A file for texts.c.
inline std::string texts_file(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const auto& text : texts) {
    const auto size = static_cast<uint32_t>(text.size());
    bytes.append(reinterpret_cast<const char*>(&size), sizeof size);
    bytes += text;
  }
  return bytes;
}

}  // namespace runner::testing
