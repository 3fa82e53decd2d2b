#include "runner/train/parts/torch_library.hpp"

#include <dlfcn.h>

#include "runner/base/files.hpp"
#include "runner/base/json_text.hpp"

namespace runner {

const torch_parts::Library& open_torch_library(const std::string& path, const std::string& key) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw usage_error("{}: cannot load {}: {}", key, path, dlerror());
  auto* const entry = reinterpret_cast<const torch_parts::Library* (*)()>(dlsym(library, "runner_torch_parts"));
  if (!entry)
    throw usage_error(
        "{}: {} exports no parts: the function runner_torch_parts() is missing; RUNNER_TORCH_PARTS(...) defines it",
        key, path);
  const auto* const found = entry();
  if (found->version != torch_parts::version)
    throw usage_error(
        "{}: {} was built for version {} of the interface of parts, and this program has version {}; build it again "
        "with the header of this program",
        key, path, found->version, torch_parts::version);
  if (std::string(found->torch_version) != TORCH_VERSION)
    throw usage_error("{}: {} was built with LibTorch {}, and this program uses {}; build it again", key, path,
                      found->torch_version, TORCH_VERSION);
  return *found;
}

int answer_request(const std::function<nlohmann::json(const nlohmann::json&)>& describe, const std::string& question,
                   const std::string& answer) {
  nlohmann::json result;
  try {
    result = describe(nlohmann::json::parse(read_file(question)));
  } catch (const std::exception& error) {
    result = {{"error", error.what()}};
  }
  write_file_atomic(answer, json_text(result));
  return 0;
}

}  // namespace runner
