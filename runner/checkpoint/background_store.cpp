#include "runner/checkpoint/background_store.hpp"

#include <unistd.h>

#include <bit>
#include <cstdio>
#include <utility>

#include "runner/base/error.hpp"

namespace runner {

struct BackgroundStore::Shared {
  bool stop_on_error = false;
  mutable std::mutex mutex;  ///< guards everything below
  std::condition_variable changed;
  std::optional<Retention> asked;
  bool working = false, ends = false, gives_up = false, newest_stored = true;
  std::string name;     ///< of the checkpoint that is stored now
  std::string failure;  ///< of the last pass
  int64_t failures = 0;
  std::vector<std::string> notes;
  std::vector<std::function<void()>> waiting;

  bool idle() const { return !working && !asked; }
  void run(CheckpointStore& store);
  void ended(const CheckpointStore::Pass& pass, const std::string& file);
};

namespace {

/// Lets the process exit while a thread is in a function of a plug-in: destructors of static objects would disturb it.
void exit_without_destructors() {
  static const int registered = ::on_exit(
      [](int status, void*) {
        std::fflush(nullptr);
        ::_exit(status);
      },
      nullptr);
  static_cast<void>(registered);
}

}  // namespace

void BackgroundStore::Shared::ended(const CheckpointStore::Pass& pass, const std::string& file) {
  newest_stored = pass.newest_stored;
  failure = pass.failure;
  const int64_t before = std::exchange(failures, failure.empty() ? 0 : failures + 1);
  if (failure.empty() && before > 0) notes.push_back(fmt::format("checkpoints can be stored with {} again", file));
  if (failures == 1 && !stop_on_error)
    notes.push_back(failure +
                    "; training continues, and it is tried again when the next checkpoint is published "
                    "(checkpoint.on_error = \"stop\" ends the run instead)");
  else if (failures > 1 && std::has_single_bit(static_cast<uint64_t>(failures)))  // few notes, also if all fail
    notes.push_back(fmt::format("storing checkpoints failed {} times in a row: {}", failures, failure));
}

void BackgroundStore::Shared::run(CheckpointStore& store) {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return ends || asked; });
    if (ends) return;
    const Retention rule = *std::exchange(asked, std::nullopt);
    working = true;
    lock.unlock();
    const auto begins = [&](const std::string& checkpoint) {
      const std::lock_guard guard(mutex);
      name = checkpoint;
    };
    const auto pass = store.store_missing(rule, begins, [&] {
      const std::lock_guard guard(mutex);
      return gives_up || ends;
    });
    lock.lock();
    name.clear();
    ended(pass, store.file());
    working = false;
    changed.notify_all();
    if (ends) return;
    if (asked && !gives_up) continue;
    asked.reset();
    const auto calls = std::exchange(waiting, {});
    lock.unlock();
    for (const auto& call : calls) call();
    lock.lock();
  }
}

BackgroundStore::BackgroundStore(std::shared_ptr<CheckpointStore> store, bool stop_on_error)
    : store_(std::move(store)), shared_(std::make_shared<Shared>()) {
  shared_->stop_on_error = stop_on_error;
  store_->set_note([shared = std::weak_ptr(shared_)](const std::string& note) {
    const auto alive = shared.lock();
    if (!alive) return;
    const std::lock_guard lock(alive->mutex);
    alive->notes.push_back(note);
  });
  thread_ = std::thread([shared = shared_, kept = store_] { shared->run(*kept); });
}

BackgroundStore::~BackgroundStore() {
  std::unique_lock lock(shared_->mutex);
  shared_->ends = true;
  shared_->changed.notify_all();
  const bool ended = shared_->changed.wait_for(lock, std::chrono::seconds(1), [&] { return !shared_->working; });
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    exit_without_destructors();
    thread_.detach();
  }
}

void BackgroundStore::begin(const Retention& rule) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->gives_up) return;
  shared_->asked = rule;
  shared_->changed.notify_all();
}

void BackgroundStore::when_idle(std::function<void()> done) {
  {
    const std::lock_guard lock(shared_->mutex);
    if (!shared_->idle()) return shared_->waiting.push_back(std::move(done));
  }
  done();
}

std::optional<std::string> BackgroundStore::busy() const {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->idle()) return std::nullopt;
  return shared_->name;
}

void BackgroundStore::give_up() {
  const std::lock_guard lock(shared_->mutex);
  shared_->gives_up = true;
}

std::vector<std::string> BackgroundStore::take_notes() {
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->notes, {});
}

void BackgroundStore::check() const {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->stop_on_error && !shared_->failure.empty()) throw environment_error("{}", shared_->failure);
}

std::string BackgroundStore::missing() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->newest_stored ? "" : shared_->failure;
}

}  // namespace runner
