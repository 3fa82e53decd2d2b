// The tables of a TOML file or an override as a layer of located values.
#pragma once
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/foreign_names.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/layer.hpp"
#include "runner/config/toml_source.hpp"

namespace runner {

/// Names of other tools in a layer: replaced by the keys that they mean, accepted with a note, or refused.
class Translation {
 public:
  /// `names`: see find_foreign_name(). Mistakes go to `diagnostics`.
  Translation(FindName names, std::vector<Diagnostic>& diagnostics) : names_(names), diagnostics_(diagnostics) {}

  /// Whether translate() handles "section.name", or ".name" outside the sections.
  bool knows(const std::string& dotted) const { return find(dotted) != nullptr; }

  /// Translates the names in `own`. `below`: the layers below it.
  void translate(Layer& own, const Layer& below);

 private:
  const ForeignName* find(const std::string& dotted) const;
  /// `family`: model.name.
  void translate(Layer& own, const std::string& dotted, const ForeignName& foreign, const std::string& family);

  FindName names_;
  std::vector<Diagnostic>& diagnostics_;
};

class TomlLayer {
 public:
  /// `names`: of other tools, see find_foreign_name(). Mistakes go to `diagnostics`: unknown names, unset variables.
  TomlLayer(FindName names, const Translation& translation, std::vector<Diagnostic>& diagnostics)
      : names_(names), translation_(translation), diagnostics_(diagnostics) {}

  /// Expands ${env:NAME}. Names of other tools stay as they are, those outside the sections as ".name". `folder`: relative paths in
  /// the values are resolved against it.
  Layer read(const toml::table& table, const TomlSource& source, const fs::path& folder);

 private:
  void read_section(const Section& section, const toml::table& table, const TomlSource& source, const fs::path& folder,
                    Layer& layer);
  bool translated_at_top(const std::string& name, const toml::node& value) const;
  nlohmann::json expand(nlohmann::json value, const Origin& place, const std::string& section);
  std::string expand(const std::string& text, const Origin& place, const std::string& section);
  void problem(const Origin& place, const std::string& code, const std::string& message, const std::string& section);

  FindName names_;
  const Translation& translation_;
  std::vector<Diagnostic>& diagnostics_;
};

/// The TOML of the override `source.name`, "KEY=VALUE". A bare word or a date is read as a string, and so is every word if the key
/// takes strings. nullopt after a mistake.
std::optional<toml::table> parse_override(const TomlSource& source, std::vector<Diagnostic>& diagnostics);

}  // namespace runner
