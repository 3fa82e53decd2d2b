#include "runner/config/computed_recipe.hpp"

#include "runner/config/config.hpp"

namespace runner {

using nlohmann::json;

namespace {

class Writer {
 public:
  explicit Writer(const std::function<Origin(const std::string&)>& place) : place_(place) {}

  /// Values come before tables, because keys after a TOML header belong to that table.
  void table(const json& table, const std::string& header, const std::string& path) {
    for (const auto& [name, value] : table.items())
      if (!value.is_object() && !value.is_null()) line(toml_key(name) + " = " + toml_value(value), join(path, name));
    for (const auto& [name, value] : table.items()) {
      if (!value.is_object()) continue;
      auto inner = join(path, name), inner_header = join(header, toml_key(name));
      line("[" + inner_header + "]", inner);
      this->table(value, inner_header, inner);
    }
  }

  ComputedRecipe done() { return std::move(written_); }

 private:
  static std::string join(const std::string& path, const std::string& name) {
    return path.empty() ? name : path + "." + name;
  }
  void line(const std::string& text, const std::string& path) {
    written_.toml += text + "\n";
    written_.places.push_back(place_(path));
  }

  const std::function<Origin(const std::string&)>& place_;
  ComputedRecipe written_;
};

}  // namespace

ComputedRecipe write_computed(const json& recipe, const std::function<Origin(const std::string&)>& place) {
  Writer writer(place);
  writer.table(recipe, "", "");
  return writer.done();
}

}  // namespace runner
