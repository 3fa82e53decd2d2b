#include "runner/config/unknown_names.hpp"

#include "runner/base/text.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

namespace {

/// A name of another section or tool is suggested before one that is spelled similarly.
Diagnostic unknown(const std::string& message, const std::string& name, const Origin& place,
                   const std::vector<std::string>& similar, const ForeignNames& names) {
  Diagnostic diagnostic{place, "unknown-key", message};
  diagnostic.suggestion = key_meant_by(name, names);
  if (!diagnostic.suggestion) diagnostic.suggestion = nearest(name, similar);
  return diagnostic;
}

std::vector<std::string> section_names() {
  std::vector<std::string> names;
  for (const auto& section : sections()) names.push_back(section.name);
  return names;
}

}  // namespace

Diagnostic unknown_section(const std::string& name, bool table, const Origin& place, const ForeignNames& names) {
  auto similar = section_names();
  for (const auto& key : top_level_keys()) similar.push_back(key.name);
  auto diagnostic =
      unknown(fmt::format("unknown {} `{}`", table ? "section" : "key", name), name, place, similar, names);
  diagnostic.allowed = section_names();
  auto meant = diagnostic.suggestion.value_or(name);
  diagnostic.section = meant.substr(0, meant.find('.'));
  diagnostic.name = name;
  return diagnostic;
}

Diagnostic unknown_key(const std::string& section, const std::string& name, const Origin& place,
                       const ForeignNames& names) {
  std::vector<std::string> here;
  for (const auto& key : key_table())
    if (key.section == section) here.push_back(key.name);
  auto diagnostic = unknown(fmt::format("unknown key `{}` in [{}]", name, section), name, place, here, names);
  diagnostic.allowed = here;
  diagnostic.section = section;
  diagnostic.name = name;
  return diagnostic;
}

Diagnostic unknown_removal(const std::string& name, const Origin& place, const ForeignNames& names) {
  auto all = section_names();
  for (const auto& key : key_table()) all.push_back(key.dotted());
  return unknown(fmt::format("recipes have no section or key `{}`", name), name, place, all, names);
}

}  // namespace runner
