#include "runner/models/plugin/library.hpp"

#include <dlfcn.h>

#include <set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

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

template <typename T>
plugin::Options::Value list_value(const json& value) {
  return value.get<std::vector<T>>();
}

plugin::Options::Value option_value(const std::string& name, const json& value) {
  const auto all = [&](auto&& is) { return value.is_array() && std::all_of(value.begin(), value.end(), is); };
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  if (all([](const json& item) { return item.is_number_integer(); })) return list_value<int64_t>(value);
  if (all([](const json& item) { return item.is_number(); })) return list_value<double>(value);
  if (all([](const json& item) { return item.is_string(); })) return list_value<std::string>(value);
  throw usage_error("model.options: `{}` must be a number, a string, true, false, or a list of numbers or of strings",
                    name);
}

/// Throws Error(usage) for options that the plug-in did not ask for.
void check_asked(const plugin::Options& options) {
  const std::vector<std::string> known(options.asked().begin(), options.asked().end());
  for (const auto& [name, value] : options.values()) {
    if (options.asked().contains(name)) continue;
    const auto near = nearest(name, known);
    throw usage_error("model.options: the plug-in has no option `{}`{}", name,
                      near            ? fmt::format("; did you mean `{}`?", *near)
                      : known.empty() ? "; it has none"
                                      : "; it has " + join(known, ", "));
  }
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
  std::map<std::string, plugin::Options::Value> values;
  for (const auto& [name, value] : options.items()) values.emplace(name, option_value(name, value));
  const plugin::Options given(std::move(values));
  const auto model = [&] {
    try {
      return library.make(given, sizes);
    } catch (const std::exception& error) {
      throw usage_error("model.plugin: the plug-in {} failed: {}", path, first_line(error.what()));
    }
  }();
  check_asked(given);
  check_model(model, path);
  return model;
}

}  // namespace runner
