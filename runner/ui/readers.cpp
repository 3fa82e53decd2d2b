#include "runner/ui/readers.hpp"

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

}  // namespace runner::ui
