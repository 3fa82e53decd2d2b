#include "runner/data/token_parts.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/data/parallel_for.hpp"

namespace runner {

void TokenizingProgress::add(size_t bytes, int64_t tokens) {
  go_on();
  std::lock_guard lock(mutex_);
  bytes_ += bytes;
  tokens_ += tokens;
  const double now = steady_seconds();
  if (now - last_line_ < quiet_seconds_ || bytes_ == 0) return;
  last_line_ = now;
  printed_ = true;
  const auto total = static_cast<double>(total_bytes_), done = static_cast<double>(bytes_ + skipped_);
  log::info("tokenising: {:.0f} % of {}, {} tokens, {} left", 100 * done / total, format_bytes(total_bytes_),
            format_count(static_cast<double>(tokens_)),
            format_duration((now - begun_) * (total - done) / static_cast<double>(bytes_)));
}

void TokenizingProgress::skip(size_t bytes) {
  std::lock_guard lock(mutex_);
  skipped_ += bytes;
}

void TokenizingProgress::finish() {
  std::lock_guard lock(mutex_);
  if (printed_)
    log::info("tokenised {} tokens in {}", format_count(static_cast<double>(tokens_)),
              format_duration(steady_seconds() - begun_));
}

std::vector<fs::path> make_range(const TokenParts& parts, PartRange range, TokenizingProgress* progress) {
  std::vector<fs::path> files(range.last - range.first);
  parallel_for(
      files.size(), [&](size_t i) { files[i] = parts.make(range.first + i, progress); },
      progress ? parts.threads() : 1);
  return files;
}

size_t bytes_of(const TokenParts& parts, PartRange range) {
  size_t bytes = 0;
  for (size_t part = range.first; part < range.last; ++part) bytes += parts.bytes(part);
  return bytes;
}

std::vector<fs::path> make_parts(const TokenParts& parts) {
  TokenizingProgress progress(bytes_of(parts, {0, parts.count()}));
  auto files = make_range(parts, {0, parts.count()}, &progress);
  progress.finish();
  return files;
}

std::vector<PartRange> ranges_of(const TokenParts& parts, size_t bytes) {
  std::vector<PartRange> ranges;
  size_t collected = bytes;
  for (size_t part = 0; part < parts.count(); ++part) {
    if (collected >= bytes) {
      ranges.push_back({part, part});
      collected = 0;
    }
    collected += parts.bytes(part);
    ranges.back().last = part + 1;
  }
  return ranges;
}

struct BackgroundTokenizing::Impl {
  explicit Impl(std::shared_ptr<const TokenParts> wanted)
      : parts(std::move(wanted)), progress(bytes_of(*parts, {0, parts->count()}), /*quiet_seconds=*/30) {}

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
