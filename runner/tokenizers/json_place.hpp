// Values of a JSON file with their JSON pointers, for errors that say where a mistake is.
#pragma once
#include <nlohmann/json.hpp>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"

namespace runner {

/// A value of a file: "tokenizer.json: /model/vocab: ...". All functions throw Error(usage) with the place, the value found and
/// what is allowed.
class JsonPlace {
 public:
  using Json = nlohmann::json;
  JsonPlace(const fs::path& file, const Json& root) : file_(&file), value_(&root) {}

  const Json& json() const { return *value_; }
  const std::string& pointer() const { return pointer_; }
  bool is_null() const { return value_->is_null(); }
  bool has(std::string_view key) const;              ///< and it is not null
  JsonPlace operator[](std::string_view key) const;  ///< required
  JsonPlace at(size_t index) const;
  std::vector<JsonPlace> items() const;  ///< of an array

  std::string string() const;
  bool boolean() const;
  int64_t integer(int64_t least, int64_t most) const;
  double number() const;
  std::string string_or(std::string_view key, std::string otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  /// A string of one character.
  char32_t character() const;
  /// The index of a string among `choices`.
  size_t choice(const std::vector<std::string>& choices) const;

  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  JsonPlace(const fs::path* file, const Json* value, std::string pointer)
      : file_(file), value_(value), pointer_(std::move(pointer)) {}
  [[noreturn]] void expected(const char* what) const;
  const fs::path* file_;
  const Json* value_;
  std::string pointer_;
};

/// A kind of components: its name in "type", and the function that makes one of the place that describes it.
template <class Component>
struct ComponentKind {
  const char* name;
  std::unique_ptr<Component> (*make)(const JsonPlace& place);

  /// The kind of the class `Own`, which may need no description.
  template <class Own>
  static ComponentKind of(const char* name) {
    return {name, [](const JsonPlace& place) -> std::unique_ptr<Component> {
              if constexpr (std::is_constructible_v<Own, const JsonPlace&>) return std::make_unique<Own>(place);
              if constexpr (std::is_default_constructible_v<Own>) return std::make_unique<Own>();
            }};
  }
};
/// The component that `place` describes; nullptr: null. Throws Error(usage) with the place of a mistake.
template <class Component>
std::unique_ptr<Component> read_component(const JsonPlace& place,
                                          std::initializer_list<ComponentKind<Component>> kinds) {
  if (place.is_null()) return nullptr;
  std::vector<std::string> names;
  for (const auto& kind : kinds) names.emplace_back(kind.name);
  return kinds.begin()[place["type"].choice(names)].make(place);
}

/// Throws Error(usage) for more than tokenizer_bytes_max.
void check_tokenizer_size(const fs::path& file, size_t bytes);
/// Parses a JSON file, also one in a GGUF file, of at most tokenizer_bytes_max and json_depth_max. Throws Error(usage) with line and
/// column of a syntax error.
nlohmann::json read_json_file(const fs::path& file);

}  // namespace runner
