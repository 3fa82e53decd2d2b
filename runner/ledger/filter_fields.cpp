// The fields of runs that filters know, and the numbers and times that they are compared with.
#include <algorithm>
#include <ctime>

#include "runner/base/text.hpp"
#include "runner/ledger/filter.hpp"

namespace runner {

const std::vector<RunField>& run_fields() {
  using Kind = FieldKind;
  static const std::vector<RunField> fields = {
      {"id", Kind::id, "run.id", "id of the run, or its first or last characters"},
      {"name", Kind::text, "run.name", "name of the run"},
      {"status", Kind::status, run_status_sql, "running, finished, failed, interrupted, preempted, pruned or lost"},
      {"tag", Kind::list, "run.tags", "a tag; tag:none: runs without tags"},
      {"group", Kind::text, "run.grp", "group; group:none: runs without a group"},
      {"notes", Kind::words, "run.notes", "words in the notes"},
      {"strategy", Kind::text, "run.strategy", "strategy; evaluate, predict or embed for runs that train nothing"},
      {"ranks", Kind::number, "run.world_size", "number of ranks"},
      {"steps", Kind::number, "run.steps", "the greatest step"},
      {"started", Kind::time, "nullif(run.started, 0)", "when the run started"},
      {"ended", Kind::time, "run.ended", "when the run ended"},
      {"took", Kind::duration,
       "(SELECT sum(max(0, coalesce(attempt.ended, run.ended, unixepoch('subsec')) - attempt.started)) FROM attempt "
       "WHERE attempt.run = run.run AND run.started > 0)",
       "the time that its attempts took together (the metric seconds: the training alone)"},
      {"metric", Kind::number,
       "(SELECT value FROM metric_last JOIN key USING (key) WHERE run = run.run AND name IN (run.monitor, 'loss') "
       "ORDER BY name <> run.monitor LIMIT 1)",
       "last value of checkpoint.monitor, or of the loss"},
      {"monitor", Kind::text,
       "CASE WHEN EXISTS (SELECT 1 FROM metric_last JOIN key USING (key) WHERE run = run.run AND name = run.monitor) "
       "THEN run.monitor ELSE 'loss' END",
       "name of that metric"},
      {"sweep", Kind::id, "(SELECT sweep.id FROM trial JOIN sweep USING (sweep) WHERE trial.run = run.run)",
       "id or name of its sweep; sweep:none: runs that are no trials",
       "(SELECT sweep.name FROM trial JOIN sweep USING (sweep) WHERE trial.run = run.run)"},
      {"trial", Kind::number, "(SELECT number FROM trial WHERE trial.run = run.run)",
       "number of the trial in its sweep"},
      {"parent", Kind::id,
       "(SELECT other.id FROM edge JOIN run AS other ON other.run = edge.source WHERE edge.target = run.run)",
       "id or name of the run that it started from",
       "(SELECT other.name FROM edge JOIN run AS other ON other.run = edge.source WHERE edge.target = run.run)"},
      {"failure", Kind::text, "json_extract(run.annotations, '$.measured.failure.kind')",
       "class of the failure, e.g. nonfinite"},
      {"message", Kind::words, "run.message", "words in the message of its end"},
      {"exit_code", Kind::number, "run.exit_code", "exit code"},
      {"host", Kind::text, "json_extract(run.host, '$.hostname')", "host name of the machine"},
      {"branch", Kind::text, "json_extract(run.git, '$.branch')", "git branch"},
      {"commit", Kind::id, "json_extract(run.git, '$.commit')", "git commit, or its first characters"},
      {"dirty", Kind::flag, "ifnull(json_extract(run.git, '$.dirty'), 0)", "yes: the code had uncommitted changes"},
      {"archived", Kind::flag, "run.archived IS NOT NULL", "yes, no (default) or any"},
      {"deleted", Kind::flag, "run.deleted IS NOT NULL", "yes, no (default) or any"}};
  return fields;
}

const RunField* find_run_field(const std::string& name) {
  static const std::vector<std::pair<std::string, std::string>> spellings = {
      {"tags", "tag"}, {"note", "notes"}, {"run", "id"}, {"grp", "group"}, {"state", "status"}, {"duration", "took"}};
  std::string wanted = name;
  for (const auto& [spelling, field] : spellings)
    if (name == spelling) wanted = field;
  const auto found = std::ranges::find(run_fields(), wanted, &RunField::name);
  return found == run_fields().end() ? nullptr : &*found;
}

const std::vector<std::string>& run_statuses() {
  static const std::vector<std::string> all = {"running",   "finished", "failed", "interrupted",
                                               "preempted", "pruned",   "lost"};
  return all;
}

std::optional<double> filter_time(const std::string& text, double now) {
  if (const auto ago = parse_duration(text)) return now - static_cast<double>(ago->count());
  const auto whole = static_cast<std::time_t>(now);
  std::tm local{};
  ::localtime_r(&whole, &local);
  if (text == "today" || text == "yesterday") {
    if (text == "yesterday") --local.tm_mday;
    local.tm_hour = local.tm_min = local.tm_sec = 0;
    local.tm_isdst = -1;
    return static_cast<double>(std::mktime(&local));
  }
  for (const char* format :
       {"%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"}) {
    std::tm time{};
    const char* end = ::strptime(text.c_str(), format, &time);
    if (!end || *end != '\0') continue;
    time.tm_isdst = -1;
    const std::tm asked = time;
    const auto seconds = std::mktime(&time);
    if (time.tm_mday != asked.tm_mday || time.tm_mon != asked.tm_mon) return std::nullopt;  // 31 February
    return static_cast<double>(seconds);
  }
  return std::nullopt;
}

std::optional<std::pair<double, double>> filter_day(const std::string& text, double now) {
  const bool word = text == "today" || text == "yesterday";
  const auto begin = filter_time(text, now);
  if (!begin || (!word && (text.find_first_of("T :") != std::string::npos || parse_duration(text))))
    return std::nullopt;
  const auto whole = static_cast<std::time_t>(*begin);
  std::tm local{};
  ::localtime_r(&whole, &local);
  ++local.tm_mday;
  local.tm_isdst = -1;
  return std::pair{*begin, static_cast<double>(std::mktime(&local))};
}

}  // namespace runner
