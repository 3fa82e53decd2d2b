#include "strategies/collective/divergence_watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "runner/base/clock.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

std::string calls_of(int rank) { return "calls/" + std::to_string(rank); }

/// The answer of a rank whose watch has ended.
constexpr int64_t has_left = INT64_MAX;

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

/// The watches of this process, one for each rank.
struct Watches {
  std::mutex mutex;
  std::vector<DivergenceWatch*> list;
  std::terminate_handler otherwise = nullptr;
};
Watches& watches() {
  static Watches all;
  return all;
}

/// Gloo terminates the process, from one of its threads, when it receives more bytes than it expects. This happens when ranks
/// called a collective with different sizes.
[[noreturn]] void ask_and_terminate() {
  std::unique_lock lock(watches().mutex);
  const auto asked = std::exchange(watches().list, {});
  lock.unlock();
  if (!asked.empty()) asked.front()->ask();
  watches().otherwise();
  std::abort();
}

void add_watch(DivergenceWatch* watch) {
  const std::lock_guard lock(watches().mutex);
  if (!watches().otherwise) watches().otherwise = std::set_terminate(ask_and_terminate);
  watches().list.push_back(watch);
}

void remove_watch(DivergenceWatch* watch) {
  const std::lock_guard lock(watches().mutex);
  std::erase(watches().list, watch);
}

}  // namespace

DivergenceWatch::DivergenceWatch(std::shared_ptr<const CollectiveTrace> trace,
                                 const c10::intrusive_ptr<c10d::Store>& store, Options options)
    : trace_(std::move(trace)),
      store_(c10::make_intrusive<c10d::PrefixStore>("divergence", store->clone())),
      options_(std::move(options)),
      unchanged_since_(steady_seconds()) {
  add_watch(this);
  thread_ = std::thread([this] { run(); });
}

DivergenceWatch::~DivergenceWatch() {
  remove_watch(this);
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void DivergenceWatch::ask() {
  if (!options_.compares) return;
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
      if (stop_) break;
      lock.unlock();
      look();
      lock.lock();
    }
    if (options_.rank > 0) answer(has_left);
  } catch (const std::exception&) {
    // The store is gone, and rank 0 with it. No answer is possible.
    std::lock_guard lock(mutex_);
    stop_ = true;
    wake_.notify_all();
  }
}

void DivergenceWatch::look() {
  const double now = steady_seconds();
  if (uint64_t count = trace_->count(); count != count_) {
    count_ = count;
    unchanged_since_ = now;
    raised_ = Stall::none;
    if (std::exchange(reported_, false)) store_->deleteKey("late");
    std::lock_guard lock(mutex_);
    late_.clear();
  }
  bool asked = false;
  {
    std::lock_guard lock(mutex_);
    std::swap(asked, asked_);
  }
  const double unchanged = now - unchanged_since_;
  const Stall stall = unchanged >= seconds(options_.late_after) ? Stall::long_lasting
                      : unchanged >= seconds(options_.patience) ? Stall::begun
                                                                : Stall::none;
  int64_t alarm = store_->add("alarm", 0);
  if (alarm == answered_ && (asked || stall > raised_)) alarm = store_->add("alarm", 1);
  if (alarm != answered_) {
    answer(alarm);
    raised_ = std::max(raised_, stall);
    open_until_ = now + 2 * seconds(options_.patience);
  }
  if (now > open_until_ && stall == Stall::none) return;
  if (options_.rank == 0) judge(stall);
  if (stall == Stall::long_lasting && store_->check({"late"})) {
    auto text = store_->get_to_str("late");
    std::lock_guard lock(mutex_);
    late_ = text;
  }
  if (!store_->check({"verdict"})) return;
  auto verdict = store_->get_to_str("verdict");
  int64_t readers = store_->add("readers", 1);
  // Rank 0 hosts the store, so it exits last, unless the other ranks can no longer read.
  for (double end = now + seconds(options_.patience);
       options_.rank == 0 && readers < options_.size - silent_ && steady_seconds() < end;) {
    std::this_thread::sleep_for(tick() / 8);
    readers = store_->add("readers", 0);
  }
  options_.found(verdict);
}

/// The number of the alarm stands before the calls, because answers to earlier alarms are overwritten.
void DivergenceWatch::answer(int64_t alarm) {
  auto bytes = to_bytes(trace_->recent());
  const auto* number = reinterpret_cast<const uint8_t*>(&alarm);
  bytes.insert(bytes.begin(), number, number + sizeof alarm);
  store_->set(calls_of(options_.rank), bytes);
  answered_ = alarm;
}

/// Returns whether there is a new one.
bool DivergenceWatch::read_answers() {
  const auto size = static_cast<size_t>(options_.size);
  histories_.resize(size);
  answers_.resize(size);
  silent_ticks_.resize(size);
  bool news = false;
  for (size_t rank = 0; rank < size; ++rank) {
    if (answers_[rank] >= answered_) continue;
    ++silent_ticks_[rank];
    const auto key = calls_of(static_cast<int>(rank));
    if (!store_->check({key})) continue;
    const auto bytes = store_->get(key);
    int64_t alarm = 0;
    std::memcpy(&alarm, bytes.data(), sizeof alarm);
    if (alarm == answers_[rank]) continue;
    answers_[rank] = alarm;
    histories_[rank] = history_from(bytes.data() + sizeof alarm, bytes.size() - sizeof alarm);
    silent_ticks_[rank] = 0;
    news = true;
  }
  return news;
}

void DivergenceWatch::judge(Stall stall) {
  const bool news = read_answers();
  const auto groups = trace_->groups();
  if (news && options_.compares) {
    auto verdict = find_divergence(groups, histories_);
    if (!verdict) verdict = find_deadlock(groups, histories_);
    if (verdict) return store_->set("verdict", *verdict);
  }
  std::vector<int> silent;
  for (int rank = 0; rank < options_.size; ++rank)
    if (tick() * silent_ticks_[static_cast<size_t>(rank)] >= options_.late_after) silent.push_back(rank);
  if (!silent.empty()) return report_silence(silent);
  const bool all_answered = std::ranges::all_of(answers_, [&](int64_t alarm) { return alarm >= answered_; });
  if (stall != Stall::long_lasting || reported_ || !all_answered) return;
  reported_ = true;
  const auto text = describe_late_ranks(groups, histories_);
  if (!text) return;
  store_->set("late", *text);
  if (options_.late) options_.late(*text);
}

void DivergenceWatch::report_silence(const std::vector<int>& silent) {
  silent_ = std::ssize(silent);
  store_->set("verdict", fmt::format("{} {} not answered for {}: the process is stopped, or its host hangs",
                                     describe_ranks(silent), silent.size() == 1 ? "has" : "have",
                                     format_duration(seconds(options_.late_after))));
}

std::string DivergenceWatch::late() const {
  std::lock_guard lock(mutex_);
  return late_;
}

}  // namespace runner
