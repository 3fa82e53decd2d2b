// The library librunner_parquet.so.
#include "runner/parquet/module.hpp"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include "runner/base/error.hpp"
#include "runner/parquet/json_values.hpp"
#include "runner/parquet/writer.hpp"

namespace runner {

namespace {

constexpr int64_t rows_of_a_batch = 1024;

bool is_number(const arrow::DataType& type) {
  return arrow::is_integer(type.id()) || arrow::is_floating(type.id()) || arrow::is_decimal(type.id()) ||
         type.id() == arrow::Type::BOOL || type.id() == arrow::Type::DURATION;
}

/// Throws Error(usage) if `status` is not OK. `where`: the file, with a row.
void require(const arrow::Status& status, const std::string& where) {
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
    const auto reader = open();
    metadata_ = reader->parquet_reader()->metadata();
    std::shared_ptr<arrow::Schema> schema;
    require(reader->GetSchema(&schema), path_);
    for (const auto& field : schema->fields())
      columns_.push_back(
          {.name = field->name(), .type = field->type()->ToString(), .number = is_number(*field->type())});
    int64_t rows = 0;
    for (int g = 0; g < metadata_->num_row_groups(); ++g) {
      const auto group = metadata_->RowGroup(g);
      if (group->num_rows() < 0 || group->num_rows() > INT64_MAX - rows ||
          group->num_columns() != metadata_->num_columns())
        throw usage_error("{}: the file is damaged: row group {} has {} rows and {} columns", path_, g + 1,
                          group->num_rows(), group->num_columns());
      first_rows_.push_back(rows);
      rows += group->num_rows();
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
    const auto reader = open();
    int64_t row = first_rows_.at(static_cast<size_t>(row_group));
    const auto where = [&] { return place(row); };
    const auto batches = take(reader->GetRecordBatchReader({static_cast<int>(row_group)}), where());
    while (true) {
      const std::shared_ptr<arrow::RecordBatch> batch = take(batches->Next(), where());
      if (!batch) return;
      for (int64_t i = 0; i < batch->num_rows(); ++i, ++row)
        if (!use(row_of(*batch, i, row))) return;
    }
  }

 private:
  /// Files may be read by several threads, and a reader only by one.
  std::unique_ptr<parquet::arrow::FileReader> open() const {
    parquet::arrow::FileReaderBuilder builder;
    require(builder.OpenFile(path_), path_);
    parquet::ArrowReaderProperties properties;
    properties.set_batch_size(rows_of_a_batch);
    properties.set_use_threads(false);
    properties.set_pre_buffer(false);
    std::unique_ptr<parquet::arrow::FileReader> reader;
    require(builder.properties(properties)->Build(&reader), path_);
    return reader;
  }

  std::unique_ptr<parquet::RowGroupMetaData> group(int64_t index) const {
    return metadata_->RowGroup(static_cast<int>(index));
  }
  std::string place(int64_t row) const { return fmt::format("{}, row {}", path_, row + 1); }

  /// Row `i` of a batch, which is row `row` of the file.
  ParquetRow row_of(const arrow::RecordBatch& batch, int64_t i, int64_t row) const {
    ParquetRow values = ParquetRow::object();
    for (int c = 0; c < batch.num_columns(); ++c) try {
        if (auto value = json_of(*batch.column(c), i); !value.is_null())
          values[batch.column_name(c)] = std::move(value);
      } catch (const Error& error) {
        throw usage_error("{}, column `{}`: {}", place(row), batch.column_name(c), error.what());
      }
    return values;
  }

  std::string path_;
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
