// Texts of a file, one for each line or record. Torch-free.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace runner {

struct TextRecord {
  nlohmann::ordered_json id = nullptr;  ///< record_id(): that of the record, or its number from 0
  std::string text = {};
  std::string place = {};  ///< "FILE:LINE"
};

/// A file's content without a byte order mark; "-" is standard input. Throws Error(environment).
std::string content_of(const std::string& file);
/// The name of a file in messages.
std::string shown_file(const std::string& file);

/// Whether a file has records by its name: .jsonl, .ndjson, .json, .csv, .tsv or .parquet.
bool has_records(const std::string& file);

/// Calls use(record, place, id) for each record of a file, in order. The name of the file says what it is: CSV, Parquet, or JSON, in one
/// array or one value on each line; "-" and files with other names have a JSON value on each line. A record is an object; a line of JSON
/// may be another value. `id`: record_id(), with numbers from `first` on. Throws Error(usage) with file and line; an Error of `use` gets
/// the place in front of its message.
using UseRecord =
    std::function<void(const nlohmann::ordered_json& record, const std::string& place, nlohmann::ordered_json id)>;
void for_each_record(const std::string& file, const UseRecord& use, size_t first = 0);

/// The texts of a file. If it has_records(), or with `records`, each record is an object with one of `keys`, or a string. Otherwise each
/// line is a text, also an empty one. Throws Error(usage) with file and line.
std::vector<TextRecord> read_texts(const std::string& file, bool records, const std::vector<std::string>& keys);

}  // namespace runner
