#include "runner/data/background_tokenizing.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "runner/base/log.hpp"
#include "runner/data/parallel_for.hpp"

namespace runner {

struct BackgroundTokenizing::Impl {
  explicit Impl(std::shared_ptr<const TokenParts> wanted) : parts(std::move(wanted)) {}

  void work() {
    constexpr int lower_priority = 10;  // inherited by the threads that this one starts
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), lower_priority);
    size_t bytes = 0;
    for (size_t part = 0; part < parts->count(); ++part) bytes += parts->bytes(part);
    constexpr double seconds_between_lines = 30;
    TokenizingProgress progress(bytes, seconds_between_lines);
    try {
      parallel_for(
          parts->count(), [&](size_t part) { stop ? fs::path() : parts->make(part, &progress); }, parts->threads());
      if (!stop) progress.finish();
    } catch (const std::exception& error) {
      log::warning("the training will stop where it needs data that cannot be tokenised: {}", error.what());
    }
  }

  std::shared_ptr<const TokenParts> parts;
  std::atomic<bool> stop = false;
  std::jthread thread{[this] { work(); }};
};

BackgroundTokenizing::BackgroundTokenizing(std::shared_ptr<const TokenParts> parts)
    : impl_(std::make_unique<Impl>(std::move(parts))) {}

BackgroundTokenizing::~BackgroundTokenizing() { impl_->stop = true; }

}  // namespace runner
