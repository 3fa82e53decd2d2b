#include "runner/logging/system_watch.hpp"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"

namespace runner {

struct SystemWatch::Shared {
  std::mutex mutex;  ///< guards what follows
  std::condition_variable wake;
  std::vector<int64_t> processes;
  std::vector<SystemReading> readings;  ///< not recorded yet
  std::string problem;                  ///< why there are no more readings
  bool stop = false;

  void run(const OpenReader& open, std::chrono::milliseconds every) {
    try {
      const auto reader = open();
      loop(*reader, every);
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex);
      problem = error.what();
    }
  }

  void loop(SystemReader& reader, std::chrono::milliseconds every) {
    std::unique_lock lock(mutex);
    // The first readings follow each other soon, so that a short run has some.
    for (auto pause = std::min<std::chrono::milliseconds>(every, std::chrono::seconds(1)); !stop;
         pause = std::min(2 * pause, every)) {
      const auto now = processes;
      lock.unlock();
      auto reading = reader.read(now, steady_seconds());
      lock.lock();
      readings.push_back(std::move(reading));
      wake.wait_for(lock, pause, [this] { return stop; });
    }
  }
};

SystemWatch::SystemWatch(Ledger& ledger, Options options) : ledger_(ledger), options_(std::move(options)) {}

SystemWatch::~SystemWatch() {
  if (!shared_) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->stop = true;
  shared_->wake.notify_one();
}

std::vector<int64_t> SystemWatch::processes() const {
  std::vector<int64_t> list = {::getpid()};
  for (const auto& [rank, process] : processes_)  // ranks may be threads of one process
    if (std::ranges::find(list, process) == list.end()) list.push_back(process);
  return list;
}

void SystemWatch::tell_processes() {
  const std::lock_guard lock(shared_->mutex);
  shared_->processes = processes();
}

void SystemWatch::begin(const AttemptStart& attempt) {
  run_ = attempt.run;
  processes_.clear();
  const bool first = !shared_;
  if (first) shared_ = std::make_shared<Shared>();
  tell_processes();
  if (!first) return;
  const BlockedSignals blocked;  // signals are for the thread that supervises
  // The thread opens the reader, and is not joined: a driver that hangs must keep the run neither from starting nor from ending.
  const OpenReader open = options_.open ? options_.open : [folder = attempt.folder, gpus = options_.gpus] {
    return std::make_unique<SystemReader>(folder, gpus);
  };
  std::thread([shared = shared_, open, every = options_.every] { shared->run(open, every); }).detach();
}

void SystemWatch::event(const std::string& kind, const nlohmann::json& fields) {
  if (kind != "ready" || !shared_ || fields.value("rank", 0) >= options_.local_ranks) return;
  processes_[fields.value("rank", 0)] = fields.value("pid", int64_t{0});
  tell_processes();
}

void SystemWatch::tick() {
  if (!shared_) return;
  std::vector<SystemReading> readings;
  std::string problem;
  {
    const std::lock_guard lock(shared_->mutex);
    readings.swap(shared_->readings);
    problem = shared_->problem;
  }
  for (auto& reading : readings) ledger_.system_samples(run_, std::move(reading));
  if (!problem.empty()) throw environment_error("this machine cannot be read: {}", problem);
}

void SystemWatch::end(const RunEnd&) {
  tick();
  if (!shared_) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->stop = true;
  shared_->wake.notify_one();
}

}  // namespace runner
