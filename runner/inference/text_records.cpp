#include "runner/inference/text_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <iterator>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"

namespace runner {

using Json = nlohmann::ordered_json;

namespace {

std::string text_of(const Json& record, const std::vector<std::string>& keys, const std::string& place) {
  if (record.is_string()) return record.get<std::string>();
  if (!record.is_object()) throw usage_error("{}: is neither a JSON object nor a JSON string", place);
  for (const auto& key : keys)
    if (const auto found = record.find(key); found != record.end() && found->is_string()) return *found;
  std::vector<std::string> own;
  for (const auto& [key, value] : record.items()) own.push_back(key);
  const auto near = nearest(keys.front(), own);
  throw usage_error("{}: the record has no `{}` (a text){}", place, keys.front(),
                    near && *near != keys.front() ? fmt::format("; it has `{}`", *near) : "");
}

}  // namespace

std::string content_of(const std::string& file) {
  auto content = file == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(file);
  if (content.starts_with("\xEF\xBB\xBF")) content.erase(0, 3);
  return content;
}

std::string shown_file(const std::string& file) { return file == "-" ? "standard input" : file; }

std::vector<TextRecord> read_texts(const std::string& file, bool records, const std::vector<std::string>& keys) {
  records = records || fs::path(file).extension() == ".jsonl";
  auto content = content_of(file);
  if (content.ends_with('\n')) content.pop_back();
  std::vector<TextRecord> texts;
  if (content.empty()) throw usage_error("{} has no text", shown_file(file));
  int64_t number = 0;
  for (auto& line : split(content, '\n')) {
    TextRecord text{.id = texts.size(), .place = fmt::format("{}:{}", shown_file(file), ++number)};
    if (line.ends_with('\r')) line.pop_back();
    if (first_invalid_utf8(line)) throw usage_error("{}: the line is not UTF-8", text.place);
    if (!records) {
      text.text = std::move(line);
    } else {
      if (trim(line).empty()) continue;
      const auto record = Json::parse(line, nullptr, /*allow_exceptions=*/false);
      text.text = text_of(record, keys, text.place);
      if (record.is_object() && record.contains("id")) text.id = record["id"];
    }
    texts.push_back(std::move(text));
  }
  if (texts.empty()) throw usage_error("{} has no record", shown_file(file));
  return texts;
}

}  // namespace runner
