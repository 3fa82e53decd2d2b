// The library librunner_parquet.so.
#include "runner/parquet/module.hpp"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/writer.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"
#include "runner/parquet/json_values.hpp"

namespace runner {

namespace {

constexpr int64_t rows_of_a_group = 1'000'000;

void expect(const arrow::Status& status, const std::string& path) {
  if (!status.ok()) throw environment_error("cannot write {}: {}", path, status.message());
}

std::shared_ptr<arrow::DataType> type_of(ParquetWriter::Kind kind) {
  switch (kind) {
    case ParquetWriter::Kind::text:
      return arrow::utf8();
    case ParquetWriter::Kind::integer:
      return arrow::int64();
    case ParquetWriter::Kind::real:
      break;
  }
  return arrow::float64();
}

class ArrowWriter final : public ParquetWriter {
 public:
  ArrowWriter(std::string path, const std::vector<Column>& columns) : path_(std::move(path)) {
    arrow::FieldVector fields;
    for (const auto& column : columns)
      fields.push_back(arrow::field(column.name, type_of(column.kind), /*nullable=*/false));
    schema_ = arrow::schema(fields);
    auto file = arrow::io::FileOutputStream::Open(path_);
    expect(file.status(), path_);
    file_ = *file;
    auto writer = parquet::arrow::FileWriter::Open(*schema_, arrow::default_memory_pool(), file_);
    expect(writer.status(), path_);
    writer_ = std::move(*writer);
    for (const auto& field : fields) {
      std::unique_ptr<arrow::ArrayBuilder> builder;
      expect(arrow::MakeBuilder(arrow::default_memory_pool(), field->type(), &builder), path_);
      builders_.push_back(std::move(builder));
    }
  }

  void append(const std::vector<Value>& row) override {
    for (size_t i = 0; i < row.size(); ++i) expect(append_to(*builders_[i], row[i]), path_);
    if (++rows_ == rows_of_a_group) write_group();
  }

  void finish() override {
    if (rows_ > 0) write_group();
    expect(writer_->Close(), path_);
    expect(file_->Close(), path_);
  }

 private:
  static arrow::Status append_to(arrow::ArrayBuilder& builder, const Value& value) {
    if (const auto* text = std::get_if<std::string>(&value))
      return static_cast<arrow::StringBuilder&>(builder).Append(*text);
    if (const auto* whole = std::get_if<int64_t>(&value))
      return static_cast<arrow::Int64Builder&>(builder).Append(*whole);
    return static_cast<arrow::DoubleBuilder&>(builder).Append(std::get<double>(value));
  }

  void write_group() {
    arrow::ArrayVector arrays;
    for (auto& builder : builders_) {
      std::shared_ptr<arrow::Array> array;
      expect(builder->Finish(&array), path_);
      arrays.push_back(std::move(array));
    }
    expect(writer_->WriteTable(*arrow::Table::Make(schema_, arrays), rows_), path_);
    rows_ = 0;
  }

