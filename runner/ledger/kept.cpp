// Texts that the ledger keeps for runs: patches of the code and files that recipes name; and parts of one run's record.
#include "runner/base/xxh3.hpp"
#include "runner/ledger/ledger_impl.hpp"

namespace runner {

std::string Ledger::keep(const std::string& text) {
  impl_->to_write().queue([text](Batch& batch) { keep_text(batch.database(), text); });
  return xxh3_hex(text);
}

std::optional<std::string> Ledger::kept(const std::string& digest) const {
  if (!impl_->database) return std::nullopt;
  auto row = impl_->database->query("SELECT content FROM config WHERE hash = ?", digest);
  return row.step() ? std::optional(row.text(0)) : std::nullopt;
}

RunRow Ledger::row(const std::string& run) const { return impl_->row(impl_->row_of(run)); }

nlohmann::json Ledger::config(const std::string& run) const {
  auto row = impl_->database->query("SELECT content FROM config WHERE hash = (SELECT config FROM run WHERE run = ?)",
                                    impl_->row_of(run));
  return row.step() ? nlohmann::json::parse(row.text(0)) : nlohmann::json();
}

std::map<std::string, MetricSummary> Ledger::summaries(const std::string& run) const {
  std::map<std::string, MetricSummary> list;
  auto rows = impl_->database->query(
      "SELECT name, step, value, min, max FROM metric_last JOIN key USING (key) WHERE run = ?", impl_->row_of(run));
  while (rows.step())
    list[rows.text(0)] = {rows.integer(1), metric_value(rows, 2), metric_value(rows, 3), metric_value(rows, 4)};
  return list;
}

std::map<int64_t, std::map<std::string, double>> Ledger::last_rows(const std::string& run, int64_t count) const {
  std::map<int64_t, std::map<std::string, double>> rows;
  const int64_t number = impl_->row_of(run);
  sqlite::Statement points(
      *impl_->database,
      "SELECT step, value FROM metric WHERE run = ? AND key = (SELECT key FROM key WHERE name = ?) "
      "ORDER BY step DESC LIMIT ?");
  for (const auto& name : metric_names(run)) {
    points.bind(number, name, count);
    while (points.step()) rows[points.integer(0)][name] = metric_value(points, 1);
  }
  while (std::ssize(rows) > count) rows.erase(rows.begin());
  return rows;
}

std::vector<std::string> Ledger::metric_names() const {
  std::vector<std::string> names;
  if (!impl_->database) return names;
  auto rows = impl_->database->query("SELECT name FROM key ORDER BY name");
  while (rows.step()) names.push_back(rows.text(0));
  return names;
}

void Ledger::code(const std::string& run, const nlohmann::json& git) {
  impl_->to_write().queue([lease = impl_->own_lease(run), text = json_text(git)](Batch& batch) {
    if (!batch.owns(lease)) return;
    batch.database().run("UPDATE run SET git = ? WHERE run = ?", text, lease.run);
    batch.database().run("UPDATE attempt SET git = ? WHERE attempt = ?", text, lease.attempt);
  });
}

}  // namespace runner
