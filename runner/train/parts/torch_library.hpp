// Opens a library of parts that are built against LibTorch (torch_parts.hpp).
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/train/parts/torch_parts.hpp"

namespace runner {

/// `key`: of the recipe, for messages. Throws Error(usage) if the library cannot be loaded, exports no parts, or was built with another
/// version of the interface or of LibTorch.
const torch_parts::Library& open_torch_library(const std::string& path, const std::string& key);

/// Makes a part, such as Library::precision. `name`: of that member. Throws Error(usage) with what the library raised.
template <typename Part>
std::unique_ptr<Part> make_torch_part(const std::string& path, const std::string& key, const std::string& name,
                                      std::unique_ptr<Part> (*torch_parts::Library::*maker)(const plugin::Options&),
                                      const plugin::Options& options) {
  const auto make = open_torch_library(path, key).*maker;
  if (!make) throw usage_error("{}: {} has no part `{}`", key, path, name);
  std::unique_ptr<Part> made;
  try {
    made = make(options);
  } catch (const std::exception& error) {
    throw usage_error("{}: the plug-in {} failed: {}", key, path, first_line(error.what()));
  }
  if (!made) throw usage_error("{}: the plug-in {} made no part `{}`", key, path, name);
  return made;
}

/// Answers ask_worker(): reads a request from one file, and writes what `describe` returns, or {"error"}, to the other
/// one. Returns the exit status.
int answer_request(const std::function<nlohmann::json(const nlohmann::json&)>& describe, const std::string& question,
                   const std::string& answer);

}  // namespace runner
