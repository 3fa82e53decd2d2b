#include "runner/exchange/export_metrics.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <functional>

#include "runner/base/csv.hpp"
#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/exchange/tensorboard_files.hpp"
#include "runner/parquet/module.hpp"

namespace runner {

namespace {

struct Point {
  const std::string &run, &name, &metric;
  int64_t step;
  double value;
};

/// Calls `use` for all points, by run, metric and step.
ExportedMetrics for_each_point(const Ledger& ledger, const std::vector<std::string>& runs,
                               const std::function<void(const Point&)>& use) {
  ExportedMetrics written{.runs = std::ssize(runs)};
  for (const auto& run : runs) {
    const std::string name = ledger.show(run).at("name");
    for (const auto& metric : ledger.metric_names(run)) {
      ++written.metrics;
      for (const auto& [step, value] : ledger.points(run, metric)) {
        use({run, name, metric, step, value});
        ++written.points;
      }
    }
  }
  return written;
}

std::string csv_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{}", value);  // the shortest text that is read back as the same number
}

/// Lines go to a temporary file that gets its name at the end, or to stdout.
class LineFile {
 public:
  explicit LineFile(const std::string& output) : output_(output), temporary_(output + ".tmp") {
    file_ = output.empty() ? stdout : std::fopen(temporary_.c_str(), "wb");
    if (!file_) throw environment_error("cannot write {}", temporary_);
  }
  ~LineFile() {
    if (file_ && file_ != stdout) {
      std::fclose(file_);
      std::remove(temporary_.c_str());
    }
  }
  LineFile(const LineFile&) = delete;
  void line(const std::string& text) { std::fwrite((text + "\n").data(), 1, text.size() + 1, file_); }
  void publish() {
    bool failed = std::fflush(file_) != 0 || std::ferror(file_) != 0;
    if (file_ == stdout) {
      if (failed) throw environment_error("cannot write to standard output");
      return;
    }
    failed = std::fclose(file_) != 0 || failed;
    file_ = nullptr;
    if (failed) throw environment_error("cannot write {}: is the disk full?", temporary_);
    sync_path(temporary_);
    fs::rename(temporary_, output_);
  }

 private:
  std::string output_, temporary_;
  std::FILE* file_;
};

ExportedMetrics export_csv(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& output) {
  LineFile file(output);
  file.line("run,name,metric,step,value");
  const auto written = for_each_point(ledger, runs, [&](const Point& point) {
    file.line(fmt::format("{},{},{},{},{}", point.run, csv_cell(point.name), csv_cell(point.metric), point.step,
                          csv_number(point.value)));
  });
  file.publish();
  return written;
}

ExportedMetrics export_jsonl(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& output) {
  LineFile file(output);
  const auto written = for_each_point(ledger, runs, [&](const Point& point) {
    const nlohmann::ordered_json line = {{"run", point.run},
                                         {"name", point.name},
                                         {"metric", point.metric},
                                         {"step", point.step},
                                         {"value", json_number(point.value)}};
    file.line(line.dump());
  });
  file.publish();
  return written;
}

ExportedMetrics export_parquet(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& output) {
  const auto& module = load_parquet_module();
  const std::string temporary = output + ".tmp";
  ExportedMetrics written;
  try {
    const auto table = module.create(temporary, {{"run", ParquetWriter::Kind::text},
                                                 {"name", ParquetWriter::Kind::text},
                                                 {"metric", ParquetWriter::Kind::text},
                                                 {"step", ParquetWriter::Kind::integer},
                                                 {"value", ParquetWriter::Kind::real}});
    written = for_each_point(ledger, runs, [&](const Point& point) {
      table->append({point.run, point.name, point.metric, point.step, point.value});
    });
    table->finish();
    sync_path(temporary);
    fs::rename(temporary, output);
  } catch (...) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
  return written;
}

}  // namespace

MetricFormat metric_format(const std::string& name) {
  static const std::vector<MetricFormat> formats = {
      {"csv", true}, {"jsonl", true}, {"parquet", false}, {"tensorboard", false}};
  std::vector<std::string> names;
  for (const auto& format : formats) {
    if (format.name == name) return format;
    names.push_back(format.name);
  }
  const std::string problem = fmt::format("--metrics {}: there is no such format", name);
  if (name == "mlflow")
    throw usage_error(
        "{}: MLflow's store belongs to its server. A run writes to a server while it trains, with logging.loggers = "
        "[\"mlflow\"]; of past runs, --metrics csv has all points",
        problem);
  if (name == "wandb")
    throw usage_error("{}: `wandb sync` uploads the offline files that a run writes with logging.loggers = [\"wandb\"]",
                      problem);
  const auto near = nearest(name, names);
  throw usage_error("{}{}; there are {}", problem, near ? fmt::format(": did you mean {}?", *near) : "",
                    join(names, ", "));
}

ExportedMetrics export_metrics(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& format,
                               const std::string& output) {
  if (format == "csv") return export_csv(ledger, runs, output);
  if (format == "jsonl") return export_jsonl(ledger, runs, output);
  if (format == "parquet") return export_parquet(ledger, runs, output);
  RUNNER_CHECK(format == "tensorboard", "{}", format);
  return export_tensorboard(ledger, runs, output);
}

}  // namespace runner
