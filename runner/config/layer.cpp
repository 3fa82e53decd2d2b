#include "runner/config/layer.hpp"

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/config/device_request.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/value_check.hpp"

namespace runner {

namespace {

/// The name of the strategy in lower case; "auto" if the layer names none.
std::string strategy_of(const Layer& layer) {
  const auto name = layer.find("strategy.name");
  return name != layer.end() && name->second.value.is_string() ? lower(name->second.value.get<std::string>()) : "auto";
}

bool sets_count(const Located& devices) {
  std::string why;
  auto request = devices.origin.kind == Origin::Kind::set ? parse_devices(devices.value, why) : std::nullopt;
  return request && request->kind == DeviceRequest::Kind::count && request->count > 0;
}

void merge(LocatedJson& tree, const LocatedJson& again) {
  for (const auto& [name, value] : again.members) {
    auto found = std::ranges::find(tree.members, name, [](const auto& member) { return member.first; });
    if (found == tree.members.end())
      tree.members.emplace_back(name, value);
    else if (found->second.is_object && value.is_object)
      merge(found->second, value);
    else
      found->second = value;
  }
}

/// A value of a key as programs read it: the default instead of null, and the choice instead of another spelling.
nlohmann::json meaning_of(const std::string& dotted, const nlohmann::json& given) {
  const Key* key = find_key(dotted);
  if (!key) return given;
  nlohmann::json value = given.is_null() ? key->default_value : given, converted = value;
  return value.is_null() || check_value(*key, converted) ? value : converted;
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
    const bool of_every_strategy = key.starts_with("strategy.") && key != "strategy.name" && find_key(key);
    if (of_every_strategy) return false;
    const std::string place = place_of(located.origin);
    if (key == "strategy.config" && located.value.is_null())
      dropped.push_back(fmt::format("{} ({}; its values outside [strategy] remain)", key, place));
    else if (key != "strategy.name" && !located.value.is_null())
      dropped.push_back(fmt::format("{} ({})", key, place));
    return true;
  });
  if (dropped.empty()) return "";
  return fmt::format("the strategy \"{}\" replaces \"{}\", so these have no effect: {}", strategy_of(upper), old,
                     join(dropped, ", "));
}

void merge(Layer& lower, const Layer& upper) {
  for (const auto& key : key_table()) {
    auto decides = upper.find(key.needs.key);
    if (decides != upper.end() && !key.needs.met_by(meaning_of(key.needs.key, decides->second.value)))
      lower.erase(key.dotted());
  }
  if (auto devices = upper.find("devices.devices"); devices != upper.end() && sets_count(devices->second))
    lower.erase("devices.cpu_processes");
  for (const auto& [key, located] : upper) {
    auto found = lower.find(key);
    if (found != lower.end() && located.part && located.value.is_object() && found->second.value.is_object() &&
        !located.tree) {
      found->second.value.update(located.value);
      found->second.origin = located.origin;
      found->second.level = located.level;
    } else {
      lower[key] = located;
    }
  }
}

void set_again(Located& located, Located again) {
  if (!again.part || !located.value.is_object() || !again.value.is_object()) {
    located = std::move(again);
    return;
  }
  located.value.update(again.value, /*merge_objects=*/true);
  if (located.tree && again.tree) merge(*located.tree, *again.tree);
}

}  // namespace runner
