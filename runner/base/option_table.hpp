// Binds options to the members of a struct. The initialiser of a member is the default of its option, so each default exists once.
#pragma once
#include <chrono>

#include "runner/base/option.hpp"
#include "runner/base/text.hpp"

namespace runner {

/// The value of a member from checked JSON, and the reverse. An optional member that is unset is null.
template <typename V>
void assign(V& target, const nlohmann::json& value) {
  target = value.get<V>();
}
template <typename V>
void assign(std::optional<V>& target, const nlohmann::json& value) {
  target = value.get<V>();
}
inline void assign(std::chrono::seconds& target, const nlohmann::json& value) {
  target = *parse_duration(value.get<std::string>());
}
inline void assign(std::optional<std::chrono::seconds>& target, const nlohmann::json& value) {
  target = *parse_duration(value.get<std::string>());
}
template <typename V>
nlohmann::json obtain(const V& value) {
  return value;
}
/// A default without a fraction is printed without one.
inline nlohmann::json as_default(nlohmann::json value) {
  to_integer(value);
  return value;
}
template <typename V>
nlohmann::json obtain(const std::optional<V>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}
inline nlohmann::json obtain(const std::chrono::seconds& value) { return write_duration(value); }
inline nlohmann::json obtain(const std::optional<std::chrono::seconds>& value) {
  return value ? obtain(*value) : nlohmann::json();
}

/// The type of the options that a member of type V holds, if their rows do not give one.
template <typename V>
struct MemberType {
  static constexpr auto value = std::is_same_v<V, bool>                       ? Option::Type::boolean
                                : std::is_integral_v<V>                       ? Option::Type::integer
                                : std::is_floating_point_v<V>                 ? Option::Type::number
                                : std::is_same_v<V, std::string>              ? Option::Type::text
                                : std::is_same_v<V, std::vector<std::string>> ? Option::Type::texts
                                : std::is_same_v<V, std::chrono::seconds>     ? Option::Type::duration
                                                                              : Option::Type::boolean;
};
template <typename V>
struct MemberType<std::optional<V>> : MemberType<V> {};

/// The options that a `Target` holds.
template <typename Target>
class OptionTable {
 public:
  template <typename Value>
  OptionTable& add(Option option, Value Target::*member) {
    if (option.type == Option::Type::boolean) option.type = MemberType<Value>::value;
    if (!option.required) option.default_value = as_default(obtain(Target().*member));
    rows_.push_back({[member](Target& target, const nlohmann::json& value) { assign(target.*member, value); },
                     [member](const Target& target) { return obtain(target.*member); }});
    options_.push_back(std::move(option));
    return *this;
  }
  /// An option with its own conversion.
  OptionTable& add(Option option, std::function<void(Target&, const nlohmann::json&)> set,
                   std::function<nlohmann::json(const Target&)> get) {
    rows_.push_back({std::move(set), std::move(get)});
    options_.push_back(std::move(option));
    return *this;
  }
  /// An option that no member holds, because the program does not read it.
  OptionTable& add(Option option) {
    rows_.emplace_back();
    options_.push_back(std::move(option));
    return *this;
  }

  const std::vector<Option>& options() const { return options_; }

  /// Missing and null values are defaults. `values` must be checked; others than those in the table are ignored.
  Target read(const nlohmann::json& values) const {
    Target target;
    for (size_t i = 0; i < rows_.size(); ++i)
      if (auto found = values.find(options_[i].name); rows_[i].set && found != values.end() && !found->is_null())
        rows_[i].set(target, *found);
    return target;
  }
  /// The values as an object, without those that are unset.
  nlohmann::json print(const Target& target) const {
    auto object = nlohmann::json::object();
    for (size_t i = 0; i < rows_.size(); ++i)
      if (auto value = rows_[i].get ? rows_[i].get(target) : nlohmann::json(); !value.is_null())
        object[options_[i].name] = value;
    return object;
  }

 private:
  struct Row {
    std::function<void(Target&, const nlohmann::json&)> set = {};
    std::function<nlohmann::json(const Target&)> get = {};
  };
  std::vector<Option> options_;
  std::vector<Row> rows_;
};

}  // namespace runner
