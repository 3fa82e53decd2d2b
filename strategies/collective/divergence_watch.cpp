#include "strategies/collective/divergence_watch.hpp"

#include <exception>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "runner/base/clock.hpp"
#include "strategies/collective/divergence.hpp"

namespace runner {

namespace {

std::string calls_of(int rank) { return "calls/" + std::to_string(rank); }

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

/// Gloo terminates the process, from one of its threads, when it receives more bytes than it expects. This happens when ranks
/// called a collective with different sizes.
std::atomic<DivergenceWatch*> last_question{nullptr};
std::terminate_handler terminate_otherwise = nullptr;

[[noreturn]] void ask_and_terminate() {
  if (auto* watch = last_question.exchange(nullptr)) watch->ask();
  terminate_otherwise();
  std::abort();
}

}  // namespace

DivergenceWatch::DivergenceWatch(std::shared_ptr<const CollectiveTrace> trace,
                                 const c10::intrusive_ptr<c10d::Store>& store, Options options)
    : trace_(std::move(trace)),
      store_(c10::make_intrusive<c10d::PrefixStore>("divergence", store->clone())),
      options_(std::move(options)),
      unchanged_since_(steady_seconds()) {
  last_question = this;
  terminate_otherwise = std::set_terminate(ask_and_terminate);
  thread_ = std::thread([this] { run(); });
}

DivergenceWatch::~DivergenceWatch() {
  last_question = nullptr;
  std::set_terminate(terminate_otherwise);
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void DivergenceWatch::ask() {
  std::unique_lock lock(mutex_);
  asked_ = true;
  wake_.notify_all();
  wake_.wait_for(lock, options_.patience, [this] { return stop_; });
}

void DivergenceWatch::run() {
  try {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      wake_.wait_for(lock, tick(), [this] { return stop_ || asked_; });
      if (stop_) return;
      lock.unlock();
      look();
      lock.lock();
    }
  } catch (const std::exception&) {
    // The store is gone, and rank 0 with it. No answer is possible.
    std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_all();
  }
}

void DivergenceWatch::look() {
  double now = steady_seconds();
  if (uint64_t count = trace_->count(); count != count_) {
    count_ = count;
    unchanged_since_ = now;
    raised_ = false;
  }
  bool asked = false;
  {
    std::lock_guard lock(mutex_);
    std::swap(asked, asked_);
  }
  int64_t alarm = store_->add("alarm", 0);
  bool stalled = !raised_ && now - unchanged_since_ >= seconds(options_.patience);
  if (alarm == answered_ && (asked || stalled)) {
    alarm = store_->add("alarm", 1);
    raised_ = true;
  }
  if (alarm != answered_) {
    store_->set(calls_of(options_.rank), to_bytes(trace_->recent()));
    answered_ = alarm;
    open_until_ = now + 2 * seconds(options_.patience);
  }
  if (now > open_until_) return;
  if (options_.rank == 0) judge();
  if (!store_->check({"verdict"})) return;
  auto verdict = store_->get_to_str("verdict");
  int64_t readers = store_->add("readers", 1);
  // Rank 0 hosts the store, so it exits last, unless the other ranks can no longer read.
  for (double end = now + seconds(options_.patience);
       options_.rank == 0 && readers < options_.size && steady_seconds() < end;) {
    std::this_thread::sleep_for(tick() / 8);
    readers = store_->add("readers", 0);
  }
  options_.found(verdict);
}

void DivergenceWatch::judge() {
  std::vector<History> histories;
  for (int rank = 0; rank < options_.size; ++rank) {
    histories.emplace_back();
    if (!store_->check({calls_of(rank)})) continue;
    auto bytes = store_->get(calls_of(rank));
    histories.back() = history_from(bytes.data(), bytes.size());
  }
  auto verdict = find_divergence(trace_->groups(), histories);
  if (!verdict) verdict = find_deadlock(trace_->groups(), histories);
  if (verdict) store_->set("verdict", *verdict);
}

}  // namespace runner
