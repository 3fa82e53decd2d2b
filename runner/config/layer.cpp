#include "runner/config/layer.hpp"

#include "runner/base/text.hpp"
#include "runner/config/diagnostics.hpp"

namespace runner {

namespace {

/// The name of the strategy in lower case; "auto" if the layer names none.
std::string strategy_of(const Layer& layer) {
  const auto name = layer.find("strategy.name");
  return name != layer.end() && name->second.value.is_string() ? lower(name->second.value.get<std::string>()) : "auto";
}

}  // namespace

bool replaces_strategy(const Layer& upper, const Layer& lower) {
  return upper.contains("strategy.name") && strategy_of(upper) != strategy_of(lower);
}

std::string drop_strategy(Layer& lower, const Layer& upper) {
  if (!replaces_strategy(upper, lower)) return "";
  const std::string old = strategy_of(lower);
  std::vector<std::string> dropped;
  std::erase_if(lower, [&](const auto& item) {
    const auto& [key, located] = item;
    const bool option = key.starts_with("strategy.") || located.of_strategy;
    if (!option || key == "strategy.registry") return false;  // the registry defines the names; it remains
    const std::string place = place_of(located.origin);
    if (key == "strategy.config" && located.from_configuration)
      dropped.push_back(fmt::format("{} ({}; its values outside [strategy] remain)", key, place));
    else if (key != "strategy.name" && !located.value.is_null() && !located.from_configuration)
      dropped.push_back(fmt::format("{} ({})", key, place));
    return true;
  });
  if (dropped.empty()) return "";
  return fmt::format("the strategy \"{}\" replaces \"{}\", so these have no effect: {}", strategy_of(upper), old,
                     join(dropped, ", "));
}

}  // namespace runner
