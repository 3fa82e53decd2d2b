// The records of a run: metrics, readings of the machine, events, artifacts, annotations, texts and heartbeats. Leases decide who may
// write them.
#include <cmath>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/ledger/ledger_impl.hpp"

namespace runner {

using nlohmann::json;

namespace {

/// Reads "step" and "saved" from the fields. "saved" is internal and is removed from the fields.
Batch::Record make_record(const std::string& kind, json fields) {
  Batch::Record record;
  record.kind = kind;
  const auto integer = [&](const char* name) -> std::optional<int64_t> {
    const auto field = fields.is_object() ? fields.find(name) : fields.end();
    if (field == fields.end() || !field->is_number_integer()) return std::nullopt;
    return field->get<int64_t>();
  };
  record.step = integer("step").value_or(0);
  if (const auto saved = fields.is_object() ? fields.find("saved") : fields.end();
      saved != fields.end() && saved->is_number()) {
    record.saved = saved->get<double>();
    fields.erase(saved);
  }
  record.fields = json_text(fields);
  return record;
}

}  // namespace

std::optional<std::string> relative_below(const fs::path& folder, const fs::path& path) {
  const fs::path relative =
      fs::absolute(path).lexically_normal().lexically_relative(fs::absolute(folder / "").lexically_normal());
  if (relative.empty() || *relative.begin() == "..") return std::nullopt;
  return relative.string();
}

[[noreturn]] void refuse_stale(sqlite::Database& database, const std::string& id, const Lease& lease) {
  auto newest = database.query("SELECT number, host, pid FROM attempt WHERE run = ? ORDER BY attempt DESC", lease.run);
  RUNNER_CHECK(newest.step());
  throw environment_error(
      "run {} was resumed elsewhere: attempt {} is process {} on {}. This one stops, and writes nothing more", id,
      newest.integer(0), newest.integer(2), newest.text(1));
}

int64_t Ledger::Impl::row_of(const std::string& id) const {
  if (database) {
    auto row = database->query("SELECT run FROM run WHERE id = ?", id);
    if (row.step()) return row.integer(0);
  }
  throw usage_error("there is no run {} in {}", id, path.string());
}

Lease Ledger::Impl::lease_of(const std::string& id) const {
  const auto found = leases.find(id);
  return found != leases.end() ? found->second : Lease{row_of(id), 0};
}

Lease& Ledger::Impl::own_lease(const std::string& id) {
  const auto found = leases.find(id);
  RUNNER_CHECK(found != leases.end(), "run {} was neither begun nor reopened here", id);
  return found->second;
}

bool Ledger::Impl::taken_up(const Lease& lease) const {
  const BriefReads brief_reads(*this);
  try {
    auto newest = database->query("SELECT max(attempt) FROM attempt WHERE run = ?", lease.run);
    return newest.step() && newest.integer(0) > lease.attempt;
  } catch (const sqlite::Failure&) {
    return false;  // a temporary read failure must not stop the training
  }
}

Writer& Ledger::Impl::to_write() const {
  RUNNER_CHECK(writer, "{} was opened to read", path.string());
  return *writer;
}

void Ledger::metrics(const std::string& run, std::vector<MetricPoint> points) {
  const double now = impl_->last_write[run] = wall_seconds();
  impl_->to_write().queue([lease = impl_->lease_of(run), now, points = std::move(points)](Batch& batch) {
    batch.points(lease, now, points);
  });
}

void Ledger::system_samples(const std::string& run, std::vector<std::pair<std::string, double>> values) {
  const double now = wall_seconds();
  std::erase_if(values, [](const auto& value) { return !std::isfinite(value.second); });
  impl_->to_write().queue([lease = impl_->lease_of(run), now, values = std::move(values)](Batch& batch) {
    batch.system_samples(lease, now, values);
  });
}

void Ledger::event(const std::string& run, const std::string& kind, const json& fields) {
  const double now = impl_->last_write[run] = wall_seconds();
  impl_->to_write().queue([now, lease = impl_->lease_of(run),
                           record = make_record(kind, impl_->secrets.json_without(fields))](Batch& batch) {
    batch.event(lease, now, record);
  });
}

void Ledger::artifact(const std::string& run, const std::string& kind, const std::string& path, const json& fields,
                      bool unless_known) {
  const double now = impl_->last_write[run] = wall_seconds();
  // The run's folder is read in the background too: with a rollback journal, a reader waits for other processes.
  impl_->to_write().queue([=, home = impl_->home, lease = impl_->lease_of(run),
                           record = make_record(kind, impl_->secrets.json_without(fields))](Batch& batch) {
    const std::string folder = batch.database().text("SELECT folder FROM run WHERE run = ?", lease.run);
    const std::string stored = relative_below(home / folder, path).value_or(path);
    auto known = batch.database().query("SELECT 1 FROM artifact WHERE run = ? AND kind = ? AND path = ?", lease.run,
                                        kind, stored);
    if (!unless_known || !known.step()) batch.artifact(lease, now, record, stored);
  });
}

void Ledger::settle(const std::string& run, std::function<void()> done) {
  const double now = impl_->last_write[run] = wall_seconds();
  auto owned = std::make_shared<bool>(true);
  // SQLite syncs its log only if the transaction writes something; the heartbeat ensures that.
  impl_->to_write().settle(
      [=, lease = impl_->own_lease(run)](Batch& batch) {
        *owned = batch.owns(lease);
        batch.touch(lease, now);
      },
      [owned, done = std::move(done)] {
        if (*owned) done();
      });
}

void Ledger::annotate(const std::string& run, const std::string& key, const json& value) {
  impl_->to_write().queue([lease = impl_->lease_of(run), path = "$.\"" + key + "\"",
                           text = json_text(impl_->secrets.json_without(value))](Batch& batch) {
    if (batch.owns(lease))
      batch.database().run("UPDATE run SET annotations = json_set(annotations, ?, json(?)) WHERE run = ?", path, text,
                           lease.run);
  });
}

std::string Ledger::keep(const std::string& text) {
  impl_->to_write().queue([text](Batch& batch) { keep_text(batch.database(), text); });
  return xxh3_hex(text);
}

void Ledger::code(const std::string& run, const nlohmann::json& git) {
  impl_->to_write().queue([lease = impl_->own_lease(run), text = json_text(git)](Batch& batch) {
    if (!batch.owns(lease)) return;
    batch.database().run("UPDATE run SET git = ? WHERE run = ?", text, lease.run);
    batch.database().run("UPDATE attempt SET git = ? WHERE attempt = ?", text, lease.attempt);
  });
}

void Ledger::heartbeat(const std::string& run) {
  constexpr double interval = 10;  // far below heartbeat_lease_seconds
  const double now = wall_seconds();
  const Lease lease = impl_->own_lease(run);
  impl_->follow_writer();
  if (impl_->taken_up(lease)) refuse_stale(*impl_->database, run, lease);
  double& last = impl_->last_write[run];
  if (now - last < interval) return;
  last = now;
  impl_->to_write().queue([lease, now](Batch& batch) { batch.touch(lease, now); });
}

bool Ledger::taken_up(const std::string& run) const {
  const auto own = impl_->leases.find(run);
  return own != impl_->leases.end() && impl_->taken_up(own->second);
}

void Ledger::flush() {
  impl_->to_write().commit([](Batch&) {});
}

}  // namespace runner
