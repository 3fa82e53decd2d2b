// Completes filters: fields, statuses, and the tags, groups, recipe keys, values and metrics of the ledger.
#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/ledger/ledger_impl.hpp"

namespace runner {

namespace {

using Candidates = std::vector<FilterCompletions::Candidate>;
constexpr int most_values = 200;

/// Where the term begins that contains `cursor`: after the last space that is not quoted.
size_t term_begin(const std::string& text, size_t cursor) {
  size_t begin = 0;
  char quote = '\0';
  for (size_t i = 0; i < cursor; ++i) {
    if (quote) {
      if (text[i] == quote) quote = '\0';
    } else if (text[i] == '"' || text[i] == '\'') {
      quote = text[i];
    } else if (text[i] == ' ' || text[i] == '\t') {
      begin = i + 1;
    }
  }
  return begin;
}

std::string quoted(const std::string& value) {
  if (value.find_first_of(" ,\t'") == std::string::npos) return value;
  return "\"" + value + "\"";
}

void add_rows(sqlite::Database& database, std::string_view sql, const std::string& parameter, Candidates& list) {
  auto rows = database.query(sql, parameter, most_values);
  while (rows.step())
    if (const std::string text = rows.text(0); !text.empty()) list.push_back({quoted(text), rows.text(1)});
}

void add_words(std::initializer_list<const char*> words, Candidates& list) {
  for (const char* word : words) list.push_back({word, ""});
}

/// Values of a field or recipe key.
Candidates field_values(sqlite::Database& database, const std::string& name) {
  Candidates list;
  if (name == "since" || name == "before") {
    add_words({"1h", "1d", "7d", "30d", "today", "yesterday"}, list);
    return list;
  }
  if (name == "limit" || name == "newest") {
    add_words({"10", "20", "50", "100"}, list);
    return list;
  }
  const RunField* field = find_run_field(name);
  if (!field) {
    add_rows(database,
             "SELECT DISTINCT json_extract(content, path), '' FROM config_key, config WHERE config_key.name = ?1 AND "
             "hash IN (SELECT config FROM run ORDER BY run DESC LIMIT 200) ORDER BY 1 LIMIT ?2",
             name, list);
    return list;
  }
  switch (field->kind) {
    case FieldKind::status:
      for (const auto& status : run_statuses()) list.push_back({status, ""});
      break;
    case FieldKind::flag:
      add_words({"yes", "no", "any"}, list);
      break;
    case FieldKind::list:
      add_rows(database,
               "SELECT value, count(*) || iif(count(*) = 1, ' run', ' runs') FROM run, json_each(tags) WHERE ?1 <> '' "
               "GROUP BY value ORDER BY count(*) DESC, value LIMIT ?2",
               name, list);
      break;
    case FieldKind::id:
      if (field->name_sql)
        add_rows(database,
                 fmt::format("SELECT DISTINCT {}, {} FROM run WHERE ?1 <> '' ORDER BY run.run DESC LIMIT ?2",
                             field->sql, field->name_sql),
                 name, list);
      else if (field->sql == std::string("run.id"))
        add_rows(database, "SELECT id, name FROM run WHERE ?1 <> '' ORDER BY run DESC LIMIT ?2", name, list);
      break;
    case FieldKind::text:
      add_rows(database, fmt::format("SELECT DISTINCT {}, '' FROM run WHERE ?1 <> '' ORDER BY 1 LIMIT ?2", field->sql),
               name, list);
      break;
    default:
      break;
  }
  return list;
}

Candidates known_metrics(sqlite::Database& database) {
  Candidates list;
  for (const auto& name : database.texts("SELECT name FROM key ORDER BY name")) list.push_back({name, "metric"});
  return list;
}

/// Fields, recipe keys, metrics and functions. In a filter, fields are followed by ":".
Candidates names(sqlite::Database* database, bool in_filter) {
  Candidates list;
  for (const auto& field : run_fields()) list.push_back({field.name + std::string(in_filter ? ":" : ""), field.help});
  if (in_filter) {
    list.insert(list.end(), {{"since:", "started that long ago or later: 7d, a date, today"},
                             {"before:", "started earlier"},
                             {"sort:", "order, descending with -: sort:-best(val_loss)"},
                             {"limit:", "only the first ones, or the newest"}});
  }
  for (const char* function : {"best(", "last(", "min(", "max("}) list.push_back({function, "of a metric"});
  if (!database) return list;
  for (const auto& name : database->texts("SELECT name FROM config_key ORDER BY name"))
    list.push_back({name, "recipe key"});
  auto of_runs = known_metrics(*database);
  list.insert(list.end(), of_runs.begin(), of_runs.end());
  return list;
}

}  // namespace

FilterCompletions Ledger::complete_filter(const std::string& text, size_t cursor) const {
  cursor = std::min(cursor, text.size());
  size_t begin = term_begin(text, cursor);
  while (begin < cursor && (text[begin] == '-' || text[begin] == '!')) ++begin;
  const std::string term = text.substr(begin, cursor - begin);
  // The parts before the word to complete: "sort:-", "best(", "status:failed,".
  const auto separator = term.find_last_of(":,(<>=");
  const std::string name = term.substr(0, term.find_first_of(":(<>="));
  const bool sorts = term.starts_with("sort:") || term.starts_with("order:");
  size_t word = separator == std::string::npos ? 0 : separator + 1;
  auto* database = impl_->database.get();
  Candidates all;
  if (separator == std::string::npos || (sorts && term[separator] != '(')) {
    if (sorts && word < term.size() && term[word] == '-') ++word;
    all = names(database, !sorts);
  } else if (term[separator] == '(') {
    if (database) all = known_metrics(*database);
    for (auto& candidate : all) candidate.text += ")";
  } else if (database && (term[separator] == ':' || term[separator] == ',')) {
    all = field_values(*database, name);
  }
  FilterCompletions found{.place = {.offset = begin + word, .length = term.size() - word}, .candidates = {}};
  const std::string prefix = lower(term.substr(word));
  for (auto& candidate : all)
    if (lower(candidate.text).starts_with(prefix)) found.candidates.push_back(std::move(candidate));
  return found;
}

}  // namespace runner
