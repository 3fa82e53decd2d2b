#include "runner/plugins/library.hpp"

#include <dlfcn.h>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"

namespace runner {

void check_library_file(const std::string& path, const std::string& key) {
  if (fs::is_regular_file(path)) return;
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::absolute(path).parent_path(), ignored))
    if (entry.is_regular_file(ignored)) names.push_back(entry.path().filename().string());
  const auto near = nearest(fs::path(path).filename().string(), names);
  throw usage_error("{}: there is no file {}{}", key, path, near ? fmt::format("; did you mean {}?", *near) : "");
}

const parts::Library& open_parts(const std::string& path, const std::string& key) {
  check_library_file(path, key);
  // A name without a folder would be searched in the system's folders.
  void* library = dlopen(fs::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw usage_error("{}: cannot load {}: {}", key, path, dlerror());
  auto* const entry = reinterpret_cast<const parts::Library* (*)()>(dlsym(library, "runner_parts"));
  if (!entry)
    throw usage_error("{}: {} exports no parts: the function runner_parts() is missing; RUNNER_PARTS(...) defines it",
                      key, path);
  const auto* const found = entry();
  if (found->version != parts::version)
    throw usage_error(
        "{}: {} was built for version {} of the interface of parts, and this program has version {}; build it again "
        "with the header of this program",
        key, path, found->version, parts::version);
  return *found;
}

}  // namespace runner
