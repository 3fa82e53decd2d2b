#include "runner/ledger/writer.hpp"

#include <chrono>
#include <iterator>
#include <utility>

#include "runner/base/clock.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/ledger/ledger_impl.hpp"
#include "runner/ledger/spool.hpp"

namespace runner {

namespace {
constexpr std::chrono::milliseconds batch_interval(500);
constexpr std::chrono::milliseconds retry_interval(200);
constexpr double check_interval = 10;  ///< seconds between looks at the file
constexpr double spool_interval = 5;   ///< seconds between attempts to begin or end a spool
constexpr int hurried_wait_ms = 1000;
void tell_back(const fs::path& ledger) {
  log::info("the ledger {} can be written again; nothing was lost", ledger.string());
}

}  // namespace

Writer::Writer(const fs::path& home, std::unique_ptr<sqlite::Database> database) : home_(home) {
  use(std::move(database));
  thread_ = std::thread([this] { loop(); });
}

void Writer::use(std::unique_ptr<sqlite::Database> database) {
  batch_.reset();
  {
    const std::lock_guard lock(place_mutex_);
    database_ = std::move(database);
    file_ = database_->path();
    if (hurried_) database_->set_busy_timeout(hurried_wait_ms);
  }
  batch_ = std::make_unique<Batch>(*database_);
  // Without a sync at each commit, only a write-ahead log stays consistent after a power failure.
  synchronous_ = database_->text("PRAGMA journal_mode") == "wal" ? "NORMAL" : "FULL";
}

void Writer::guard(int64_t run, const fs::path& folder) {
  std::lock_guard lock(transaction_mutex_);
  guarded_ = run;
  folder_ = folder;
  if (spooling_) return;
  seed_.reset();
  try {
    if (run != 0) seed_ = seed_of(database_->path(), run);
  } catch (const Error&) {
    // Without a seed, a spool needs a ledger that can be read.
  }
}

fs::path Writer::file() const {
  const std::lock_guard lock(place_mutex_);
  return file_;
}

void Writer::hurry() {
  const std::lock_guard lock(place_mutex_);
  hurried_ = true;
  database_->set_busy_timeout(hurried_wait_ms);
}

Writer::~Writer() {
  {
    std::lock_guard lock(queue_mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  tried_ = 0;
  if (spooling_) end_spool();
  if (spooling_)
    log::warning("the last records of the run are in {}; the next command that can write the ledger {} adds them",
                 database_->path().string(), (home_ / "ledger.db").string());
  if (!queue_.empty())
    log::warning("{} records could not be written to {} and are lost", queue_.size(), database_->path().string());
}

void Writer::queue(Change change) {
  {
    std::lock_guard lock(queue_mutex_);
    queue_.push_back(std::move(change));
  }
  wake_.notify_one();
}

void Writer::settle(Change change, std::function<void()> done) {
  {
    std::lock_guard lock(queue_mutex_);
    queue_.push_back(std::move(change));
    settling_.push_back(std::move(done));
  }
  wake_.notify_one();
}

void Writer::commit(const Change& change, std::chrono::seconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (bool told = false;;) {
    try {
      return write(&change, Survives::power_failure);
    } catch (const sqlite::Failure& failure) {
      if (failure.primary() == SQLITE_CORRUPT || std::chrono::steady_clock::now() >= deadline) throw;
      if (!std::exchange(told, true))
        log::warning("{}; waiting up to {} s more, because the last records are not written yet", failure.what(),
                     patience.count());
    }
    std::this_thread::sleep_for(retry_interval);
  }
}

void Writer::write(const Change* last, Survives what) {
  std::lock_guard transaction_lock(transaction_mutex_);
  if (spooling_) end_spool();
  try {
    write_once(last, what);
  } catch (const sqlite::Failure& failure) {
    if (!begin_spool(failure)) throw;
    write_once(last, what);
  }
}

void Writer::write_once(const Change* last, Survives what) {
  std::vector<Change> changes;
  {
    std::lock_guard lock(queue_mutex_);
    changes.swap(queue_);
  }
  if (changes.empty() && !last) return;
  try {
    check_file(/*now=*/last != nullptr);
    database_->execute(std::string("PRAGMA synchronous = ") + (what == Survives::kill ? synchronous_ : "FULL"));
    sqlite::Transaction transaction(*database_);
    for (const auto& change : changes) change(*batch_);
    if (last) (*last)(*batch_);
    batch_->close();
    fault_point("commit");
    transaction.commit();
    fault_point("committed");
    batch_->committed();
  } catch (...) {
    batch_->rolled_back();
    std::lock_guard lock(queue_mutex_);
    queue_.insert(queue_.begin(), std::make_move_iterator(changes.begin()), std::make_move_iterator(changes.end()));
    throw;
  }
}

void Writer::check_file(bool now) {
  database_->check_place();
  if (spooling_ || guarded_ == 0 || (!now && steady_seconds() - checked_ < check_interval)) return;
  checked_ = steady_seconds();
  // SQLite does not look at pages that it has in memory or in its log, so only another connection finds a damaged file.
  std::string why;
  try {
    sqlite::Database fresh(database_->path(), sqlite::Access::existing);
    if (fresh.query("SELECT 1 FROM run WHERE run = ?", guarded_).step()) return;
    why = "it does not have the run any more";
  } catch (const sqlite::Failure& failure) {
    if (failure.primary() == SQLITE_BUSY || failure.primary() == SQLITE_LOCKED) return;
    if (lasts(failure)) throw;
    why = failure.what();
  }
  throw sqlite::Failure(SQLITE_CORRUPT, fmt::format("the ledger {} is damaged: {}", database_->path().string(), why));
}

bool Writer::begin_spool(const sqlite::Failure& failure) {
  const bool locked = failure.primary() == SQLITE_BUSY || failure.primary() == SQLITE_LOCKED;
  if (spooling_ || guarded_ == 0 || !(lasts(failure) || (hurried_ && locked))) return false;
  if (tried_ > 0 && steady_seconds() - tried_ < spool_interval) return false;
  tried_ = steady_seconds();
  for (const auto& file : spool_places(home_, folder_)) {
    try {
      create_spool(*database_, guarded_, seed_.get(), file);
      auto spool = std::make_unique<sqlite::Database>(file, sqlite::Access::existing);
      if (!on_network_filesystem(file.parent_path().string())) spool->execute("PRAGMA journal_mode = wal");
      use(std::move(spool));
    } catch (const Error&) {
      continue;
    }
    spooling_ = true;
    log::warning("{}; {}its record goes to {} until the ledger can be written again", failure.what(),
                 hurried_ ? "" : "the training goes on, and ", file.string());
    fault_point("spool");
    return true;
  }
  return false;  // the records stay in memory
}

void Writer::end_spool() {
  if (tried_ > 0 && steady_seconds() - tried_ < spool_interval) return;
  tried_ = steady_seconds();
  try {
    auto ledger = open_to_write(home_, /*adopts=*/false);
    if (hurried_) ledger->set_busy_timeout(hurried_wait_ms);
    if (!merge_spool(*ledger, database_->path(), /*same_numbers=*/true)) return;
    use(std::move(ledger));
    spooling_ = false;
    merge_all_spools(*database_, home_);  // of other runs, if the ledger is a new one
    tell_back(database_->path());
  } catch (const Error&) {
    // It still cannot be written.
  }
}

void Writer::write_in_background() {
  std::vector<std::function<void()>> settling;
  {
    std::lock_guard lock(queue_mutex_);
    settling.swap(settling_);
  }
  try {
    write(nullptr, settling.empty() ? Survives::kill : Survives::power_failure);
    if (failing_) tell_back(file());
    failing_ = false;
  } catch (const std::exception& error) {
    if (!failing_) log::warning("{}; records stay in memory and are written as soon as possible", error.what());
    failing_ = true;
  }
  for (const auto& done : settling) done();
}

void Writer::loop() {
  std::unique_lock lock(queue_mutex_);
  for (bool last = false; !last;) {
    wake_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    // The first change opens a batch; changes that follow within the interval are added to it.
    wake_.wait_for(lock, batch_interval, [this] { return stop_ || !settling_.empty(); });
    last = stop_;
    lock.unlock();
    write_in_background();
    lock.lock();
  }
}

}  // namespace runner
