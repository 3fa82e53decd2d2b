// Names of other tools in a layer: replaced by the keys that they mean, accepted with a note, or refused.
#pragma once
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"
#include "runner/config/foreign_names.hpp"
#include "runner/config/layer.hpp"

namespace runner {

class Translation {
 public:
  /// `names`: see find_foreign_name(). Mistakes go to `diagnostics`.
  Translation(const ForeignNames& names, std::vector<Diagnostic>& diagnostics)
      : names_(names), diagnostics_(diagnostics) {}

  /// Whether translate() handles "section.name", or ".name" outside the sections.
  bool knows(const std::string& dotted) const { return find(dotted) != nullptr; }

  /// Translates the names in `own`. `below`: the layers below it.
  void translate(Layer& own, const Layer& below);

 private:
  const ForeignName* find(const std::string& dotted) const;
  /// `family`: model.name.
  void translate(Layer& own, const std::string& dotted, const ForeignName& foreign, const std::string& family);

  const ForeignNames& names_;
  std::vector<Diagnostic>& diagnostics_;
};

}  // namespace runner
