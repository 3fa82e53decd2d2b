// Tables of metrics as runs.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/exchange/import_runs.hpp"
#include "runner/exchange/source_files.hpp"

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

/// A number without its sign, which may be too large (inf) or too small (0) for a double.
std::optional<double> magnitude_in(const std::string& text) {
  if (text == "nan") return std::nan("");
  if (text == "inf" || text == "infinity") return INFINITY;
  if (text.empty() || text.front() == '-') return std::nullopt;
  double value = 0;
  const auto* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (stop != end || error == std::errc::invalid_argument) return std::nullopt;
  return error == std::errc() ? value : std::strtod(text.c_str(), nullptr);
}

std::optional<double> number_in(const std::string& cell) {
  std::string text = lower(trim(cell));
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.erase(0, 1);
  const auto value = magnitude_in(text);
  return value && negative ? -*value : value;
}

/// A step: a whole number, also written as 1e3 or 5.0. Beyond 2^53 only as digits, because a double has not all whole numbers there.
std::optional<int64_t> step_in(const std::string& cell) {
  const std::string_view text = trim(cell);
  if (const auto whole = parse_number<int64_t>(text)) return whole;
  constexpr double exact = 9007199254740992;
  const auto number = number_in(cell);
  if (!number || !(std::abs(*number) <= exact) || *number != std::floor(*number)) return std::nullopt;
  return static_cast<int64_t>(*number);
}

class CsvTable {
 public:
  explicit CsvTable(const fs::path& file)
      : file_(file.string()), place_(clean_path(file)), rows_(csv_rows(read_file(file), file)) {
    if (rows_.size() < 2) throw usage_error("{}: the table has no rows", file_);
    header_ = std::move(rows_.front());
    std::set<std::string> names;
    for (auto& name : header_) {
      name = trim(name);
      if (!name.empty() && !names.insert(name).second)
        throw usage_error("{}: the table has two columns \"{}\"", file_, name);
    }
    step_ = column_of({"step", "_step", "global_step", "trainer/global_step", "iteration", "iter", "epoch"});
    if (!step_)
      throw usage_error("{}: the table has no column of steps (step, global_step, iteration or epoch); it has {}",
                        file_, join(header_, ", "));
    id_ = column_of({"run", "run_id"});
    name_ = column_of({"name", "run_name"});
    time_ = column_of({"wall time", "wall_time", "_timestamp"});
  }

  ForeignRuns read() {
    const auto metric = column_of({"metric", "key"}), value = column_of({"value"});
    const bool is_long = metric && value;
    const bool of_tensorboard = !metric && value && column_of({"wall time"});
    for (size_t i = 1; i < rows_.size(); ++i) {
      const auto& row = rows_[i];
      if (row.size() != header_.size())
        throw usage_error("{}, row {}: it has {}, and the header has {}", file_, i + 1,
                          counted(std::ssize(row), "cell"), header_.size());
      const auto step = step_in(row[*step_]);
      if (!step)
        throw usage_error("{}, row {}: the step \"{}\" is not a whole number of 64 bits", file_, i + 1, row[*step_]);
      auto& run = run_of(row);
      if (time_) note_time(run.run, row[*time_]);
      if (is_long || of_tensorboard) {
        if (is_long && trim(row[*metric]).empty())
          throw usage_error("{}, row {}: the metric has no name", file_, i + 1);
        if (!number_in(row[*value]))
          throw usage_error("{}, row {}: the value \"{}\" is not a number", file_, i + 1, row[*value]);
        add(run, of_tensorboard ? place_.stem().string() : row[*metric], *step, row[*value]);
      } else {
        for (size_t column = 0; column < header_.size(); ++column)
          if (header_[column].empty() && !trim(row[column]).empty())
            unnamed_.insert(column + 1);
          else if (column != step_ && column != id_ && column != name_ && !row[column].empty())
            add(run, header_[column], *step, row[column]);
      }
    }
    return found();
  }

 private:
  struct Run {
    ForeignRun run;
    PointTable points;
  };

  /// The first of these columns that the table has.
  std::optional<size_t> column_of(const std::vector<std::string>& names) const {
    for (const auto& name : names)
      for (size_t i = 0; i < header_.size(); ++i)
        if (lower(header_[i]) == name) return i;
    return std::nullopt;
  }

  Run& run_of(const CsvRow& row) {
    const auto by = id_ ? id_ : name_;
    const std::string id = by ? row[*by] : "";
    auto [found, is_new] = runs_.try_emplace(id);
    if (is_new) {
      auto& run = found->second.run;
      run.origin = by ? place_.string() + "#" + id : place_.string();
      run.name = name_ ? row[*name_] : by ? id : place_.stem().string();
    }
    return found->second;
  }

  /// A table says when its points were written, or nothing: when the file was changed says nothing about the run.
  static void note_time(ForeignRun& run, const std::string& cell) {
    const auto time = number_in(cell);
    if (!time || !std::isfinite(*time) || *time <= 0) return;
    run.started = run.started == 0 ? *time : std::min(run.started, *time);
    run.ended = std::max(run.ended.value_or(*time), *time);
  }

  void add(Run& run, const std::string& metric, int64_t step, const std::string& cell) {
    const auto value = number_in(cell);
    if (!value) {
      ++texts_[metric];
      return;
    }
    auto [place, is_new] = run.points[metric].try_emplace(step, *value);
    if (is_new) return;
    const bool equal = place->second == *value || (std::isnan(place->second) && std::isnan(*value));
    if (!equal) ++replaced_;
    place->second = *value;  // of a step with several rows, the last counts
  }

  ForeignRuns found() {
    ForeignRuns found;
    for (auto& [id, run] : runs_) {
      run.run.points = points_in(run.points);
      found.runs.push_back(std::move(run.run));
    }
    for (const auto& [column, count] : texts_)
      found.notes.push_back(
          count == 1
              ? fmt::format("{}: 1 cell of the column {} is not a number, and is left out", file_, column)
              : fmt::format("{}: {} cells of the column {} are not numbers, and are left out", file_, count, column));
    for (const size_t column : unnamed_)
      found.notes.push_back(fmt::format("{}: column {} has no name, and is left out", file_, column));
    if (replaced_ > 0)
      found.notes.push_back(fmt::format("{}: {} left out, because a later row has the same step and another value",
                                        file_, counted(replaced_, "value")));
    return found;
  }

  std::string file_;
  fs::path place_;
  std::vector<CsvRow> rows_;  ///< the first one is moved to header_
  CsvRow header_;
  std::optional<size_t> step_, id_, name_, time_;
  std::map<std::string, Run> runs_;       ///< by the column that identifies them
  std::map<std::string, int64_t> texts_;  ///< cells that are not numbers, of each metric
  std::set<size_t> unnamed_;              ///< columns without a name that have values, from 1
  int64_t replaced_ = 0;
};

}  // namespace

ForeignRuns read_csv_runs(const fs::path& file) { return CsvTable(file).read(); }

}  // namespace runner
