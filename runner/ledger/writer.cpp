#include "runner/ledger/writer.hpp"

#include <chrono>
#include <iterator>
#include <utility>

#include "runner/base/fault_point.hpp"
#include "runner/base/log.hpp"

namespace runner {

namespace {
constexpr std::chrono::milliseconds batch_interval(500);
constexpr std::chrono::milliseconds retry_interval(200);
}  // namespace

Writer::Writer(sqlite::Database database)
    : database_(std::move(database)),
      batch_(database_),
      // Without a sync at each commit, only a write-ahead log stays consistent after a power failure.
      background_synchronous_(database_.text("PRAGMA journal_mode") == "wal" ? "NORMAL" : "FULL"),
      thread_([this] { loop(); }) {}

Writer::~Writer() {
  {
    std::lock_guard lock(queue_mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (!queue_.empty())
    log::warning("{} records could not be written to {} and are lost", queue_.size(), database_.path().string());
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
      return write(&change, "FULL");
    } catch (const sqlite::Failure& failure) {
      if (failure.primary() == SQLITE_CORRUPT || std::chrono::steady_clock::now() >= deadline) throw;
      if (!std::exchange(told, true))
        log::warning("{}; waiting up to {} s more, because the last records are not written yet", failure.what(),
                     patience.count());
    }
    std::this_thread::sleep_for(retry_interval);
  }
}

void Writer::write(const Change* last, const char* synchronous) {
  std::lock_guard transaction_lock(transaction_mutex_);
  std::vector<Change> changes;
  {
    std::lock_guard lock(queue_mutex_);
    changes.swap(queue_);
  }
  if (changes.empty() && !last) return;
  try {
    database_.execute(std::string("PRAGMA synchronous = ") + synchronous);
    sqlite::Transaction transaction(database_);
    for (const auto& change : changes) change(batch_);
    if (last) (*last)(batch_);
    batch_.close();
    fault_point("commit");
    transaction.commit();
    fault_point("committed");
    batch_.committed();
  } catch (...) {
    batch_.rolled_back();
    std::lock_guard lock(queue_mutex_);
    queue_.insert(queue_.begin(), std::make_move_iterator(changes.begin()), std::make_move_iterator(changes.end()));
    throw;
  }
}

void Writer::write_in_background() {
  std::vector<std::function<void()>> settling;
  {
    std::lock_guard lock(queue_mutex_);
    settling.swap(settling_);
  }
  try {
    write(nullptr, settling.empty() ? background_synchronous_ : "FULL");
    if (failing_) log::info("the ledger {} can be written again; nothing was lost", database_.path().string());
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
