// Reads configuration files of other tools: YAML, whose keys and values have their source locations, and the tool that a file is for.
#include <fmt/format.h>
#include <yaml.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/config/diagnostics.hpp"
#include "runner/config/file_format.hpp"
#include "runner/config/tool_names.hpp"
#include "runner/import/deepspeed_keys.hpp"
#include "runner/import/tool_importer.hpp"

namespace runner {

namespace {

using nlohmann::json;

constexpr uintmax_t configuration_bytes_max = 1 << 20;
constexpr int yaml_depth_max = 100;
constexpr int yaml_values_max = 20'000;

/// A plain scalar. YAML 1.1 has more words for true and false than JSON.
json plain_scalar(const std::string& text) {
  const std::string word = lower(text);
  if (word.empty() || word == "~" || word == "null") return nullptr;
  if (word == "true" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "no" || word == "off") return false;
  const auto written = std::string_view(text).substr(text.front() == '+' ? 1 : 0);
  if (const auto whole = parse_number<int64_t>(written)) return *whole;
  const bool digits =
      text.find_first_of("0123456789") != std::string::npos && text.find_first_of("nN") == std::string::npos;
  if (const auto number = parse_number<double>(written); digits && number) return *number;
  return text;
}

class YamlReader {
 public:
  YamlReader(const std::string& text, const std::string& name) : name_(name), lines_(split(text, '\n')) {
    if (!yaml_parser_initialize(&parser_)) throw std::bad_alloc();
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
  }
  ~YamlReader() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  YamlReader(const YamlReader&) = delete;
  YamlReader& operator=(const YamlReader&) = delete;

  LocatedJson whole() {
    while (event_.type != YAML_DOCUMENT_START_EVENT) {
      if (event_.type == YAML_STREAM_END_EVENT)
        fail(here(), "the file is empty; a configuration is a mapping: KEY: VALUE");
      next();
    }
    next();
    const Origin place = here();
    auto root = value(0);
    root.key_place = place;
    if (!root.is_object) fail(place, "a configuration is a mapping: KEY: VALUE");
    next();
    next();
    if (event_.type != YAML_STREAM_END_EVENT) fail(here(), "a file contains one document; nothing may follow it");
    return root;
  }

 private:
  Origin at(const yaml_mark_t& mark, size_t span = 1) const {
    Origin place{.kind = Origin::Kind::file, .file = name_};
    place.line = static_cast<int>(mark.line) + 1;
    place.column = static_cast<int>(mark.column) + 1;
    if (mark.line < lines_.size()) place.excerpt = excerpt_of(lines_[mark.line]);
    place.span = static_cast<int>(std::max<size_t>(1, span));
    return place;
  }
  Origin here() const {
    const bool one_line = event_.start_mark.line == event_.end_mark.line;
    return at(event_.start_mark, one_line ? event_.end_mark.column - event_.start_mark.column : 1);
  }

  [[noreturn]] static void fail(const Origin& place, const std::string& message) {
    throw RecipeError({{place, "syntax", message}});
  }

  void next() {
    yaml_event_delete(&event_);
    if (yaml_parser_parse(&parser_, &event_)) return;
    const bool marked = parser_.error == YAML_SCANNER_ERROR || parser_.error == YAML_PARSER_ERROR;
    fail(marked ? at(parser_.problem_mark) : Origin{.kind = Origin::Kind::file, .file = name_},
         fmt::format("this is not YAML: {}", parser_.problem ? parser_.problem : "it cannot be read"));
  }

  void count(const Origin& place, int values) {
    values_ += values;
    if (values_ > yaml_values_max)
      fail(place, fmt::format("a configuration has at most {} values, with those of anchors and the copies of aliases",
                              yaml_values_max));
  }

  /// The value that begins with the current event, which becomes its last one.
  LocatedJson value(int depth) {
    const Origin place = here();
    if (depth > yaml_depth_max) fail(place, fmt::format("more than {} levels", yaml_depth_max));
    count(place, 1);
    const int before = values_;
    if (event_.type == YAML_ALIAS_EVENT) return copy(word(event_.data.alias.anchor), place);
    std::string anchor;
    LocatedJson node;
    if (event_.type == YAML_SCALAR_EVENT) {
      const auto& scalar = event_.data.scalar;
      anchor = word(scalar.anchor);
      const std::string text(reinterpret_cast<const char*>(scalar.value), scalar.length);
      node.value = scalar.style == YAML_PLAIN_SCALAR_STYLE ? plain_scalar(text) : json(text);
    } else if (event_.type == YAML_SEQUENCE_START_EVENT) {
      anchor = word(event_.data.sequence_start.anchor);
      node.value = json::array();
      for (next(); event_.type != YAML_SEQUENCE_END_EVENT; next()) node.value.push_back(value(depth + 1).plain());
    } else {
      anchor = word(event_.data.mapping_start.anchor);
      mapping(node, depth);
    }
    node.place = place;
    if (!anchor.empty()) {
      const int size = values_ - before + 1;
      count(place, size);
      anchors_[anchor] = {node, size};
    }
    return node;
  }

