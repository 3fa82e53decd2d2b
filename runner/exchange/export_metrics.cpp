#include "runner/exchange/export_metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/exchange/exported_run.hpp"
#include "runner/exchange/mlflow_files.hpp"
#include "runner/logging/append_file.hpp"
#include "runner/logging/protobuf.hpp"
#include "runner/logging/tensorboard_log.hpp"
#include "runner/parquet/module.hpp"

namespace runner {

namespace {

using namespace protobuf;

// Fields of Event, Summary and Summary.Value, as in tensorflow/core/util/event.proto and framework/summary.proto.
constexpr int event_wall_time = 1, event_step = 2, event_file_version = 3, event_summary = 5;
constexpr int summary_value = 1, value_tag = 1, value_simple = 2;

class EventFile {
 public:
  explicit EventFile(const fs::path& path) : file_(path) {}
  void add(double time, int64_t step, const std::string& rest) {
    const std::string event = double_field(event_wall_time, time) + number_field(event_step, step) + rest;
    const auto length = bytes_of(static_cast<uint64_t>(event.size()));
    buffer_ += length + bytes_of(masked_checksum(length)) + event + bytes_of(masked_checksum(event));
    if (buffer_.size() > (1U << 20)) flush();
  }
  void flush() {
    if (!buffer_.empty()) file_.append(buffer_);
    buffer_.clear();
  }

 private:
  AppendFile file_;
  std::string buffer_;
};

void write_events(const ExportedRun& run, const fs::path& folder) {
  std::error_code error;
  if (!fs::create_directories(folder, error))
    throw environment_error("cannot make the folder {}: {}", folder.string(), error.message());
  const double started = run.shown.at("started").get<double>();
  std::map<int64_t, std::string> steps;
  for (const auto& [name, points] : run.metrics)
    for (const auto& [step, value] : points)
      steps[step] += message_field(summary_value, message_field(value_tag, escape_invalid_utf8(name)) +
                                                      float_field(value_simple, static_cast<float>(value)));
  EventFile file(folder / fmt::format("events.out.tfevents.{:010}.runner", static_cast<int64_t>(started)));
  file.add(started, 0, message_field(event_file_version, "brain.Event:2"));
  for (const auto& [step, values] : steps) file.add(run.time_of(step), step, message_field(event_summary, values));
  file.flush();
}

/// Writes TensorBoard's event files: one folder for each run below `output`, named NAME-ID, with one file. The time of a value is the
/// start of the run and the training time up to its step (the metric `seconds`).
ExportedMetrics export_tensorboard(const Ledger& ledger, const std::vector<std::string>& runs,
                                   const std::string& output) {
  ExportedMetrics written{.runs = std::ssize(runs)};
  std::set<std::string> metrics;
  publish_folder(output, [&](const std::string& temporary) {
    for (const auto& id : runs) {
      const auto run = exported_run(ledger, id);
      write_events(run, fs::path(temporary) / run.folder);
      for (const auto& [name, points] : run.metrics) {
        metrics.insert(name);
        written.points += std::ssize(points);
      }
    }
  });
  written.metrics = std::ssize(metrics);
  return written;
}

struct Point {
  const std::string &run, &name, &metric;
  int64_t step;
  double value;
};

/// Calls `use` for all points, by run, metric and step.
ExportedMetrics for_each_point(const Ledger& ledger, const std::vector<std::string>& runs,
                               const std::function<void(const Point&)>& use) {
  ExportedMetrics written{.runs = std::ssize(runs)};
  std::set<std::string> metrics;
  for (const auto& run : runs) {
    const std::string name = ledger.row(run).name;
    for (const auto& metric : ledger.metric_names(run)) {
      metrics.insert(metric);
      for (const auto& [step, value] : ledger.points(run, metric)) {
        use({run, name, metric, step, value});
        ++written.points;
      }
    }
  }
  written.metrics = std::ssize(metrics);
  return written;
}

std::string csv_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return fmt::format("{}", value);  // the shortest text that is read back as the same number
}

/// Calls `write` with a function that writes a line to the file, which exists completely afterwards or not at all, or to stdout.
template <typename Write>
ExportedMetrics write_lines(const std::string& output, Write&& write) {
  ExportedMetrics written;
  const auto write_to = [&](std::FILE* file, const std::string& name) {
    written = write([&](const std::string& text) { std::fwrite((text + "\n").data(), 1, text.size() + 1, file); });
    if (std::fflush(file) != 0 || std::ferror(file) != 0)
      throw environment_error("cannot write {}", name.empty() ? "to standard output" : name + ": is the disk full?");
  };
  if (output.empty()) {
    write_to(stdout, "");
    return written;
  }
  publish_file(output, [&](const fs::path& temporary) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(temporary.c_str(), "wb"), std::fclose);
    if (!file) throw environment_error("cannot write {}", output);
    write_to(file.get(), output);
  });
  return written;
}

