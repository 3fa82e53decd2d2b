#include "runner/data/plugin/library.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>

namespace runner {

DataLibrary::DataLibrary(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw usage_error("data.plugin: cannot load {}: {}", path, dlerror());
  auto* const entry = reinterpret_cast<const runner_data_plugin* (*)()>(dlsym(library, "runner_data"));
  if (!entry)
    throw usage_error("data.plugin: {} exports no data plug-in: the function runner_data() is missing{}", path,
                      dlsym(library, "runner_plugin") ? "; it exports a model, which is for model.plugin" : "");
  const auto* const found = entry();
  if (!found) throw usage_error("data.plugin: runner_data() of {} returns NULL", path);
  if (found->version != RUNNER_DATA_VERSION)
    throw usage_error(
        "data.plugin: {} was built for version {} of the interface of data plug-ins, and this program has version {}; "
        "build it again with the header of this program",
        path, found->version, RUNNER_DATA_VERSION);
  if (found->size < sizeof(runner_data_plugin))
    throw usage_error("data.plugin: {} says that its runner_data_plugin has {} bytes; version {} has {}", path,
                      found->size, RUNNER_DATA_VERSION, sizeof(runner_data_plugin));
  std::memcpy(&plugin_, found, std::min<size_t>(found->size, sizeof plugin_));
  const bool samples = plugin_.fields && plugin_.sample;
  for (const auto& [there, name] : {std::pair(plugin_.open != nullptr, "open"), {plugin_.count != nullptr, "count"}})
    if (!there) throw usage_error("data.plugin: {} has no function `{}`", path, name);
  if (!plugin_.record && !samples)
    throw usage_error("data.plugin: {} has neither the function `record` nor `fields` and `sample`", path);
  if (plugin_.record && samples)
    throw usage_error("data.plugin: {} gives records and samples; it must be one of them", path);
}

}  // namespace runner