  std::string path_;
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::io::FileOutputStream> file_;
  std::unique_ptr<parquet::arrow::FileWriter> writer_;
  std::vector<std::unique_ptr<arrow::ArrayBuilder>> builders_;
  int64_t rows_ = 0;
};

std::unique_ptr<ParquetWriter> create_parquet_file(const std::string& path,
                                                   const std::vector<ParquetWriter::Column>& columns) {
  return std::make_unique<ArrowWriter>(path, columns);
}

void check_group(const parquet::FileMetaData& metadata, int index, uintmax_t file_bytes, const std::string& path) {
  const auto group = metadata.RowGroup(index);
  const auto where = fmt::format("{}, row group {}", path, index + 1);
  if (group->num_rows() < 0 || group->num_columns() != metadata.num_columns())
    throw usage_error("{}: the file is damaged: it has {} rows and {} columns", where, group->num_rows(),
                      group->num_columns());
  if (group->num_rows() > parquet_group_rows_max)
    throw usage_error("{}: it has {} rows; at most {} are allowed", where, group->num_rows(), parquet_group_rows_max);
  int64_t unpacked = 0;
  for (int c = 0; c < metadata.num_columns(); ++c) {
    const auto chunk = group->ColumnChunk(c);
    const int64_t stored = chunk->total_compressed_size(), whole = chunk->total_uncompressed_size();
    if (stored < 0 || static_cast<uintmax_t>(stored) > file_bytes || whole < 0)
      throw usage_error("{}: the file is damaged: column {} has {} bytes, and {} without compression", where, c + 1,
                        stored, whole);
    if (whole > parquet_group_bytes_max - unpacked)
      throw usage_error("{}: it has more than {} without compression, which is the most that is allowed", where,
                        format_bytes(parquet_group_bytes_max));
    unpacked += whole;
  }
}

/// Throws Error(usage) that names the file and its row group, if what the file says about itself is wrong or exceeds a bound (limits.hpp):
/// a small file may promise, or unpack to, more than any memory holds.
void check_parquet_metadata(const parquet::FileMetaData& metadata, uintmax_t file_bytes, const std::string& path) {
  if (metadata.num_schema_elements() > parquet_fields_max)
    throw usage_error("{}: it has {} columns and groups of columns; at most {} are allowed", path,
                      metadata.num_schema_elements(), parquet_fields_max);
  int64_t rows = 0;
  for (int g = 0; g < metadata.num_row_groups(); ++g) {
    check_group(metadata, g, file_bytes, path);
    rows += metadata.RowGroup(g)->num_rows();
  }
  if (rows > 0 && metadata.num_columns() == 0) throw usage_error("{}: it has rows, but no column", path);
}

/// The message if ReaderMemory was not sufficient.
std::string too_much_memory() {
  return fmt::format("the data need more than {} of memory at once, which is the most that is allowed",
                     format_bytes(parquet_reader_bytes_max));
}

/// The memory of one reader: at most parquet_reader_bytes_max. Arrow unpacks pages into it, whatever their sizes are said to be.
class ReaderMemory {
 public:
  arrow::MemoryPool* pool() { return &capped_; }

 private:
  arrow::ProxyMemoryPool counted_{arrow::default_memory_pool()};
  arrow::CappedMemoryPool capped_{&counted_, parquet_reader_bytes_max};
};

constexpr int64_t rows_of_a_batch_max = 1024;
constexpr int64_t bytes_of_a_batch = 64 << 20;

bool is_number(const arrow::DataType& type) {
  return arrow::is_integer(type.id()) || arrow::is_floating(type.id()) || arrow::is_decimal(type.id()) ||
         type.id() == arrow::Type::BOOL || type.id() == arrow::Type::DURATION;
}

/// Throws Error(usage) if `status` is not OK. `where`: the file, with a row.
void require(const arrow::Status& status, const std::string& where) {
  if (status.IsOutOfMemory()) throw usage_error("{}: {}", where, too_much_memory());
  if (!status.ok()) throw usage_error("{}: {}", where, status.message());
}
template <typename Value>
Value take(arrow::Result<Value>&& result, const std::string& where) {
  require(result.status(), where);
  return std::move(result).ValueUnsafe();
}

class ArrowFile final : public ParquetFile {
 public:
  explicit ArrowFile(std::string path) : path_(std::move(path)) {
    const auto reader = open(memory_, rows_of_a_batch_max);
    metadata_ = reader->parquet_reader()->metadata();
    std::shared_ptr<arrow::Schema> schema;
    require(reader->GetSchema(&schema), path_);
    for (const auto& field : schema->fields())
      columns_.push_back(
          {.name = field->name(), .type = field->type()->ToString(), .number = is_number(*field->type())});
    int64_t rows = 0;
    for (int g = 0; g < metadata_->num_row_groups(); ++g) {
      first_rows_.push_back(rows);
      rows += metadata_->RowGroup(g)->num_rows();
    }
  }

  int64_t row_groups() const override { return metadata_->num_row_groups(); }
  int64_t rows(int64_t row_group) const override { return group(row_group)->num_rows(); }
  int64_t bytes(int64_t row_group) const override {
    int64_t bytes = 0;
    for (int c = 0; c < metadata_->num_columns(); ++c)
      bytes += group(row_group)->ColumnChunk(c)->total_compressed_size();
    return bytes;
  }
  const std::vector<Column>& columns() const override { return columns_; }

  void for_each(int64_t row_group, const std::function<bool(const ParquetRow& row)>& use) const override {
    ReaderMemory memory;
    JsonBytes bytes;
    const auto reader = open(memory, rows_of_a_batch(*group(row_group)));
    int64_t row = first_rows_.at(static_cast<size_t>(row_group));
    const auto where = [&] { return place(row); };
    const auto batches = take(reader->GetRecordBatchReader({static_cast<int>(row_group)}), where());
    while (true) {
      const std::shared_ptr<arrow::RecordBatch> batch = take(batches->Next(), where());
      if (!batch) return;
      for (int64_t i = 0; i < batch->num_rows(); ++i, ++row)
        if (!use(row_of(*batch, i, row, bytes))) return;
    }
  }