ExportedMetrics export_csv(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& output) {
  return write_lines(output, [&](const auto& line) {
    line("run,name,metric,step,value");
    return for_each_point(ledger, runs, [&](const Point& point) {
      line(fmt::format("{},{},{},{},{}", point.run, csv_cell(point.name), csv_cell(point.metric), point.step,
                       csv_number(point.value)));
    });
  });
}

ExportedMetrics export_jsonl(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& output) {
  return write_lines(output, [&](const auto& line) {
    return for_each_point(ledger, runs, [&](const Point& point) {
      const nlohmann::ordered_json json = {{"run", point.run},
                                           {"name", point.name},
                                           {"metric", point.metric},
                                           {"step", point.step},
                                           {"value", json_number(point.value)}};
      line(json_text(json));
    });
  });
}

ExportedMetrics export_parquet(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& output) {
  const auto& module = load_parquet_module();
  ExportedMetrics written;
  publish_file(output, [&](const fs::path& temporary) {
    const auto table = module.create(temporary.string(), {{"run", ParquetWriter::Kind::text},
                                                          {"name", ParquetWriter::Kind::text},
                                                          {"metric", ParquetWriter::Kind::text},
                                                          {"step", ParquetWriter::Kind::integer},
                                                          {"value", ParquetWriter::Kind::real}});
    written = for_each_point(ledger, runs, [&](const Point& point) {
      // Parquet's texts are UTF-8.
      table->append(
          {point.run, escape_invalid_utf8(point.name), escape_invalid_utf8(point.metric), point.step, point.value});
    });
    table->finish();
  });
  return written;
}

using Export = ExportedMetrics (*)(const Ledger&, const std::vector<std::string>&, const std::string&);

struct Format {
  MetricFormat format;
  Export write;
};

const std::vector<Format>& formats() {
  static const std::vector<Format> list = {{{"csv", true}, export_csv},
                                           {{"jsonl", true}, export_jsonl},
                                           {{"parquet", false}, export_parquet},
                                           {{"tensorboard", false}, export_tensorboard},
                                           {{"mlflow", false}, export_mlflow}};
  return list;
}

}  // namespace

MetricFormat metric_format(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [format, write] : formats()) {
    if (format.name == name) return format;
    names.push_back(format.name);
  }
  const std::string problem = fmt::format("--metrics {}: there is no such format", name);
  if (name == "wandb")
    throw usage_error("{}: `wandb sync` uploads the offline files that a run writes with logging.loggers = [\"wandb\"]",
                      problem);
  const auto near = nearest(name, names);
  throw usage_error("{}{}; there are {}", problem, near ? fmt::format(": did you mean {}?", *near) : "",
                    join(names, ", "));
}

ExportedMetrics export_metrics(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& format,
                               const std::string& output) {
  const auto found = std::ranges::find(formats(), format, [](const Format& one) { return one.format.name; });
  RUNNER_CHECK(found != formats().end(), "{}", format);
  return found->write(ledger, runs, output);
}

}  // namespace runner
