#include "runner/data/csv_records.hpp"

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner {

CsvRecords::CsvRecords(const fs::path& path, const std::string& delimiter)
    : map_(path),
      reader_(path.string(), {reinterpret_cast<const char*>(map_.bytes().data()), map_.bytes().size()}, delimiter,
              /*keeps_cells=*/false),
      names_(reader_.header()) {}

std::vector<CsvRecords::Range> CsvRecords::parts(size_t bytes) const {
  std::vector<Range> parts;
  CsvReader reader = reader_;
  CsvLine line;
  size_t begin = reader.at();
  const std::lock_guard lock(mutex_);
  lines_[begin] = reader.line();
  while (reader.next(line)) {
    if (reader.at() - begin < bytes) continue;
    parts.push_back({begin, reader.at()});
    begin = reader.at();
    lines_[begin] = reader.line();
  }
  if (begin < size()) parts.push_back({begin, size()});
  return parts;
}

int64_t CsvRecords::line_of(size_t begin) const {
  const std::lock_guard lock(mutex_);
  const auto known = lines_.find(begin);
  RUNNER_CHECK(known != lines_.end(), "{} is not the beginning of a part of {}", begin, path().string());
  return known->second;
}

void CsvRecords::for_each(Range part, const std::function<bool(const JsonRecord&, size_t end)>& use) const {
  CsvReader reader = reader_;
  reader.go_to(part.begin, line_of(part.begin));
  CsvLine line;
  while (reader.at() < part.end && reader.next(line)) {
    const auto place = [&] { return fmt::format("{}:{}", path().string(), line.line); };
    if (const auto mistake = reader.width_mistake(line, names_.size()); !mistake.empty())
      throw usage_error("{}", mistake);
    JsonRecord record = JsonRecord::object();
    for (size_t c = 0; c < names_.size(); ++c) record[names_[c]] = std::string(line.cells[c]);
    try {
      if (!use(record, reader.at())) return;
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", place(), error.what()));
    }
  }
}

std::string CsvRecords::place_of(size_t end) const {
  CsvReader reader = reader_;
  CsvLine line;
  while (reader.next(line) && reader.at() < end) {
  }
  return fmt::format("{}:{}", path().string(), line.line);
}

}  // namespace runner
