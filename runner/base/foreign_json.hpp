// JSON of files and messages from elsewhere: bounded in depth, without exceptions. Readers of such values may recurse.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"

namespace runner {

struct JsonFault {
  size_t byte = 0;  ///< from 1, as nlohmann::json counts; 0: unknown
  std::string reason = {};
  std::string twice = {};  ///< a key that occurs twice in the outermost object, which is no fault of JSON
};

/// Builds the value from the events of nlohmann's parser.
template <typename Json>
class ForeignJsonReader {
 public:
  explicit ForeignJsonReader(bool all_digits) : all_digits_(all_digits) {}
  Json root;
  JsonFault fault;

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(typename Json::number_integer_t value) { return put(value); }
  bool number_unsigned(typename Json::number_unsigned_t value) { return put(value); }
  bool number_float(double value, const std::string& written) {
    if (all_digits_ && written.find_first_of(".eE") == written.npos)
      return put(Json::binary(typename Json::binary_t::container_type(written.begin(), written.end())));
    return put(value);
  }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(typename Json::binary_t& value) { return put(std::move(value)); }
  bool start_object(size_t) { return open(Json::object()); }
  bool start_array(size_t) { return open(Json::array()); }
  bool key(std::string& name) {
    const auto members = open_.back()->size();
    member_ = &(*open_.back())[name];
    if (open_.size() == 1 && open_.back()->size() == members) fault.twice = name;
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(size_t byte, const std::string&, const nlohmann::json::exception& error) {
    std::string_view reason =
        error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 9: reason"
    for (const std::string_view end : {std::string_view("] "), std::string_view(": ")})
      if (const auto at = reason.find(end); at != reason.npos) reason.remove_prefix(at + end.size());
    const bool has_place = dynamic_cast<const nlohmann::json::parse_error*>(&error);
    fault.byte = has_place ? byte : 0;
    fault.reason = reason;
    return false;
  }

 private:
  template <typename Part>
  Json& place(Part&& value) {
    if (open_.empty()) return root = std::forward<Part>(value);
    if (open_.back()->is_array()) return open_.back()->emplace_back(std::forward<Part>(value));
    return *member_ = std::forward<Part>(value);
  }
  template <typename Part>
  bool put(Part&& value) {
    place(std::forward<Part>(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == json_depth_max) {
      fault.reason = fmt::format("objects and lists are nested more than {} deep", json_depth_max);
      return false;
    }
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  bool all_digits_;
  std::vector<Json*> open_;
  Json* member_ = nullptr;
};

/// The value of a text; a discarded value if it is not JSON, is nested deeper than json_depth_max, or has a number that no type holds.
/// `all_digits`: a whole number of more than 64 bits becomes a binary value of its digits instead of a double.
template <typename Json = nlohmann::json>
Json foreign_json(std::string_view text, JsonFault* fault = nullptr, bool all_digits = false) {
  ForeignJsonReader<Json> reader(all_digits);
  const bool good = Json::sax_parse(text.begin(), text.end(), &reader);
  if (fault) *fault = std::move(reader.fault);
  return good ? std::move(reader.root) : Json(Json::value_t::discarded);
}

/// The first 80 bytes or so of a text, for messages.
inline std::string shortened_text(const std::string& text) {
  size_t end = 80;
  if (text.size() <= end) return text;
  while (end > 0 && unicode::continues(text[end])) --end;
  return text.substr(0, end) + "...";
}
/// A value as JSON, shortened.
inline std::string shortened_json(const nlohmann::json& value) {
  return shortened_text(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}
/// "a, b and 3 more": the first ten of the names.
inline std::string first_ten(std::vector<std::string> names) {
  const size_t listed = std::min<size_t>(names.size(), 10), others = names.size() - listed;
  names.resize(listed);
  return join(names, ", ") + (others > 0 ? fmt::format(" and {} more", others) : "");
}

}  // namespace runner
