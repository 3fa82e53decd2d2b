#include "runner/exchange/export_metrics.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"
#include "runner/ledger/run_id.hpp"
#include "runner/logging/append_file.hpp"
#include "runner/logging/tensorboard_log.hpp"
#include "runner/parquet/module.hpp"

namespace runner {

namespace {

/// A name for a folder: "/" and control characters as _, and not longer than filesystems allow.
std::string folder_name(const std::string& name, const std::string& end) {
  constexpr size_t longest = 200;
  std::string folder = escape_invalid_utf8(name);
  size_t size = std::min(folder.size(), longest - end.size());
  while (size > 0 && size < folder.size() && unicode::continues(folder[size])) --size;  // not inside a character
  folder.resize(size);
  std::ranges::replace_if(
      folder, [](unsigned char c) { return c == '/' || c < 0x20 || c == 0x7f; }, '_');
  if (folder.starts_with('.')) folder.front() = '_';
  return folder + end;
}

void write_events(const ExportedRun& run, const fs::path& folder) {
  std::error_code error;
  if (!fs::create_directories(folder, error))
    throw environment_error("cannot make the folder {}: {}", folder.string(), error.message());
  const double started = run.started();
  std::map<int64_t, std::string> steps;
  for (const auto& [name, points] : run.metrics)
    for (const auto& [step, value] : points) steps[step] += scalar_value(escape_invalid_utf8(name), value);
  AppendFile file(folder / fmt::format("events.out.tfevents.{:010}.runner", static_cast<int64_t>(started)));
  std::string records = version_record(started);
  for (const auto& [step, values] : steps) {
    records += summary_record(run.time_of(step), step, values);
    if (records.size() > (1U << 20)) file.append(std::exchange(records, {}));
  }
  // Without values, for the time of the end.
  const auto& ended = run.shown.at("ended");
  if (ended.is_number() && !steps.empty()) records += summary_record(ended.get<double>(), steps.rbegin()->first, "");
  if (!records.empty()) file.append(records);
}

/// Writes TensorBoard's event files: one folder for each run below `output`, named NAME-ID, with one file. The time of a value is the
/// start of the run and the training time up to its step (the metric `seconds`). The first and the last record have those of the run.
ExportedMetrics export_tensorboard(const Ledger& ledger, const std::vector<std::string>& runs,
                                   const std::string& output) {
  return export_folder(ledger, runs, output, [](const fs::path& temporary) {
    return [temporary](const ExportedRun& run) { write_events(run, temporary / run.folder); };
  });
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
  if (!std::isfinite(value)) return nonfinite_word(value);
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

double ExportedRun::started() const {
  const auto& start = shown.at("started");
  return start.is_number() ? start.get<double>() : 0;
}

double ExportedRun::time_of(int64_t step) const {
  const double started = ExportedRun::started();
  const auto seconds = metrics.find(metric::seconds);
  if (seconds == metrics.end() || seconds->second.empty()) return started;
  const auto& points = seconds->second;
  auto next = std::ranges::upper_bound(points, step, {}, [](const auto& point) { return point.first; });
  if (next == points.begin()) return started;
  const double passed = std::prev(next)->second;
  return std::isfinite(passed) ? started + passed : started;
}

ExportedRun exported_run(const Ledger& ledger, const std::string& run) {
  ExportedRun exported{.id = run, .folder = "", .shown = ledger.show(run), .metrics = {}};
  exported.folder = folder_name(exported.shown.at("name"), "-" + id_end(run));
  for (const auto& name : ledger.metric_names(run)) exported.metrics[name] = ledger.points(run, name);
  return exported;
}

ExportedMetrics export_folder(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& output,
                              const std::function<WriteRun(const fs::path& temporary)>& begin) {
  ExportedMetrics written{.runs = std::ssize(runs)};
  std::set<std::string> metrics;
  const std::string temporary = fmt::format("{}.{}.tmp", output, ::getpid());
  std::error_code error;
  if (!fs::create_directory(temporary, error))
    throw environment_error("cannot make the folder {}: {}", temporary, error ? error.message() : "it exists");
  try {
    const WriteRun write = begin(temporary);
    for (const auto& id : runs) {
      const auto run = exported_run(ledger, id);
      write(run);
      for (const auto& [name, points] : run.metrics) {
        metrics.insert(name);
        written.points += std::ssize(points);
      }
    }
    publish_directory(temporary, output);
  } catch (...) {
    fs::remove_all(temporary, error);
    throw;
  }
  written.metrics = std::ssize(metrics);
  return written;
}

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
