// The records of a file: rows with named columns. Each format of records implements this interface.
#pragma once
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// A record keeps the order of its keys: chat templates print tools and arguments in that order.
using JsonRecord = nlohmann::ordered_json;

/// The rows of a file that have mistakes. Reading goes on behind the first one for some rows, so that its message can count the others.
class FaultyRows {
 public:
  /// Keeps the mistake of a row. Throws an error again that is not the user's. `place`: "FILE:LINE" of the row.
  void add(const Error& error, const std::function<std::string()>& place);
  bool any() const { return first_.has_value(); }
  /// Whether enough rows were read. Called before each row.
  bool enough();
  /// Throws the first mistake, if there is one. `all`: no row is left.
  void raise(bool all) const;

 private:
  std::optional<Error> first_ = {};
  std::vector<std::string> places_ = {};
  int64_t rows_ = 0;  ///< behind the first mistake
};

/// Functions may be called from several threads.
class Records {
 public:
  /// A part of a file. What the numbers count is decided by the format: bytes of a text, rows of a table.
  struct Range {
    size_t begin, end;
  };
  virtual ~Records() = default;
  virtual const fs::path& path() const = 0;
  /// The end of the last range.
  virtual size_t size() const = 0;
  /// The size of the file.
  virtual size_t bytes() const = 0;
  /// All records, in ranges of about `bytes` of the file each. The cuts are between records and depend only on the file and `bytes`.
  virtual std::vector<Range> parts(size_t bytes) const = 0;
  /// Calls use(record, the number behind it) for each record of a range of parts(), in order, until it returns false. Throws
  /// Error(usage) with file and place if a record cannot be read; an Error of `use` gets file and place in front of its message.
  /// Error(usage) is thrown after some more records, for which `use` may be called, and counts their mistakes.
  virtual void for_each(Range part, const std::function<bool(const JsonRecord&, size_t end)>& use) const = 0;
  /// The place of the record in front of a number that for_each() has given: "data/chat.jsonl:17". May read the file again.
  virtual std::string place_of(size_t end) const = 0;
};

/// The text of a number, with all digits of a whole one. Throws Error(usage) for a whole number of more than 64 bits, whose last digits
/// a reader of JSON does not keep.
std::string digits_of(const JsonRecord& number);
/// digits_of() a whole number that a double does not hold; "": number_text() says it.
std::string digits_beyond_double(const JsonRecord& number);

/// The identifier of a record: its column `id`, or `number` if it has none. A whole number in a cell of a CSV file becomes a number, unless
/// it is written in another way, such as 007.
JsonRecord record_id(const Recipe::Data& data, const JsonRecord& record, size_t number);
/// {"id": record_id()} of each record of some files, whose numbers begin at `first`.
std::vector<JsonRecord> record_ids(const Recipe::Data& data, const std::vector<std::string>& files, size_t first = 0);

/// Opens a file of the format of records that data.format names, or with the plug-in.
std::unique_ptr<Records> open_records(const Recipe::Data& data, const fs::path& path);

/// The first record of a file; an empty object if it has none.
JsonRecord first_record(const Recipe::Data& data, const fs::path& path);

}  // namespace runner
