#include "runner/data/json_records.hpp"

#include <algorithm>

#include "runner/base/foreign_json.hpp"
#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

constexpr std::string_view byte_order_mark = "\xef\xbb\xbf", white_space = " \t\r\n";

/// The end of the JSON value that begins at `begin`: behind its last bracket or quote, or at the comma, bracket or end that follows
/// a number or word. Does not check the value.
size_t value_end(std::string_view text, size_t begin, size_t end) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = begin; i < end; ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\') ++i;
      if (c != '"') continue;
      quoted = false;
      if (depth == 0) return i + 1;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (--depth <= 0) return i + (depth == 0);
    } else if (c == ',' && depth == 0) {
      return i;
    }
  }
  return end;
}

std::string reason_of(const JsonFault& fault, std::string_view record) {
  return fault.reason + (trim(record) == "{" ? "; each record must be on one line, or all of them in one array" : "");
}

}  // namespace

JsonRecords::JsonRecords(const fs::path& path, bool all_digits) : map_(path), all_digits_(all_digits) {
  text_ = {reinterpret_cast<const char*>(map_.bytes().data()), map_.bytes().size()};
  records_ = {text_.starts_with(byte_order_mark) ? byte_order_mark.size() : 0, text_.size()};
  const size_t first = text_.find_first_not_of(white_space, records_.begin);
  if (first == std::string_view::npos || text_[first] != '[') return;
  array_ = true;
  const size_t last = text_.find_last_not_of(white_space);
  if (last == first || text_[last] != ']')
    throw usage_error("{}: the array that begins on this line has no end; is the file cut off?", place(first));
  records_ = {first + 1, last};
}

std::string_view JsonRecords::next_line(Range& range) const {
  while (range.begin < range.end) {
    size_t end = text_.find('\n', range.begin);
    end = std::min(end, range.end);
    std::string_view line = text_.substr(range.begin, end - range.begin);
    range.begin = end + 1;
    const size_t first = line.find_first_not_of(white_space);
    if (first != std::string_view::npos) return line.substr(first, line.find_last_not_of(white_space) + 1 - first);
  }
  return {};
}

void JsonRecords::refuse(size_t offset, std::string_view reason) const {
  const size_t line_begin = text_.rfind('\n', offset) + 1;  // npos + 1 = 0
  throw usage_error("{}:{}: not JSON: {}", place(offset), offset - line_begin + 1, reason);
}

std::string_view JsonRecords::next_element(Range& range) const {
  size_t first = text_.find_first_not_of(white_space, range.begin);
  if (first >= range.end) return {};
  const bool comma = text_[first] == ',';
  if (range.begin == records_.begin) {
    if (comma) refuse(first, "there is no element in front of this comma");
  } else {
    if (!comma) refuse(first, "a comma is missing between two elements of the array");
    const size_t next = text_.find_first_not_of(white_space, first + 1);
    if (next >= records_.end || text_[next] == ',') refuse(first, "there is no element behind this comma");
    first = next;
  }
  const size_t end = value_end(text_, first, range.end);
  range.begin = std::max(end, first + 1);
  return text_.substr(first, range.begin - first);
}

std::string_view JsonRecords::next(Range& range) const { return array_ ? next_element(range) : next_line(range); }

std::vector<JsonRecords::Range> JsonRecords::parts(size_t bytes) const {
  std::vector<Range> parts;
  Range rest = records_;
  while (rest.begin < rest.end) {
    Range part = rest;
    if (rest.end - rest.begin > bytes) {
      if (array_) {
        while (rest.begin - part.begin < bytes && rest.begin < rest.end)
          if (next_element(rest).empty()) rest.begin = rest.end;  // only white space is left
      } else {
        const size_t line_end = text_.find('\n', rest.begin + bytes - 1);
        rest.begin = line_end < rest.end ? line_end + 1 : rest.end;
      }
      part.end = std::min(rest.begin, rest.end);
    }
    parts.push_back(part);
    rest.begin = part.end;
  }
  return parts;
}

void check_record_bytes(std::string_view record, const std::function<std::string()>& place) {
  if (record.size() > json_record_bytes_max)
    throw usage_error("{}: a record of {}; at most {} are read", place(), format_bytes(record.size()),
                      format_bytes(json_record_bytes_max));
}

JsonRecord JsonRecords::parse(std::string_view record) const {
  check_record_bytes(record, [&] { return place(offset_of(record)); });
  JsonFault fault;
  auto value = foreign_json<JsonRecord>(record, &fault, all_digits_);
  if (value.is_object()) return value;
  if (!value.is_discarded())
    throw usage_error("{}: a record must be an object with named columns, {{\"text\": ...}}; this one is {} {}",
                      place(offset_of(record)), value.is_array() ? "an" : "a", value.type_name());
  if (fault.byte == 0) throw usage_error("{}: not JSON: {}", place(offset_of(record)), fault.reason);
  refuse(offset_of(record) + std::min(fault.byte, record.size()) - 1, reason_of(fault, record));
}

JsonRecord json_of_line(std::string_view line, const std::string& place) {
  check_record_bytes(line, [&] { return place; });
  JsonFault fault;
  auto value = foreign_json<JsonRecord>(line, &fault);
  if (!value.is_discarded()) return value;
  if (fault.byte == 0) throw usage_error("{}: not JSON: {}", place, fault.reason);
  throw usage_error("{}:{}: not JSON: {}", place, std::min(fault.byte, std::max<size_t>(line.size(), 1)),
                    reason_of(fault, line));
}

void JsonRecords::for_each(Range part, const std::function<bool(const JsonRecord&, size_t end)>& use) const {
  FaultyRows faulty;
  while (!faulty.enough()) {
    std::string_view record;
    const auto here = [&] { return place(record.empty() ? part.begin : offset_of(record)); };
    try {
      record = next(part);
      if (record.empty()) break;
      const JsonRecord value = parse(record);
      try {
        if (!use(value, offset_of(record) + record.size())) break;
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("{}: {}", here(), error.what()));
      }
    } catch (const Error& error) {
      faulty.add(error, here);
      if (record.empty() || trim(record) == "{") break;  // the next records are not known
    }
  }
  faulty.raise(/*all=*/text_.find_first_not_of(white_space, part.begin) >= records_.end);
}

std::string JsonRecords::place_of(size_t end) const {
  Range rest = records_;
  std::string_view record;
  do record = next(rest);
  while (!record.empty() && offset_of(record) + record.size() < end);
  return place(record.empty() ? end : offset_of(record));
}

std::string JsonRecords::place(size_t offset) const {
  const auto end = text_.begin() + static_cast<ptrdiff_t>(std::min(offset, text_.size()));
  return fmt::format("{}:{}", path().string(), std::count(text_.begin(), end, '\n') + 1);
}

}  // namespace runner
