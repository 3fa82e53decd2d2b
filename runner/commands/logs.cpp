// `runner logs`: prints or searches what the terminal showed of a run, and what its ranks wrote to stdout and stderr. `runner tail`:
// follows the metrics, the events and the output of a run until it ends.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <deque>
#include <memory>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "runner/base/clock.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/launch/rank_logs.hpp"
#include "runner/ledger/foreign_runs.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/new_points.hpp"
#include "runner/report/terminal.hpp"
#include "runner/tokenizers/regex.hpp"

namespace runner {

namespace {

struct LogsOptions {
  std::string run = "last", pattern;
  std::vector<int> ranks;
  int64_t tail = 0, attempt = 0;  ///< 0: all
  bool json = false;
};

Regex pattern_of(const std::string& text) try { return Regex(text); } catch (const std::invalid_argument& error) {
  throw usage_error("--grep {}: this is no regular expression: {}", text, error.what());
}

void check_ranks(const LogsOptions& options, const std::map<int, fs::path>& logs, const std::string& run) {
  std::vector<int> known;
  for (const auto& [rank, file] : logs) known.push_back(rank);
  for (const int rank : options.ranks)
    if (!logs.contains(rank)) throw usage_error("--rank {}: run {} has logs of {}", rank, run, describe_ranks(known));
}

void check_attempt(const Ledger& ledger, const std::string& run, int64_t attempt) {
  const auto begun = ledger.attempts(run);
  if (attempt == 0 || begun.empty() || begun.contains(attempt)) return;
  const auto last = begun.rbegin()->first;
  throw usage_error("--attempt {}: run {} has {}", attempt, run,
                    last == 1 ? "only attempt 1" : fmt::format("the attempts 1 to {}", last));
}

void print(const RankLogLine& line, bool several, bool json) {
  if (json)
    print_json(to_json(line));
  else if (several && line.rank < 0)
    print_line("run    | " + line.text);
  else if (several)
    print_line(fmt::format("rank {} | {}", line.rank, line.text));
  else
    print_line(line.text);
}

/// Prints the chosen lines of a log. Returns their number.
int64_t print_log(int rank, const fs::path& file, bool several, const LogsOptions& options) {
  const auto pattern = options.pattern.empty() ? nullptr : std::make_unique<Regex>(pattern_of(options.pattern));
  std::deque<RankLogLine> last;
  int64_t count = 0;
  RankLogReader(rank, file)
      .read(
          [&](const RankLogLine& line) {
            size_t begin = 0, end = 0;
            PatternTime time(line.text.size(), "the expression of --grep");
            if (options.attempt > 0 && line.attempt != options.attempt) return;
            if (pattern && !pattern->find(line.text, 0, begin, end, time)) return;
            ++count;
            if (options.tail == 0) return print(line, several, options.json);
            last.push_back(line);
            if (static_cast<int64_t>(last.size()) > options.tail) last.pop_front();
          },
          /*to_end=*/true);
  for (const auto& line : last) print(line, several, options.json);
  return count;
}

ExitCode logs(const LogsOptions& options) {
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  const std::string run = ledger.find_run(options.run), folder = ledger.run_dir(run);
  const auto origin = imported_from(ledger_home(), run);
  auto files = rank_logs(folder);
  if (files.empty() && !origin.empty())
    throw usage_error(
        "run {} has no logs here: it was imported from {}{}", run, origin,
        origin.starts_with("bundle") ? ", which has no logs (runner export --bundle --files logs adds them)" : "");
  if (!fs::exists(folder)) throw usage_error("the logs of run {} are gone: its folder {} was deleted", run, folder);
  if (files.empty()) throw usage_error("run {} has no logs: it started no rank", run);
  check_ranks(options, files, run);
  check_attempt(ledger, run, options.attempt);
  if (!options.pattern.empty()) pattern_of(options.pattern);
  if (const auto shown = run_log(folder); options.ranks.empty() && fs::exists(shown)) files[-1] = shown;
  ignore_closed_output();
  int64_t count = 0;
  for (const auto& [rank, file] : files)
    if (options.ranks.empty() || std::ranges::find(options.ranks, rank) != options.ranks.end())
      count += print_log(rank, file, files.size() > 1 && options.ranks.size() != 1, options);
  if (count == 0 && !options.json)
    std::fprintf(stderr, "no line %s\n", options.pattern.empty() && options.attempt == 0 ? "was written" : "matches");
  return ExitCode::done;
}

constexpr std::chrono::milliseconds tail_interval(500);
constexpr size_t points_at_once = 100'000;

struct TailOptions {
  std::string run = "last";
  int64_t lines = 10;
  bool follow = false, no_follow = false, json = false;
};

/// Prints what is new since the last call.
class Tail {
 public:
  Tail(std::string home, std::string run, const TailOptions& options)
      : home_(std::move(home)), run_(std::move(run)), options_(options) {}

