#include "runner/data/parquet_records.hpp"

#include <algorithm>

#include "runner/base/error.hpp"

namespace runner {

ParquetRecords::ParquetRecords(const fs::path& path)
    : path_(path), bytes_(fs::file_size(path)), file_(load_parquet_module().open(path.string())), first_rows_{0} {
  for (int64_t g = 0; g < file_->row_groups(); ++g)
    first_rows_.push_back(first_rows_.back() + static_cast<size_t>(file_->rows(g)));
}

std::vector<Records::Range> ParquetRecords::parts(size_t bytes) const {
  std::vector<Range> parts;
  size_t in_part = 0;
  for (int64_t g = 0; g < file_->row_groups(); ++g) {
    const size_t begin = first_rows_[static_cast<size_t>(g)], end = first_rows_[static_cast<size_t>(g) + 1];
    if (begin == end) continue;
    if (parts.empty() || in_part >= bytes) {
      parts.push_back({begin, end});
      in_part = 0;
    }
    parts.back().end = end;
    in_part += static_cast<size_t>(file_->bytes(g));
  }
  return parts;
}

std::string ParquetRecords::place_of(size_t end) const { return fmt::format("{}, row {}", path_.string(), end); }

void ParquetRecords::for_each(Range part, const std::function<bool(const JsonRecord&, size_t end)>& use) const {
  bool more = true;
  FaultyRows faulty;
  size_t row = part.begin;
  const auto here = [&] { return place_of(row); };
  for (auto group = std::ranges::lower_bound(first_rows_, part.begin); more && *group < part.end; ++group) {
    row = *group;
    file_->for_each(group - first_rows_.begin(), [&](const ParquetRow& record) {
      ++row;
      try {
        more = use(record, row);
      } catch (const Error& error) {
        faulty.add(Error(error.code(), fmt::format("{}: {}", here(), error.what())), here);
      }
      return more = more && !faulty.enough();
    });
  }
  faulty.raise(/*all=*/row >= size());
}

}  // namespace runner
