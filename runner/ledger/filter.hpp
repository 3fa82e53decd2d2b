// The language of filters over runs: `status:failed lr>1e-3 tag:x since:7d sort:best(val_loss) limit:20`.
//
// A filter is a list of terms. A run matches if it fulfils all of them.
//
//   FIELD:VALUE             a field of the run (run_fields()), a recipe key or a metric; a,b: one of several values.
//                           Texts ignore case and may contain *, ? and [...]; "..." or '...' around spaces.
//   OPERAND>NUMBER          also >=, <, <=, = and !=. Durations ("90m") and times ("2026-11-20", "7d") where the field has them.
//   WORD                    runs with the word in their name, id, tags, group or notes
//   -TERM, !TERM, not TERM  runs that do not fulfil the term
//   since:7d before:2026-11-20T18:00  when the run started: that long ago, a date (local time), "today" or "yesterday"
//   sort:-best(val_loss),name         ascending, or descending with "-"; runs without a value come last
//   limit:20                the first 20 in this order; without sort: the newest 20
//
// An OPERAND is a field, a recipe key ("optimizer.lr", or its last part "lr" if no other key has it), a metric (its last
// value), or last(METRIC), best(METRIC), which is finite, min(METRIC), max(METRIC). Archived and deleted runs match only with
// archived:yes|any and deleted:yes|any; the trash (deleted:yes) has archived runs, too.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "runner/base/error.hpp"

namespace runner {

/// Part of a filter's text, in bytes.
struct FilterPlace {
  size_t offset = 0, length = 0;
};

/// A mistake in a filter, Error(usage). what() has the message, the text, and a line of carets under the place.
class FilterError : public Error {
 public:
  FilterError(const std::string& text, FilterPlace place, const std::string& message);
  const std::string& message() const { return message_; }
  FilterPlace place() const { return place_; }

 private:
  std::string message_;
  FilterPlace place_;
};

/// A value of a run: `name` is a field, recipe key or metric; the others are of the metric `name`.
struct RunOperand {
  enum class Of { name, last, best, min, max };
  Of of = Of::name;
  std::string name = "";
  FilterPlace place = {};
  std::string text() const;  ///< as written: "best(val_loss)"
};

struct RunTerm {
  enum class Relation { one_of, unequal, less, at_most, greater, at_least };
  RunOperand operand = {};  ///< without a name: a search for values[0]
  Relation relation = Relation::one_of;
  std::vector<std::string> values = {};
  std::vector<FilterPlace> places = {};  ///< of the values
  bool negated = false;
};

struct RunOrder {
  RunOperand operand;
  bool descending = false;
};

struct RunFilter {
  std::string text;  ///< which all places refer to
  std::vector<RunTerm> terms;
  std::vector<RunOrder> order;   ///< empty: by start, newest last
  std::optional<size_t> limit;   ///< the first runs in `order`; the newest ones if `order` is empty
  std::optional<size_t> newest;  ///< only the newest of the matching runs, whatever `order` is
  std::optional<std::vector<std::string>> ids =
      {};  ///< only these runs, also archived and deleted ones; not in the text
};

/// Throws FilterError. Names of recipe keys and metrics are resolved later, by Ledger::runs().
RunFilter parse_filter(const std::string& text);

/// Values of runs to show: "name,status,lr,best(val_loss)".
struct RunColumns {
  std::string text;
  std::vector<RunOperand> list;
};
/// Throws FilterError.
RunColumns parse_columns(const std::string& text);

enum class FieldKind { text, id, status, words, list, number, duration, time, flag };

/// A field of runs that filters, sorting and columns know.
struct RunField {
  const char* name;
  FieldKind kind;
  const char* sql;  ///< an expression over the table `run`
  const char* help;
  const char* name_sql = nullptr;  ///< of an id: the name that stands for it, too
};

/// The status of a row of `run`. A preempted trial whose sweep stopped it is `pruned`.
constexpr const char* run_status_sql =
    "CASE WHEN run.status = 'preempted' AND EXISTS (SELECT 1 FROM trial WHERE trial.run = run.run AND trial.status = "
    "'pruned') THEN 'pruned' ELSE run.status END";

const std::vector<RunField>& run_fields();
/// Null if there is none with this name; other spellings ("tags", "id") have the same field.
const RunField* find_run_field(const std::string& name);

/// The statuses of runs.
const std::vector<std::string>& run_statuses();

/// The texts that can replace a part of a filter's text.
struct FilterCompletions {
  struct Candidate {
    std::string text;   ///< "status:failed"
    std::string about;  ///< "" or what it means
  };
  FilterPlace place;
  std::vector<Candidate> candidates;
};

/// Unix seconds for "7d" (that long before `now`), "2026-11-20", "2026-11-20T18:00", "today" or "yesterday" (local time).
std::optional<double> filter_time(const std::string& text, double now);
/// The beginning and the end of the day that a text without a time names: 2026-11-20, today, yesterday.
std::optional<std::pair<double, double>> filter_day(const std::string& text, double now);

}  // namespace runner