  /// Prints the last lines, or all that are new. Returns the run's status. A ledger that cannot be read any more may come back, because
  /// the run writes it: as long as the run's folder is there, the status stays, and one note says so.
  std::string print_new() {
    try {
      status_ = read_and_print();
      told_ = false;
    } catch (const Error& error) {
      if (folder_.empty() || !fs::exists(folder_)) throw;
      if (!std::exchange(told_, true)) log::info("waiting for the ledger of the run in {}: {}", folder_, error.what());
    }
    std::fflush(stdout);
    return status_;
  }

  /// Returns the exit code that the run's own command had.
  ExitCode print_end() const {
    const Ledger ledger(home_, Ledger::Mode::read);
    const auto row = ledger.row(run_);
    std::string text = fmt::format("run {} {} after {}, {}", run_, row.status == "lost" ? "is lost" : row.status,
                                   counted(row.steps, "step"), format_duration(seconds_taken(row, wall_seconds())));
    if (row.metric_value) text += fmt::format(": {} {:.6g}", row.metric, *row.metric_value);
    if (!row.why.empty()) text += fmt::format(" ({})", row.why);
    if (options_.json)
      print_json(nlohmann::json{
          {"schema", 1}, {"kind", "end"}, {"status", row.status}, {"steps", row.steps}, {"why", row.why}});
    else
      std::puts(terminal_text(text).c_str());
    return row.status == "finished" || row.status == "pruned" ? ExitCode::done
           : row.status == "preempted"                        ? ExitCode::preempted
           : row.status == "interrupted"                      ? ExitCode::interrupted
                                                              : ExitCode::run_failed;
  }

 private:
  /// The ledger is opened again each time, because that is when a run whose supervisor is gone is recognised.
  std::string read_and_print() {
    const Ledger ledger(home_, Ledger::Mode::read);
    const auto row = ledger.row(run_);  // first: what is written before the end is printed before the end
    folder_ = ledger.run_dir(run_);
    rewind(ledger);
    print_steps(ledger);
    print_logs(ledger);
    first_ = false;
    return row.status;
  }

  /// A resumed run goes back: its points are written again.
  void rewind(const Ledger& ledger) {
    const auto attempts = ledger.attempts(run_);
    const int64_t newest = attempts.empty() ? 0 : attempts.rbegin()->first;
    if (!first_ && newest > attempt_) points_ = points_after(ledger, attempts.rbegin()->second);
    attempt_ = newest;
  }

  /// The points that will be recorded, without those up to `step`.
  std::unique_ptr<NewPoints> points_after(const Ledger& ledger, int64_t step) const {
    auto points = std::make_unique<NewPoints>(home_, run_);
    for (const auto& [name, summary] : ledger.summaries(run_)) points->skip(name, std::min(step, summary.step));
    return points;
  }

  /// A metric may arrive after the others of its step: a slow validation. It gets a line of its own.
  void print_steps(const Ledger& ledger) {
    std::map<int64_t, std::map<std::string, double>> rows;
    if (!points_) {
      points_ = points_after(ledger, INT64_MAX);
      rows = ledger.last_rows(run_, options_.lines);
    }
    for (auto points = points_->next(points_at_once); !points.empty(); points = points_->next(points_at_once))
      for (const auto& point : points) rows[point.step][point.name] = point.value;
    for (const auto& [step, values] : rows) {
      if (options_.json) {
        nlohmann::json line = {{"schema", 1}, {"kind", "step"}, {"step", step}, {"metrics", nlohmann::json::object()}};
        for (const auto& [name, value] : values) line["metrics"][name] = json_number(value);
        print_json(line);
      } else {
        std::puts(one_line(step_text(step, values)).c_str());
      }
    }
  }

