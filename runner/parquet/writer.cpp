#include "runner/parquet/writer.hpp"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/writer.h>

#include "runner/base/error.hpp"

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

}  // namespace

std::unique_ptr<ParquetWriter> create_parquet_file(const std::string& path,
                                                   const std::vector<ParquetWriter::Column>& columns) {
  return std::make_unique<ArrowWriter>(path, columns);
}

}  // namespace runner
