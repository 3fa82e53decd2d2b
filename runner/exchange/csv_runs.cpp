// Tables of metrics as runs.
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/exchange/import_runs.hpp"

namespace runner {

namespace {

using CsvRow = std::vector<std::string>;

/// The rows of a table. Quoted cells may have separators, quotes and line breaks.
std::vector<CsvRow> csv_rows(const std::string& text, const fs::path& file) {
  std::vector<CsvRow> rows;
  CsvRow row;
  std::string cell;
  bool quoted = false, any = false;
  size_t i = text.starts_with("\xef\xbb\xbf") ? 3 : 0;
  const auto end_row = [&] {
    if (any || !cell.empty()) {
      row.push_back(std::move(cell));
      rows.push_back(std::move(row));
    }
    row.clear();
    cell.clear();
    any = false;
  };
  for (; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"')
        cell += c;
      else if (i + 1 < text.size() && text[i + 1] == '"')
        cell += text[++i];
      else
        quoted = false;
    } else if (c == '"') {
      quoted = any = true;
    } else if (c == ',') {
      row.push_back(std::move(cell));
      cell.clear();
      any = true;
    } else if (c == '\n') {
      end_row();
    } else if (c != '\r') {
      cell += c;
    }
  }
  if (quoted) throw usage_error("{}: a quoted cell does not end", file.string());
  end_row();
  return rows;
}

std::optional<double> number_in(const std::string& cell) {
  const std::string text = lower(trim(cell));
  const bool negative = text.starts_with('-');
  const std::string size = text.substr(negative || text.starts_with('+') ? 1 : 0);
  if (size == "nan") return std::nan("");
  if (size == "inf" || size == "infinity") return negative ? -INFINITY : INFINITY;
  double value = 0;
  const auto [stop, error] = std::from_chars(size.data(), size.data() + size.size(), value);
  if (size.empty() || error != std::errc() || stop != size.data() + size.size()) return std::nullopt;
  return negative ? -value : value;
}

/// The first of these columns that the table has, or -1.
int column_of(const CsvRow& header, const std::vector<std::string>& names) {
  for (const auto& name : names)
    for (size_t i = 0; i < header.size(); ++i)
      if (lower(trim(header[i])) == name) return static_cast<int>(i);
  return -1;
}

class CsvTable {
 public:
  explicit CsvTable(const fs::path& file) : file_(file), rows_(csv_rows(read_file(file), file)) {
    if (rows_.size() < 2) throw usage_error("{}: the table has no rows", file.string());
    header_ = rows_.front();
    step_ = column_of(header_, {"step", "_step", "global_step", "trainer/global_step", "iteration", "iter", "epoch"});
    if (step_ < 0)
      throw usage_error("{}: the table has no column of steps (step, global_step, iteration or epoch); it has {}",
                        file.string(), join(header_, ", "));
  }

  ForeignRuns read() {
    const int metric = column_of(header_, {"metric", "key"}), value = column_of(header_, {"value"});
    const bool is_long = metric >= 0 && value >= 0;
    const bool of_tensorboard = metric < 0 && value >= 0 && column_of(header_, {"wall time"}) >= 0;
    for (size_t i = 1; i < rows_.size(); ++i) {
      const auto& row = rows_[i];
      if (row.size() != header_.size())
        throw usage_error("{}, row {}: it has {}, and the header has {}", file_.string(), i + 1,
                          counted(std::ssize(row), "cell"), header_.size());
      if (is_long || of_tensorboard)
        add(run_of(row), of_tensorboard ? file_.stem().string() : row[static_cast<size_t>(metric)], i, value,
            /*must=*/true);
      else
        for (int column = 0; column < static_cast<int>(header_.size()); ++column)
          if (column != step_ && !names_run(column) && !row[static_cast<size_t>(column)].empty())
            add(run_of(row), header_[static_cast<size_t>(column)], i, column, /*must=*/false);
    }
    ForeignRuns found;
    for (auto& [origin, run] : runs_) {
      for (const auto& [place, value] : points_[origin])
        run.points.push_back({.name = place.first, .step = place.second, .value = value});
      found.runs.push_back(std::move(run));
    }
    for (const auto& column : texts_)
      found.notes.push_back(fmt::format("{}: the column {} is left out: it has texts", file_.string(), column));
    return found;
  }

 private:
  bool names_run(int column) const {
    return column == column_of(header_, {"run", "run_id"}) || column == column_of(header_, {"name", "run_name"});
  }

  ForeignRun& run_of(const CsvRow& row) {
    const int id = column_of(header_, {"run", "run_id"}), name = column_of(header_, {"name", "run_name"});
    const bool named = !row.empty() && id >= 0;
    const std::string file = fs::absolute(file_).lexically_normal().string();
    const std::string origin = named ? file + "#" + row[static_cast<size_t>(id)] : file;
    auto [run, is_new] = runs_.try_emplace(origin);
    if (is_new) {
      run->second.origin = origin;
      run->second.name = named && name >= 0 ? row[static_cast<size_t>(name)]
                         : named            ? row[static_cast<size_t>(id)]
                                            : file_.stem().string();
      struct stat info {};
      const double changed = ::stat(file_.c_str(), &info) == 0 ? static_cast<double>(info.st_mtime) : 0;
      run->second.started = changed;
      run->second.ended = changed;
    }
    return run->second;
  }

  void add(ForeignRun& run, const std::string& metric, size_t row, int column, bool must) {
    const auto& cells = rows_[row];
    const auto step = number_in(cells[static_cast<size_t>(step_)]),
               value = number_in(cells[static_cast<size_t>(column)]);
    if (!value && !must) {
      if (std::ranges::find(texts_, metric) == texts_.end()) texts_.push_back(metric);
      return;
    }
    if (!value || !step || *step != std::floor(*step))
      throw usage_error("{}, row {}: step \"{}\" and value \"{}\" must be numbers, and the step whole", file_.string(),
                        row + 1, cells[static_cast<size_t>(step_)], cells[static_cast<size_t>(column)]);
    points_[run.origin][{metric, static_cast<int64_t>(*step)}] =
        *value;  // of a step with several rows, the last counts
  }

  fs::path file_;
  std::vector<CsvRow> rows_;
  CsvRow header_;
  int step_ = -1;
  std::map<std::string, ForeignRun> runs_;
  std::map<std::string, std::map<std::pair<std::string, int64_t>, double>> points_;  ///< of each run
  std::vector<std::string> texts_;
};

}  // namespace

ForeignRuns read_csv_runs(const fs::path& file) { return CsvTable(file).read(); }

}  // namespace runner
