// Reads a GGUF file's metadata strictly: checks types, and knows which keys were read, so that others can be refused.
#pragma once
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/text.hpp"
#include "runner/pretrained/gguf_file.hpp"

namespace runner {

class GgufMetadata {
 public:
  explicit GgufMetadata(const GgufFile& file) : file_(file) {}

  bool has(const std::string& key) const {
    read_.insert(key);
    return file_.metadata().contains(key);
  }

  /// Throws Error(usage) if the key is missing, if its value has another type, or if a text of it is not UTF-8.
  template <typename T>
  T require(const std::string& key) const {
    if (!has(key)) refuse(fmt::format("its metadata have no `{}`", key));
    const auto& value = file_.metadata()[key];
    check_utf8(key, value);
    bool fits = false;
    if constexpr (std::is_same_v<T, bool>)
      fits = value.is_boolean();
    else if constexpr (std::is_integral_v<T>)
      fits = value.is_number_integer() && value >= 0 && value <= INT64_MAX;
    else if constexpr (std::is_floating_point_v<T>)
      fits = value.is_number();
    else if constexpr (std::is_same_v<T, std::string>)
      fits = value.is_string();
    else
      fits = value.is_array() && std::all_of(value.begin(), value.end(), [&](const nlohmann::json& item) {
               using Item = typename T::value_type;
               return std::is_same_v<Item, std::string> ? item.is_string()
                      : std::is_integral_v<Item>        ? item.is_number_integer()
                                                        : item.is_number();
             });
    if (!fits) refuse(fmt::format("`{}` is {}", key, value.is_array() ? "a list" : shortened_json(value)));
    return value.get<T>();
  }

  template <typename T>
  T get(const std::string& key, T absent) const {
    return has(key) ? require<T>(key) : absent;
  }

  /// Throws Error(usage) for a key with this prefix that no function above has asked for.
  void check_all_read(const std::string& prefix) const {
    for (const auto& [key, value] : file_.metadata().items()) {
      if (!key.starts_with(prefix) || read_.contains(key)) continue;
      const auto near = nearest(key, {read_.begin(), read_.end()});
      refuse(fmt::format("`{}` is not a known key{}", shortened_text(key),
                         near ? fmt::format(" (did you mean `{}`?)", *near) : ""));
    }
  }

  [[noreturn]] void refuse(const std::string& reason) const {
    throw usage_error("{}: {}", file_.path().string(), reason);
  }

 private:
  void check_utf8(const std::string& key, const nlohmann::json& value) const {
    const auto check = [&](const nlohmann::json& text, const std::string& place) {
      if (!text.is_string()) return;
      const auto& bytes = text.get_ref<const std::string&>();
      if (const auto bad = first_invalid_utf8(bytes))
        refuse(fmt::format("`{}`{}: byte {} of the text is not UTF-8: the file is damaged", key, place, *bad));
    };
    check(value, "");
    if (value.is_array())
      for (size_t i = 0; i < value.size(); ++i)
        if (value[i].is_string()) check(value[i], fmt::format(", element {}", i));
  }

  const GgufFile& file_;
  mutable std::set<std::string> read_;
};

}  // namespace runner
