// `runner query`: runs SQL on the ledger's views, read-only.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>

#include "runner/base/json_text.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/user_query.hpp"
#include "runner/report/table.hpp"
#include "runner/report/terminal.hpp"

namespace runner {

namespace {

struct QueryOptions {
  std::string sql;
  bool json = false, csv = false;
};

std::string sql_cell(const nlohmann::json& value, const char* null) {
  if (value.is_null()) return null;
  return value.is_string() ? value.get<std::string>() : value.dump();
}

void print_json_rows(UserQuery& query) {
  std::printf("{\"schema\":1,\"columns\":%s,\"rows\":[", nlohmann::json(query.columns()).dump().c_str());
  const char* separator = "";
  while (const auto row = query.next()) {
    std::printf("%s%s", separator, json_text(nlohmann::json(*row)).c_str());
    separator = ",";
  }
  std::puts("]}");
}

void print_csv_rows(UserQuery& query) {
  std::vector<std::string> cells;
  for (const auto& column : query.columns()) cells.push_back(csv_cell(column));
  std::puts(join(cells, ",").c_str());
  while (const auto row = query.next()) {
    cells.clear();
    for (const auto& value : *row) cells.push_back(csv_cell(sql_cell(value, "")));
    std::puts(join(cells, ",").c_str());
  }
}

/// Lays out some rows at a time, so that an endless query takes no more memory. Columns become only wider.
void print_table_of_rows(UserQuery& query) {
  constexpr size_t most = 1000;
  std::vector<Column> columns;
  for (const auto& name : query.columns()) columns.push_back({.title = name, .right = true, .may_shrink = true});
  std::vector<std::string> widest;  // the cell of each column, of the rows before
  auto row = query.next();
  do {
    std::vector<std::vector<std::string>> rows;
    if (!widest.empty()) rows.push_back(widest);
    for (; row && rows.size() < most; row = query.next()) {
      auto& cells = rows.emplace_back();
      for (size_t i = 0; i < row->size(); ++i) {
        if ((*row)[i].is_string()) columns[i].right = false;
        cells.push_back(one_line(first_line(sql_cell((*row)[i], "-"))));
      }
    }
    const std::string table = format_table(columns, rows);
    std::fputs(table.c_str() + (widest.empty() ? 0 : table.find('\n') + 1), stdout);
    if (widest.empty()) widest = query.columns();
    for (auto& column : columns) column.title.clear();
    for (const auto& cells : rows)
      for (size_t i = 0; i < cells.size(); ++i)
        if (display_width(cells[i]) > display_width(widest[i])) widest[i] = cells[i];
  } while (row);
}

ExitCode list_views(const QueryOptions& options) {
  const auto views = UserQuery::views(ledger_home());
  if (options.json) {
    auto list = nlohmann::json::array();
    for (const auto& view : views)
      list.push_back({{"name", view.name}, {"about", view.about}, {"columns", view.columns}});
    print_json(nlohmann::json{{"schema", 1}, {"views", list}});
    return ExitCode::done;
  }
  for (const auto& view : views)
    std::printf("%s%s%s\n  %s\n", view.name.c_str(), view.about.empty() ? "" : ": ", view.about.c_str(),
                join(view.columns, ", ").c_str());
  return ExitCode::done;
}

ExitCode query(QueryOptions options) {
  if (options.sql.empty()) return list_views(options);
  if (options.sql == "-") options.sql.assign(std::istreambuf_iterator<char>(std::cin), {});
  UserQuery query(ledger_home(), options.sql);
  if (options.json)
    print_json_rows(query);
  else if (options.csv)
    print_csv_rows(query);
  else
    print_table_of_rows(query);
  return ExitCode::done;
}

}  // namespace

Action setup_query(CLI::App& app) {
  auto options = std::make_shared<QueryOptions>();
  app.add_option("sql", options->sql,
                 "One SELECT statement; -: read it from stdin; without it, lists views and columns")
      ->type_name("");
  auto* json = add_json_option(app, options->json);
  app.add_flag("--csv", options->csv, "Comma-separated, with a line of column names")->excludes(json);
  app.footer(
      "  runner query \"SELECT name, best_value FROM runs WHERE status = 'finished' ORDER BY best_value\"\n"
      "  runner query \"SELECT step, value FROM metrics WHERE run = 'ID' AND name = 'loss'\" --csv\n"
      "Nothing can be changed. Ctrl-C ends a long query. The views keep their columns in later versions.");
  return [options] { return query(*options); };
}

}  // namespace runner
