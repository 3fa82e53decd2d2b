#define PCRE2_CODE_UNIT_WIDTH 8
#include "runner/tokenizers/regex.hpp"

#include <fmt/format.h>
#include <pcre2.h>

#include <stdexcept>

#include "runner/base/error.hpp"
#include "runner/base/limits.hpp"

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

/// What a thread needs for a match of any expression.
struct MatchSpace {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{64} << 10, size_t{64} << 20, nullptr);
  MatchSpace() {
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, pattern_steps_max);
  }
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
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
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

bool Regex::find(std::string_view text, size_t from, size_t& begin, size_t& end) const {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  auto& space = match_space;
  const int found =
      impl_->compiled
          ? pcre2_jit_match(impl_->code, subject, text.size(), from, 0, space.data, space.context)
          : pcre2_match(impl_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, space.data, space.context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) throw environment_error("a regular expression of the tokenizer failed: {}", pcre_message(found));
  const auto* places = pcre2_get_ovector_pointer(space.data);
  begin = places[0];
  end = places[1];
  return true;
}

}  // namespace runner
