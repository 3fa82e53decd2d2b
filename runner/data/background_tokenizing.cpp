#include "runner/data/background_tokenizing.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runner/base/log.hpp"

namespace runner {

namespace {

constexpr double seconds_between_lines = 30;

}  // namespace

struct BackgroundTokenizing::Impl {
  explicit Impl(std::shared_ptr<const TokenParts> wanted)
      : parts(std::move(wanted)), progress(bytes_of(*parts, {0, parts->count()}), seconds_between_lines) {}

  void work() {
    constexpr int lower_priority = 10;  // inherited by the threads that this one starts
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), lower_priority);
    try {
      make_range(*parts, {0, parts->count()}, &progress);
      progress.finish();
    } catch (const TokenizingStopped&) {
    } catch (const std::exception& error) {
      log::warning("the training will stop where it needs data that cannot be tokenised: {}", error.what());
    }
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }

  std::shared_ptr<const TokenParts> parts;
  TokenizingProgress progress;
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
};

BackgroundTokenizing::BackgroundTokenizing(std::shared_ptr<const TokenParts> parts)
    : impl_(std::make_shared<Impl>(std::move(parts))) {
  std::thread([impl = impl_] { impl->work(); }).detach();
}

BackgroundTokenizing::~BackgroundTokenizing() {
  impl_->progress.stop();
  constexpr auto patience = std::chrono::seconds(10);  // a data plug-in may hang
  std::unique_lock lock(impl_->mutex);
  impl_->changed.wait_for(lock, patience, [this] { return impl_->ended; });
}

}  // namespace runner
