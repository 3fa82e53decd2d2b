// The Parquet module: reads and writes Parquet files with Arrow's libraries. It is a library of its own that is loaded
// when a recipe names such files, so that programs start without Arrow, and can be built without it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>
#include <vector>

namespace runner {

/// A row with the columns of the file, in their order. Nested lists, structs and maps become JSON's. A null is left out: of the row, or
/// of the struct that it is in; in a list it remains. Bytes that are not UTF-8 become JSON's binary value, without its content. A decimal
/// becomes a number, or its text if it is a whole number of more than 64 bits; a duration becomes its seconds, and a float the shortest
/// decimal number that rounds to it. Values of other types (dates, times) become their text, which is the same in each unit.
using ParquetRow = nlohmann::ordered_json;

/// A file. Functions may be called from several threads. They throw Error(usage) with the file, and with the row if it is known; also for a
/// file that exceeds a bound of limits.hpp: of its columns (parquet_depth_max, parquet_fields_max), of a row group
/// (parquet_group_rows_max, parquet_group_bytes_max), of a row (parquet_row_bytes_max), of the memory for unpacking
/// (parquet_reader_bytes_max, for each thread).
class ParquetFile {
 public:
  struct Column {
    std::string name, type;  ///< type: Arrow's, as a text ("list<element: string>")
    bool number;             ///< an integer, a floating point number, a decimal, a duration or a boolean
  };
  virtual ~ParquetFile() = default;
  virtual int64_t row_groups() const = 0;
  virtual int64_t rows(int64_t row_group) const = 0;
  /// The size of a row group in the file.
  virtual int64_t bytes(int64_t row_group) const = 0;
  virtual const std::vector<Column>& columns() const = 0;
  /// Calls `use` for each row of a row group, in order, until it returns false.
  virtual void for_each(int64_t row_group, const std::function<bool(const ParquetRow& row)>& use) const = 0;
};

/// A file that is being written, in row groups of a million rows. Throws Error(environment) with the file.
class ParquetWriter {
 public:
  enum class Kind { text, integer, real };
  struct Column {
    std::string name;
    Kind kind;
  };
  using Value = std::variant<std::string, int64_t, double>;
  virtual ~ParquetWriter() = default;
  /// A value for each column, of its kind.
  virtual void append(const std::vector<Value>& row) = 0;
  /// Writes the rest. Without this call, the file is not one.
  virtual void finish() = 0;
};

struct ParquetModule {
  static constexpr int current_version = 3;  ///< to be raised with every change of this file
  int version;
  std::unique_ptr<ParquetFile> (*open)(const std::string& path);
  std::unique_ptr<ParquetWriter> (*create)(const std::string& path, const std::vector<ParquetWriter::Column>& columns);
};

/// Loads the module. Throws Error(environment) that says how to install it.
const ParquetModule& load_parquet_module();

}  // namespace runner

extern "C" const runner::ParquetModule* runner_parquet_module();
