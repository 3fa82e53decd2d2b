#include "runner/import/recipe_sections.hpp"

#include <fmt/format.h>

#include <map>

#include "runner/base/quoting.hpp"
#include "runner/config/config.hpp"
#include "runner/config/key_table.hpp"

namespace runner {

std::string as_sections(const Imported& meaning) {
  std::string text, strategy;
  std::map<std::string, std::string> lines;
  for (const auto& note : meaning.notes) text += "# " + one_line(note) + "\n";
  for (const auto& value : meaning.values) {
    const auto name = value.key.substr(value.key.find('.') + 1);
    const auto line = value.value.is_null() ? fmt::format("# {} stays unset: nothing is clipped\n", name)
                                            : fmt::format("{} = {}\n", name, toml_value(value.value));
    if (value.key.starts_with("strategy."))
      strategy += line;
    else
      lines[value.key] = line;
  }
  for (const auto& section : sections()) {
    std::string body = section.name == "strategy" ? strategy : "";
    for (const auto& key : key_table())
      if (key.section == section.name) body += lines[key.dotted()];
    if (!body.empty()) text += (text.empty() ? "" : "\n") + fmt::format("[{}]\n{}", section.name, body);
  }
  return text;
}

}  // namespace runner
