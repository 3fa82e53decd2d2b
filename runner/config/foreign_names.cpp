// The lookup of other tools' names: the lists in this folder, then those that strategies and importers know, then schemas/names.
#include "runner/config/foreign_names.hpp"

#include "runner/config/key_table.hpp"
#include "runner/config/tool_names.hpp"

namespace runner {

const ForeignName* find_foreign_name(const std::string& name, const ForeignNames& more) {
  static const ForeignNames table = [] {
    ForeignNames all;
    for (auto& entry : lightning_names()) all.emplace(entry.name, entry);
    for (auto& entry : parallel_names()) all.emplace(entry.name, entry);
    for (auto& entry : elastic_names()) all.emplace(entry.name, entry);
    return all;
  }();
  for (const auto* names : {&table, &more})
    if (auto found = names->find(name); found != names->end()) return &found->second;
  return find_tool_name(name);
}

std::optional<std::string> key_meant_by(const std::string& name, const ForeignNames& more) {
  if (const auto* section = find_section(name); section && !section->main_key.empty())
    return name + "." + section->main_key;
  for (const auto& key : key_table())
    if (key.name == name) return key.dotted();
  const auto* foreign = find_foreign_name(name, more);
  return foreign && !foreign->key.empty() ? std::optional(foreign->key) : std::nullopt;
}

}  // namespace runner
