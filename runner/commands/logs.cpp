// `runner logs`: prints or searches what the terminal showed of a run, and what its ranks wrote to stdout and stderr.
#include <cstdio>
#include <deque>
#include <memory>
#include <stdexcept>

#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/launch/rank_logs.hpp"
#include "runner/ledger/foreign_runs.hpp"
#include "runner/ledger/ledger.hpp"
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

}  // namespace runner
