#define PCRE2_CODE_UNIT_WIDTH 8
#include "runner/tokenizers/regex.hpp"

#include <fmt/format.h>
#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <stdexcept>

#include "runner/base/error.hpp"
#include "runner/base/limits.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"

namespace runner {

namespace {

std::string pcre_message(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Regex::Impl {
  pcre2_code* code = nullptr;
  bool compiled = false;  ///< to machine code
};

namespace {

/// The memory that a thread needs for a match of any expression.
struct MatchSpace {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{64} << 10, size_t{64} << 20, nullptr);
  uint32_t steps = 0;
  void set_steps(uint32_t most) {
    if (most != steps) pcre2_set_match_limit(context, steps = most);
  }
  MatchSpace() { pcre2_jit_stack_assign(context, nullptr, stack); }
  ~MatchSpace() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};
thread_local MatchSpace match_space;

}  // namespace

Regex::Regex(std::string_view oniguruma) : impl_(std::make_unique<Impl>()) {
  const std::string pattern = pcre_of(oniguruma);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_max_pattern_length(context, pattern_bytes_max);
  impl_->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT, &error,
                    &offset, context);
  pcre2_compile_context_free(context);
  if (!impl_->code) throw std::invalid_argument(pcre_message(error));
  impl_->compiled = pcre2_jit_compile(impl_->code, PCRE2_JIT_COMPLETE) == 0;
}

Regex::~Regex() {
  if (impl_) pcre2_code_free(impl_->code);
}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&& other) noexcept {
  std::swap(impl_, other.impl_);
  return *this;
}

int Regex::search(std::string_view text, size_t from, size_t last, uint32_t steps) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  auto& space = match_space;
  pcre2_set_offset_limit(space.context, last);
  space.set_steps(steps);
  return impl_->compiled
             ? pcre2_jit_match(impl_->code, subject, text.size(), from, 0, space.data, space.context)
             : pcre2_match(impl_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, space.data, space.context);
}

bool Regex::find(std::string_view text, size_t from, size_t& begin, size_t& end, PatternTime& time) const {
  // PCRE2 cannot be interrupted, so it gets a few places at a time; each may look at the rest of the text.
  constexpr size_t places_max = 64, places_min = 4, looked_at = size_t{1} << 24;
  constexpr uint32_t quick_steps = 1 << 14;
  const size_t places = std::clamp(looked_at / (text.size() + 1), places_min, places_max);
  size_t slow_end = 0;  // the places before it are tried one by one
  while (true) {
    const bool slow = from < slow_end;
    const size_t last = slow ? from : std::min(text.size(), from + places);
    const int found = search(text, from, last, slow ? pattern_steps_max : quick_steps);
    time.spend(slow);
    if (found >= 0) break;
    if (found == PCRE2_ERROR_MATCHLIMIT && !slow) {
      slow_end = last + 1;
      continue;
    }
    if (found != PCRE2_ERROR_NOMATCH) throw environment_error("{} failed: {}", time.subject(), pcre_message(found));
    if (last >= text.size()) return false;
    from = last + 1;
    while (from < text.size() && unicode::continues(text[from])) ++from;
  }
  const auto* places_found = pcre2_get_ovector_pointer(match_space.data);
  begin = places_found[0];
  end = places_found[1];
  return true;
}

void PatternTime::look() {
  timespec clock{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &clock);
  const double now = static_cast<double>(clock.tv_sec) + 1e-9 * static_cast<double>(clock.tv_nsec);
  if (!since_) since_ = now;
  const double most = pattern_seconds_max + pattern_seconds_per_byte * static_cast<double>(bytes_);
  if (now - *since_ > most)
    throw environment_error("{} takes too long: more than {:.3g} s of processor time for a text of {}", subject_, most,
                            format_bytes(bytes_));
}

}  // namespace runner
