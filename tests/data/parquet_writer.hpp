// Parquet files with any metadata: the structs of the format (parquet.thrift) in Thrift's compact protocol.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace runner::test {

/// A struct in the compact protocol. Fields are added in rising order of their numbers.
class ThriftStruct {
 public:
  ThriftStruct& number(int field, int64_t value, int type = i64) {
    begin(field, type);
    zigzag(value);
    return *this;
  }
  ThriftStruct& enumerated(int field, int64_t value) { return number(field, value, i32); }
  ThriftStruct& text(int field, std::string_view value) {
    begin(field, binary);
    bytes(value);
    return *this;
  }
  ThriftStruct& inside(int field, const ThriftStruct& value) {
    begin(field, structure);
    out_ += value.done();
    return *this;
  }
  ThriftStruct& structs(int field, const std::vector<ThriftStruct>& items) {
    list(field, structure, items.size());
    for (const auto& item : items) out_ += item.done();
    return *this;
  }
  ThriftStruct& texts(int field, const std::vector<std::string>& items) {
    list(field, binary, items.size());
    for (const auto& item : items) bytes(item);
    return *this;
  }
  ThriftStruct& numbers(int field, const std::vector<int64_t>& items) {
    list(field, i32, items.size());
    for (const auto item : items) zigzag(item);
    return *this;
  }
  std::string done() const { return out_ + '\0'; }

 private:
  enum Type { i32 = 5, i64 = 6, binary = 8, listed = 9, structure = 12 };
  void begin(int field, int type) {
    out_ += static_cast<char>((field - last_) << 4 | type);
    last_ = field;
  }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) out_ += static_cast<char>(value | 0x80);
    out_ += static_cast<char>(value);
  }
  void zigzag(int64_t value) { varint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63)); }
  void bytes(std::string_view value) {
    varint(value.size());
    out_ += value;
  }
  void list(int field, int type, size_t count) {
    begin(field, listed);
    out_ += static_cast<char>(0xf0 | type);
    varint(count);
  }
  std::string out_;
  int last_ = 0;
};

/// A group of columns, or with `type` (of the format's enum) a column; both are required.
inline ThriftStruct schema_group(const std::string& name, int64_t children) {
  return ThriftStruct().enumerated(3, 0).text(4, name).enumerated(5, children);
}
inline ThriftStruct schema_column(const std::string& name, int64_t type) {
  return ThriftStruct().enumerated(1, type).enumerated(3, 0).text(4, name);
}
enum ColumnType { int32_column = 1, bytes_column = 6 };

/// One column of one row group. `pages` are the bytes behind the file's first four.
struct ColumnPages {
  int64_t type = bytes_column;
  std::vector<std::string> path = {"text"};
  std::string pages = {};
  int64_t codec = 0, values = 1, unpacked = 0;
  int64_t dictionary_bytes = 0;  ///< of the first page, if it is a dictionary
};

inline ThriftStruct row_group(const ColumnPages& column, int64_t rows) {
  ThriftStruct data;
  data.enumerated(1, column.type).numbers(2, {0, 8}).texts(3, column.path).enumerated(4, column.codec);
  data.number(5, column.values).number(6, column.unpacked).number(7, std::ssize(column.pages));
  data.number(9, 4 + column.dictionary_bytes);
  if (column.dictionary_bytes > 0) data.number(11, 4);
  const auto chunk = ThriftStruct().number(2, 4).inside(3, data);
  return ThriftStruct().structs(1, {chunk}).number(2, column.unpacked).number(3, rows);
}

/// A whole file.
inline std::string parquet_file(const std::vector<ThriftStruct>& schema, const std::vector<ThriftStruct>& groups,
                                int64_t rows, const std::string& pages) {
  const auto metadata = ThriftStruct().enumerated(1, 1).structs(2, schema).number(3, rows).structs(4, groups).done();
  std::string size(4, '\0');
  for (size_t i = 0; i < 4; ++i) size[i] = static_cast<char>(metadata.size() >> (8 * i));
  return "PAR1" + pages + metadata + size + "PAR1";
}

/// A page of values, or of a dictionary, with its header.
inline std::string data_page(const std::string& content, int64_t values, int64_t encoding, int64_t unpacked) {
  const auto own = ThriftStruct().enumerated(1, values).enumerated(2, encoding).enumerated(3, 3).enumerated(4, 3);
  return ThriftStruct()
             .enumerated(1, 0)
             .enumerated(2, unpacked)
             .enumerated(3, std::ssize(content))
             .inside(5, own)
             .done() +
         content;
}
inline std::string dictionary_page(const std::string& content, int64_t values) {
  const auto own = ThriftStruct().enumerated(1, values).enumerated(2, 0);
  return ThriftStruct()
             .enumerated(1, 2)
             .enumerated(2, std::ssize(content))
             .enumerated(3, std::ssize(content))
             .inside(7, own)
             .done() +
         content;
}

}  // namespace runner::test
