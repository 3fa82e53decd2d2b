#include "runner/inference/text_records.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <iterator>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/data/data.hpp"
#include "runner/data/json_records.hpp"
#include "runner/data/records.hpp"
#include "runner/data/source_files.hpp"

namespace runner {

using Json = nlohmann::ordered_json;

namespace {

std::string text_of(const Json& record, const std::vector<std::string>& keys) {
  if (record.is_string()) return record.get<std::string>();
  if (!record.is_object()) throw usage_error("is neither a JSON object nor a JSON string");
  for (const auto& key : keys)
    if (const auto found = record.find(key); found != record.end() && found->is_string()) return *found;
  std::vector<std::string> own;
  for (const auto& [key, value] : record.items()) own.push_back(key);
  const auto near = nearest(keys.front(), own);
  throw usage_error("the record has no `{}` (a text){}", keys.front(),
                    near && *near != keys.front() ? fmt::format("; it has `{}`", *near) : "");
}

/// The lines without their ends; of an empty text none.
std::vector<std::string> lines_of(std::string content) {
  if (content.ends_with('\n')) content.pop_back();
  if (content.empty()) return {};
  auto lines = split(content, '\n');
  for (auto& line : lines)
    if (line.ends_with('\r')) line.pop_back();
  return lines;
}

std::string place_of_line(const std::string& file, size_t index) {
  return fmt::format("{}:{}", shown_file(file), index + 1);
}

void for_each_json_line(const Recipe::Data& data, const std::string& file, const std::string& content,
                        const UseRecord& use, size_t number) {
  const auto lines = lines_of(content);
  FaultyRows faulty;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (trim(lines[i]).empty()) continue;
    const auto place = place_of_line(file, i);
    try {
      const auto record = json_of_line(lines[i], place);
      try {
        use(record, place, record_id(data, record, number++));
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("{}: {}", place, error.what()));
      }
    } catch (const Error& error) {
      faulty.add(error, [&] { return place; });
      if (trim(lines[i]) == "{") break;  // the next lines belong to this record
    }
  }
  faulty.raise(/*all=*/true);
}

}  // namespace

std::string content_of(const std::string& file) {
  auto content = file == "-" ? std::string(std::istreambuf_iterator<char>(std::cin), {}) : read_file(file);
  if (content.starts_with("\xEF\xBB\xBF")) content.erase(0, 3);
  return content;
}

std::string shown_file(const std::string& file) { return file == "-" ? "standard input" : file; }

bool has_records(const std::string& file) { return !record_format_of(file, "").empty(); }

void for_each_record(const std::string& file, const UseRecord& use, size_t first) {
  Recipe::Data data;
  data.format = file == "-" ? "jsonl" : record_format_of(file);
  if (data.format == "jsonl") {
    const auto content = content_of(file);
    const auto begin = content.find_first_not_of(" \t\r\n");
    if (file == "-" || begin == std::string::npos || content[begin] != '[')
      return for_each_json_line(data, file, content, use, first);
  }
  check_source_files("the input", {file});
  const auto records = open_records(data, file);
  size_t number = 0;
  for (const auto& part : records->parts(size_t{1} << 26))
    records->for_each(part, [&](const Json& record, size_t) {
      use(record, fmt::format("{}, record {}", file, number), record_id(data, record, first + number));
      return ++number > 0;
    });
}

std::vector<TextRecord> read_texts(const std::string& file, bool records, const std::vector<std::string>& keys) {
  std::vector<TextRecord> texts;
  if (records || has_records(file)) {
    for_each_record(file, [&](const Json& record, const std::string& place, Json id) {
      texts.push_back({.id = std::move(id), .text = text_of(record, keys), .place = place});
    });
    if (texts.empty()) throw usage_error("{} has no record", shown_file(file));
    return texts;
  }
  const auto lines = lines_of(content_of(file));
  if (lines.empty()) throw usage_error("{} has no text", shown_file(file));
  FaultyRows faulty;
  for (size_t i = 0; i < lines.size(); ++i) {
    const auto& text = texts.emplace_back(TextRecord{.id = i, .text = lines[i], .place = place_of_line(file, i)});
    const auto place = [&] { return text.place; };
    try {
      check_record_bytes(lines[i], place);
      if (first_invalid_utf8(lines[i])) throw usage_error("{}: the line is not UTF-8", text.place);
    } catch (const Error& error) {
      faulty.add(error, place);
    }
  }
  faulty.raise(/*all=*/true);
  return texts;
}

}  // namespace runner
