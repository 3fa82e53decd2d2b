#include "runner/ui/readers.hpp"

#include <algorithm>

#include "runner/base/clock.hpp"

namespace runner::ui {

Readers::Readers(std::filesystem::path home, size_t most) : home_(std::move(home)), most_(most) {}

std::unique_ptr<sqlite::Database> Readers::open() const {
  const auto file = home_ / "ledger.db";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return nullptr;
  Ledger(home_.string(), Ledger::Mode::read);  // migrates
  auto database = std::make_unique<sqlite::Database>(file, sqlite::Access::existing);
  database->execute("PRAGMA query_only = ON");
  return database;
}

Readers::Lease Readers::take() {
  std::unique_lock lock(mutex_);
  std::error_code ignored;
  if (!std::filesystem::exists(home_ / "ledger.db", ignored)) return {*this, nullptr};
  free_.wait(lock, [this] { return taken_ < most_; });
  std::erase_if(idle_, [](const auto& database) { return database->moved(); });
  ++taken_;
  if (!idle_.empty()) {
    auto database = std::move(idle_.back());
    idle_.pop_back();
    return {*this, std::move(database)};
  }
  lock.unlock();
  std::unique_ptr<sqlite::Database> database;
  try {
    database = open();
  } catch (...) {
    release();
    throw;
  }
  if (!database) release();
  return {*this, std::move(database)};
}

void Readers::release() {
  const std::lock_guard lock(mutex_);
  --taken_;
  free_.notify_one();
}

void Readers::give_back(std::unique_ptr<sqlite::Database> database) {
  const std::lock_guard lock(mutex_);
  --taken_;
  idle_.push_back(std::move(database));
  free_.notify_one();
}

int64_t run_row(sqlite::Database& database, const std::string& id) {
  auto row = database.query("SELECT run FROM run WHERE id = ?", id);
  return row.step() ? row.integer(0) : 0;
}

namespace {
constexpr size_t lists_kept = 3;
constexpr double fresh_seconds = 1;

/// Whether the matching runs or their order change with the time alone: since:2m, took>1h.
bool depends_on_time(const RunFilter& filter) {
  const auto timed = [](const RunOperand& operand) {
    const auto* field = operand.of == RunOperand::Of::name ? find_run_field(operand.name) : nullptr;
    return field && (field->kind == FieldKind::time || field->kind == FieldKind::duration);
  };
  return std::ranges::any_of(filter.terms, timed, &RunTerm::operand) ||
         std::ranges::any_of(filter.order, timed, &RunOrder::operand);
}
}  // namespace

RunList RunLists::matching(const std::string& filter) {
  const std::lock_guard lock(mutex_);
  if (database_ && database_->moved()) {
    database_.reset();
    entries_.clear();
  }
  // Before the ledger is read, so that a file that replaces it meanwhile is found to be another one at the next call.
  if (!database_) database_ = readers_.open();
  if (!database_) {
    parse_filter(filter);
    return std::make_shared<std::vector<RunRow>>();
  }
  const Ledger ledger(readers_.home().string(), Ledger::Mode::read);
  const int64_t version = database_->integer("PRAGMA data_version");
  const double now = steady_seconds();
  const auto found = std::ranges::find(entries_, filter, &Entry::filter);
  if (found != entries_.end()) {
    if ((found->version == version && !found->timed) || now - found->read < fresh_seconds) return found->list;
    entries_.erase(found);
  }
  RunFilter parsed = parse_filter(filter);
  const bool timed = depends_on_time(parsed);
  if (parsed.order.empty()) parsed.order.push_back({.operand = {.name = "started"}, .descending = true});
  auto list = std::make_shared<std::vector<RunRow>>(ledger.runs(parsed));
  entries_.push_front({.filter = filter, .timed = timed, .version = version, .read = steady_seconds(), .list = list});
  if (entries_.size() > lists_kept) entries_.pop_back();
  return list;
}

}  // namespace runner::ui
