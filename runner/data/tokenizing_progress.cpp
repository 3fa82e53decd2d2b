#include "runner/data/tokenizing_progress.hpp"

#include "runner/base/log.hpp"
#include "runner/base/text.hpp"

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

}  // namespace runner