 private:
  /// Files may be read by several threads, and a reader only by one. A stream reads the pages of a column one after the other.
  std::unique_ptr<parquet::arrow::FileReader> open(ReaderMemory& memory, int64_t batch_rows) const {
    parquet::ReaderProperties source(memory.pool());
    source.enable_buffered_stream();
    source.set_schema_depth_limit(parquet_depth_max);
    parquet::arrow::FileReaderBuilder builder;
    require(builder.OpenFile(path_, /*memory_map=*/false, source, metadata_), path_);
    if (!metadata_) check_parquet_metadata(*builder.raw_reader()->metadata(), fs::file_size(path_), path_);
    builder.memory_pool(memory.pool());
    parquet::ArrowReaderProperties properties;
    properties.set_batch_size(batch_rows);
    properties.set_use_threads(false);
    properties.set_pre_buffer(false);
    std::unique_ptr<parquet::arrow::FileReader> reader;
    require(builder.properties(properties)->Build(&reader), path_);
    return reader;
  }

  /// Fewer rows where they are large.
  static int64_t rows_of_a_batch(const parquet::RowGroupMetaData& group) {
    int64_t bytes = 0;
    for (int c = 0; c < group.num_columns(); ++c) bytes += group.ColumnChunk(c)->total_uncompressed_size();
    const int64_t of_a_row = bytes / std::max<int64_t>(1, group.num_rows()) + 1;
    return std::clamp<int64_t>(bytes_of_a_batch / of_a_row, 1, rows_of_a_batch_max);
  }

  std::unique_ptr<parquet::RowGroupMetaData> group(int64_t index) const {
    return metadata_->RowGroup(static_cast<int>(index));
  }
  std::string place(int64_t row) const { return fmt::format("{}, row {}", path_, row + 1); }

  /// Row `i` of a batch, which is row `row` of the file.
  ParquetRow row_of(const arrow::RecordBatch& batch, int64_t i, int64_t row, JsonBytes& bytes) const {
    ParquetRow values = ParquetRow::object();
    bytes.begin_row();
    for (int c = 0; c < batch.num_columns(); ++c) try {
        if (auto value = json_of(*batch.column(c), i, bytes); !value.is_null()) {
          bytes.add(batch.column_name(c).size());
          values[batch.column_name(c)] = std::move(value);
        }
      } catch (const Error& error) {
        throw usage_error("{}, column `{}`: {}", place(row), batch.column_name(c), error.what());
      }
    return values;
  }

  std::string path_;
  ReaderMemory memory_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::vector<Column> columns_;
  std::vector<int64_t> first_rows_;  ///< of each row group
};

/// Parts of a damaged file are read when they are asked for, and then the library throws errors of its own.
class CheckedFile final : public ParquetFile {
 public:
  explicit CheckedFile(const std::string& path)
      : path_(path), file_(checked([&] { return std::make_unique<ArrowFile>(path); })) {}
  int64_t row_groups() const override { return file_->row_groups(); }
  int64_t rows(int64_t row_group) const override {
    return checked([&] { return file_->rows(row_group); });
  }
  int64_t bytes(int64_t row_group) const override {
    return checked([&] { return file_->bytes(row_group); });
  }
  const std::vector<Column>& columns() const override { return file_->columns(); }
  void for_each(int64_t row_group, const std::function<bool(const ParquetRow& row)>& use) const override {
    checked([&] { file_->for_each(row_group, use); });
  }

 private:
  template <typename Work>
  std::invoke_result_t<Work> checked(const Work& work) const {
    try {
      return work();
    } catch (const parquet::ParquetStatusException& error) {
      require(error.status(), path_);
      throw;
    } catch (const parquet::ParquetException& error) {
      throw usage_error("{}: {}", path_, error.what());
    }
  }
  std::string path_;
  std::unique_ptr<ArrowFile> file_;
};

std::unique_ptr<ParquetFile> open_file(const std::string& path) { return std::make_unique<CheckedFile>(path); }

}  // namespace

}  // namespace runner

extern "C" const runner::ParquetModule* runner_parquet_module() {
  static const runner::ParquetModule module{.version = runner::ParquetModule::current_version,
                                            .open = runner::open_file,
                                            .create = runner::create_parquet_file};
  return &module;
}
