#include "runner/models/plugin/library.hpp"

#include <dlfcn.h>

#include <set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/plugins/given_options.hpp"

namespace runner {

namespace {

using nlohmann::json;

const plugin::Library& plugin_library(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw usage_error("model.plugin: cannot load {}: {}", path, dlerror());
  auto* const entry = reinterpret_cast<const plugin::Library* (*)()>(dlsym(library, "runner_plugin"));
  if (!entry)
    throw usage_error(
        "model.plugin: {} exports no plug-in: the function runner_plugin() is missing; RUNNER_PLUGIN(make) defines it",
        path);
  const auto* const found = entry();
  if (found->version != plugin::abi_version)
    throw usage_error(
        "model.plugin: {} was built for version {} of the plug-in interface, and this program has version {}; build it "
        "again with the header of this program",
        path, found->version, plugin::abi_version);
  if (std::string(found->torch_version) != TORCH_VERSION)
    throw usage_error("model.plugin: {} was built with LibTorch {}, and this program uses {}; build it again", path,
                      found->torch_version, TORCH_VERSION);
  return *found;
}

void check_model(const plugin::Model& model, const std::string& path) {
  const auto require = [&](bool condition, const std::string& problem) {
    if (!condition) throw usage_error("model.plugin: the model of {} is contradictory: {}", path, problem);
  };
  require(model.blocks.size() >= 2,
          fmt::format("it has {} of the at least two blocks that it needs", model.blocks.size()));
  std::set<std::string> names, parameters;
  for (const auto& block : model.blocks) {
    require(!block.name.empty(), "a block has no name");
    require(names.insert(block.name).second, fmt::format("two blocks have the name `{}`", block.name));
    require(static_cast<bool>(block.forward), fmt::format("block `{}` has no forward", block.name));
    for (const auto& name : block.shared)
      require(parameters.contains(name),
              fmt::format("block `{}` shares `{}`, which no earlier block has", block.name, name));
    for (const auto& parameter : block.parameters) {
      require(parameters.insert(parameter.name).second,
              fmt::format("two parameters have the name `{}`", parameter.name));
      require(std::ranges::all_of(parameter.shape, [](int64_t size) { return size > 0; }),
              fmt::format("the parameter `{}` has no elements", parameter.name));
    }
  }
  require(!parameters.empty(), "it has no parameters");
}

}  // namespace

plugin::Model make_plugin_model(const std::string& path, const json& options, const plugin::Sizes& sizes) {
  const auto& library = plugin_library(path);
  const auto given = plugin_options(options, "model.options");
  const auto model = [&] {
    try {
      return library.make(given, sizes);
    } catch (const std::exception& error) {
      throw usage_error("model.plugin: the plug-in {} failed: {}", path, first_line(error.what()));
    }
  }();
  check_asked(given, "model.options");
  check_model(model, path);
  return model;
}

}  // namespace runner
