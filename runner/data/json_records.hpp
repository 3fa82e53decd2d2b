// Records of a JSON file: one object per line (JSON lines), or the elements of one array.
#pragma once
#include <string_view>

#include "runner/base/error.hpp"
#include "runner/data/records.hpp"

namespace runner {

/// A byte order mark at the beginning, empty lines and the line ends of Windows are allowed. Ranges are of bytes. Places are file, line
/// and, if a record is not JSON, column. Bound: json_record_bytes_max.
class JsonRecords final : public Records {
 public:
  /// `all_digits`: whole numbers of more than 64 bits are binary values of their digits, which chat templates print.
  explicit JsonRecords(const fs::path& path, bool all_digits = false);
  const fs::path& path() const override { return map_.path(); }
  size_t size() const override { return map_.bytes().size(); }
  size_t bytes() const override { return map_.bytes().size(); }
  std::vector<Range> parts(size_t bytes) const override;
  void for_each(Range part, const std::function<bool(const JsonRecord&, size_t end)>& use) const override;
  std::string place_of(size_t end) const override;
  /// "data/chat.jsonl:17", for the record that begins at a byte.
  std::string place(size_t offset) const;

 private:
  /// The next record in `range`, which then begins after it; empty: there is no other.
  std::string_view next(Range& range) const;
  std::string_view next_line(Range& range) const;
  std::string_view next_element(Range& range) const;
  JsonRecord parse(std::string_view record) const;
  /// Throws Error(usage) with file, line and column.
  [[noreturn]] void refuse(size_t offset, std::string_view reason) const;
  size_t offset_of(std::string_view record) const { return static_cast<size_t>(record.data() - text_.data()); }

  MappedFile map_;
  std::string_view text_;  ///< of the whole file
  Range records_;          ///< without a byte order mark and the brackets of an array
  bool array_ = false;
  bool all_digits_;
};

/// Throws Error(usage) with the place for a record or line that exceeds json_record_bytes_max.
void check_record_bytes(std::string_view record, const std::function<std::string()>& place);
/// The JSON value of a line. Throws Error(usage) with `place`, the column from 1 and the reason: "a.jsonl:3:9: not JSON: ...".
JsonRecord json_of_line(std::string_view line, const std::string& place);

}  // namespace runner