  void mapping(LocatedJson& node, int depth) {
    node.is_object = true;
    std::vector<LocatedJson> merged;
    for (next(); event_.type != YAML_MAPPING_END_EVENT; next()) {
      const Origin key_place = here();
      if (event_.type != YAML_SCALAR_EVENT) fail(key_place, "a key is a word");
      const std::string key(reinterpret_cast<const char*>(event_.data.scalar.value), event_.data.scalar.length);
      if (node.find(key)) fail(key_place, fmt::format("`{}` occurs twice", key));
      next();
      auto member = value(depth + 1);
      member.key_place = key_place;
      if (key == "<<" && member.members.empty()) fail(key_place, "`<<` merges one mapping");
      if (key == "<<")
        merged.push_back(std::move(member));
      else
        node.members.emplace_back(key, std::move(member));
    }
    for (const auto& other : merged)
      for (const auto& [key, member] : other.members)
        if (!node.find(key)) node.members.emplace_back(key, member);
  }

  LocatedJson copy(const std::string& anchor, const Origin& place) {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) fail(place, fmt::format("there is no anchor &{} before this alias", anchor));
    count(place, found->second.second);
    auto node = found->second.first;
    node.place = place;
    return node;
  }

  static std::string word(const unsigned char* text) { return text ? reinterpret_cast<const char*>(text) : ""; }

  std::string name_;
  std::vector<std::string> lines_;
  yaml_parser_t parser_ = {};
  yaml_event_t event_ = {};
  std::map<std::string, std::pair<LocatedJson, int>> anchors_;  ///< and the number of their values
  int values_ = 0;
};

/// How many names of a configuration have a row, and how many there are. A table with a row may have any further names, as the arguments of
/// a class.
void count_known(const ToolNames& tool, const std::string& path, const LocatedJson& node, int& known, int& all) {
  const bool has_one = tool.find(path);
  known += has_one;
  all += has_one || !tool.find(path.substr(0, path.rfind('.')));
  for (const auto& [name, member] : node.members) count_known(tool, path + "." + name, member, known, all);
}

}  // namespace

LocatedJson parse_located_yaml(const std::string& text, const std::string& name) {
  return YamlReader(text, name).whole();
}

std::vector<std::string> configuration_tools() {
  std::vector<std::string> tools;  // every command lists them; the tables themselves are read when they are needed
  for (const auto& names : names_files)
    if (names.tool != "other") tools.emplace_back(names.tool);
  return tools;
}

LocatedJson read_configuration(const std::string& file, bool is_json) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) throw usage_error("there is no file {}", file);
  if (fs::file_size(file) > configuration_bytes_max)
    throw usage_error("{} has {}; a configuration has at most 1 MiB", file,
                      format_bytes(static_cast<double>(fs::file_size(file))));
  const auto suffix = lower(fs::path(file).extension().string());
  if (is_json || suffix == ".json") return parse_located_json(read_file(file), file);
  if (suffix == ".toml") return parse_located_toml(read_file(file), file);
  if (suffix == ".yaml" || suffix == ".yml") return parse_located_yaml(read_file(file), file);
  throw usage_error("{}: a configuration is a file .json, .toml, .yaml or .yml", file);
}

std::string tool_of(const LocatedJson& configuration) {
  std::string best;
  int most = 1, of_deepspeed = 0, names = 0;
  for (const auto& [name, node] : configuration.members) {
    ++names;
    if (find_deepspeed_key(name)) ++of_deepspeed;
  }
  if (2 * of_deepspeed > names) return "deepspeed";
  for (const auto& tool : tool_names()) {
    if (tool.tool == "other") continue;
    int known = 0, all = 0;
    for (const auto& [name, node] : configuration.members) count_known(tool, name, node, known, all);
    if (known > most && 3 * known >= all) {
      most = known;
      best = tool.tool;
    }
  }
  return best;
}

}  // namespace runner
