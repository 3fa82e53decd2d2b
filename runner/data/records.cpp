// Selects the format of records.
#include "runner/data/records.hpp"

#include <cmath>

#include "runner/base/error.hpp"
#include "runner/data/csv_reader.hpp"
#include "runner/data/json_records.hpp"
#include "runner/data/parquet_records.hpp"
#include "runner/data/plugin/source.hpp"
#include "runner/data/table.hpp"

namespace runner {

namespace {

/// 12 for "12", and "007" for "007".
JsonRecord id_of_cell(const std::string& cell) {
  const auto number = JsonRecord::parse(cell, nullptr, /*allow_exceptions=*/false);
  return number.is_number_integer() && number.dump() == cell ? number : JsonRecord(cell);
}

}  // namespace

void FaultyRows::add(const Error& error, const std::function<std::string()>& place) {
  if (error.code() != ExitCode::usage) throw error;
  if (!first_) first_ = error;
  places_.push_back(place());
}

bool FaultyRows::enough() {
  constexpr int64_t looked_at = 1000;
  return first_ && (places_.size() > and_more_named || rows_++ >= looked_at);
}

void FaultyRows::raise(bool all) const {
  if (first_) throw usage_error("{}{}", first_->what(), and_more(places_, std::ssize(places_), all));
}

std::string digits_of(const JsonRecord& number) {
  if (number.is_number_integer()) return number.dump();
  const double value = number.get<double>();
  if (std::abs(value) >= 9223372036854775808.0)  // 2^63
    throw usage_error("the number {} has more than 64 bits, and its last digits are lost: write it in quotes",
                      number.dump());
  return number_text(value);
}

std::string digits_beyond_double(const JsonRecord& number) {
  constexpr double whole_most = 9007199254740992;  // 2^53
  if (!number.is_number_integer() || std::abs(number.get<double>()) < whole_most) return "";
  return number.dump();
}

JsonRecord record_id(const Recipe::Data& data, const JsonRecord& record, size_t number) {
  const auto own = record.find("id");
  if (own == record.end() || own->is_null() || *own == "") return number;
  if (own->is_binary()) return std::string(own->get_binary().begin(), own->get_binary().end());
  return data.format == "csv" ? id_of_cell(own->get<std::string>()) : *own;
}

std::vector<JsonRecord> record_ids(const Recipe::Data& data, const std::vector<std::string>& files, size_t first) {
  std::vector<JsonRecord> names;
  for (const auto& file : files) {
    const auto records = open_records(data, file);
    for (const auto& part : records->parts(size_t{1} << 26))
      records->for_each(part, [&](const JsonRecord& record, size_t) {
        names.push_back({{"id", record_id(data, record, first + names.size())}});
        return true;
      });
  }
  return names;
}

std::unique_ptr<Records> open_records(const Recipe::Data& data, const fs::path& path) {
  if (data.is_plugin()) return open_plugin_records(data, path);
  if (data.format == "parquet") return std::make_unique<ParquetRecords>(path);
  if (data.format == "csv") return std::make_unique<CsvRecords>(path, data.delimiter);
  RUNNER_CHECK(data.format == "jsonl", "data.format = {}", data.format);
  return std::make_unique<JsonRecords>(path, /*all_digits=*/data.has_records() && !data.labels_texts());
}

JsonRecord first_record(const Recipe::Data& data, const fs::path& path) {
  const auto records = open_records(data, path);
  JsonRecord first = JsonRecord::object();
  const auto parts = records->parts(size_t{1} << 20);
  if (!parts.empty())
    records->for_each(parts.front(), [&](const JsonRecord& record, size_t) {
      first = record;
      return false;
    });
  return first;
}

}  // namespace runner
