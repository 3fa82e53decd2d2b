// Records of a JSON file: one object per line (JSON lines), or the elements of one array.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"

namespace runner {

/// A record keeps the order of its keys: chat templates print tools and arguments in that order.
using JsonRecord = nlohmann::ordered_json;

/// A byte order mark at the beginning, empty lines and the line ends of Windows are allowed.
class JsonRecords {
 public:
  /// Bytes [begin, end) of the file.
  struct Range {
    size_t begin, end;
  };
  explicit JsonRecords(const fs::path& path);
  const fs::path& path() const { return map_.path(); }
  size_t bytes() const { return map_.bytes().size(); }
  /// All records, in ranges of about `bytes` each. The cuts are between records and depend only on the file and `bytes`.
  std::vector<Range> parts(size_t bytes) const;
  /// Calls use(record, the byte behind it) for each record of a range of parts(), in order, until it returns false. Throws
  /// Error(usage) with file, line and column if a record is not JSON or not an object; an Error of `use` gets file and line in
  /// front of its message.
  void for_each(Range part, const std::function<bool(const JsonRecord&, size_t end)>& use) const;
  /// "data/chat.jsonl:17", for the record that begins at a byte.
  std::string place(size_t offset) const;

 private:
  /// The next record in `range`, which then begins after it; empty: there is no other.
  std::string_view next(Range& range) const;
  std::string_view next_line(Range& range) const;
  std::string_view next_element(Range& range) const;
  JsonRecord parse(std::string_view record) const;
  size_t offset_of(std::string_view record) const { return static_cast<size_t>(record.data() - text_.data()); }

  MappedFile map_;
  std::string_view text_;  ///< of the whole file
  Range records_;          ///< without a byte order mark and the brackets of an array
  bool array_ = false;
};

}  // namespace runner
