// Texts of a file, one for each line or record. Torch-free.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace runner {

struct TextRecord {
  nlohmann::ordered_json id = nullptr;  ///< that of the record, or its number from 0
  std::string text = {};
  std::string place = {};  ///< "FILE:LINE"
};

/// A file's content without a byte order mark; "-" is standard input. Throws Error(environment).
std::string content_of(const std::string& file);
/// The name of a file in messages.
std::string shown_file(const std::string& file);

/// Of a file *.jsonl, or with `records`, each line that is not blank is a JSON string, or an object with one of `keys`. Otherwise each
/// line is a text, also an empty one. Throws Error(usage) with file and line.
std::vector<TextRecord> read_texts(const std::string& file, bool records, const std::vector<std::string>& keys);

}  // namespace runner
