// The Reducer and the Extension of a strategy, of which it may have both.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "strategies/contract/flat_layout.hpp"
#include "strategies/contract/reducer.hpp"
#include "strategies/contract/state_tensor.hpp"

namespace runner {

/// Extension::Host::shapes.
inline std::map<std::string, std::vector<int64_t>> shapes_in_checkpoints(const Parameters& parameters) {
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto* spec : parameters)
    if (!spec->of_base && !spec->quantized) shapes[spec->name] = spec->whole_shape();
  return shapes;
}

struct Additions {
  std::shared_ptr<Reducer> reducer = {};      ///< may be null
  std::shared_ptr<Extension> extension = {};  ///< may be null

  /// Calls `work` for those that exist, the reducer first.
  void each(const auto& work) const {
    if (reducer) work(*reducer);
    if (extension) work(*extension);
  }
  bool replicas_differ() const {
    return (reducer && reducer->replicas_differ()) || (extension && extension->replicas_differ());
  }
  std::vector<StateTensor> state() const {
    std::vector<StateTensor> list;
    each([&](Extension& addition) {
      for (auto& tensor : addition.state()) list.push_back(std::move(tensor));
    });
    return list;
  }
  /// An object, with the name of each addition and its scalars, if it has any.
  nlohmann::json scalars() const {
    auto all = nlohmann::json::object();
    const auto add = [&](const char* kind, const Extension& addition) {
      all[owner_field(kind)] = addition.name();
      if (auto own = addition.scalars(); !own.is_null()) all[kind] = std::move(own);
    };
    if (reducer) add("own", *reducer);
    if (extension) add("extension", *extension);
    return all;
  }
  /// Scalars of an addition with another name are left out: they mean something else.
  void load_scalars(const nlohmann::json& scalars) const {
    const auto load = [&](const char* kind, Extension& addition) {
      const auto own = scalars.find(kind);
      if (own != scalars.end() && scalars.value(owner_field(kind), addition.name()) == addition.name())
        addition.load_scalars(*own);
    };
    if (reducer) load("own", *reducer);
    if (extension) load("extension", *extension);
  }
  /// The field of scalars() with the name of the reducer ("own") or of the extension.
  static std::string owner_field(const std::string& kind) { return kind + "_of"; }
};

}  // namespace runner
