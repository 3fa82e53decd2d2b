// The Reducer and the Extension of a strategy, of which it may have both.
#pragma once
#include <memory>
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
  /// An object, without fields for those that have no scalars.
  nlohmann::json scalars() const {
    auto all = nlohmann::json::object();
    const auto add = [&](const char* name, const nlohmann::json& scalars) {
      if (!scalars.is_null()) all[name] = scalars;
    };
    if (reducer) add("own", reducer->scalars());
    if (extension) add("extension", extension->scalars());
    return all;
  }
  void load_scalars(const nlohmann::json& scalars) const {
    if (auto own = scalars.find("own"); reducer && own != scalars.end()) reducer->load_scalars(*own);
    if (auto own = scalars.find("extension"); extension && own != scalars.end()) extension->load_scalars(*own);
  }
};

}  // namespace runner