  /// The metrics in reading order, without those that say nothing about the course of the training.
  static std::string step_text(int64_t step, const std::map<std::string, double>& values) {
    static const std::set<std::string> left_out = {metric::step_seconds,
                                                   metric::data_wait_share,
                                                   metric::memory_bytes,
                                                   metric::epoch,
                                                   "tokens",
                                                   "samples",
                                                   "seconds"};
    std::vector<std::string> names;
    for (const auto& [name, value] : values)
      if (!left_out.contains(name) && !name.starts_with(metric::group_lr_prefix)) names.push_back(name);
    sort_metrics(names);
    std::string text = fmt::format("step {}", step);
    for (const auto& name : names) text += fmt::format("  {} {:.6g}", name, values.at(name));
    return text;
  }

  void print_logs(const Ledger& ledger) {
    const auto files = rank_logs(ledger.run_dir(run_));
    for (const auto& [rank, file] : files) {
      auto& reader = readers_.try_emplace(rank, rank, file).first->second;
      std::deque<RankLogLine> lines;
      reader.read(
          [&](const RankLogLine& line) {
            lines.push_back(line);
            if (first_ && static_cast<int64_t>(lines.size()) > options_.lines) lines.pop_front();
          },
          /*to_end=*/false);
      for (const auto& line : lines)
        if (options_.json)
          print_json(to_json(line));
        else
          print_line(fmt::format("rank {} | {}", line.rank, line.text));
    }
  }

  std::string home_, run_;
  const TailOptions& options_;
  std::string folder_, status_;  ///< as the ledger had them last; empty: the run was not seen yet
  bool first_ = true, told_ = false;
  int64_t attempt_ = 0;
  std::unique_ptr<NewPoints> points_;
  std::map<int, RankLogReader> readers_;
};

ExitCode tail(const TailOptions& options) {
  const std::string home = ledger_home();
  std::string run;
  {
    const Ledger ledger(home, Ledger::Mode::read);
    run = ledger.find_run(options.run);
  }
  Tail printer(home, run, options);
  std::string status = printer.print_new();
  while (status == "running" && !options.no_follow) {
    std::this_thread::sleep_for(tail_interval);
    status = printer.print_new();
  }
  if (status == "running") return ExitCode::done;
  printer.print_new();  // what was written between the last look and the end
  return printer.print_end();
}

}  // namespace

Action setup_logs(CLI::App& app) {
  auto options = std::make_shared<LogsOptions>();
  add_run_option(app, options->run);
  app.add_option("--rank", options->ranks, "Only this rank; may be given several times")
      ->type_name("N")
      ->allow_extra_args(false);
  app.add_option("--grep", options->pattern, "Only lines that this regular expression matches")->type_name("REGEX");
  app.add_option("--tail", options->tail, "Only the last N of these lines of each rank")
      ->type_name("N")
      ->check(at_least_one());
  app.add_option("--attempt", options->attempt, "Only this attempt, which `runner show` lists")
      ->type_name("N")
      ->check(at_least_one());
  add_json_option(app, options->json);
  app.footer(
      "Prints what the terminal showed (\"run |\", logs/run.log), and stdout and stderr of the ranks. A log has at "
      "most 64 MiB: of a longer one, the beginning and the end are "
      "kept.\n"
      "`runner tail` follows a run that is still running. --json prints one line {\"schema\", \"kind\": \"log\", "
      "\"rank\", \"attempt\", \"text\"} for each line.");
  return [options] { return logs(*options); };
}

Action setup_tail(CLI::App& app) {
  auto options = std::make_shared<TailOptions>();
  add_run_option(app, options->run);
  app.add_option("-n,--lines", options->lines, "Begin with the last N steps, and the last N lines of each rank")
      ->type_name("N")
      ->check(at_least_one())
      ->capture_default_str();
  auto* follow = app.add_flag("-f,--follow", options->follow, "Follow the run while it runs; this is the default");
  app.add_flag("--no-follow", options->no_follow, "Print what there is, and end")->excludes(follow);
  add_json_option(app, options->json);
  app.footer(
      "Follows a run of any shell until it ends, and then prints how it ended. --json prints a line for each step, for "
      "each line of a\n"
      "rank, and for the end. The exit code is that of the run: 0 finished, 1 failed or lost, 3 preempted, 130 "
      "interrupted.");
  return [options] { return tail(*options); };
}

}  // namespace runner
