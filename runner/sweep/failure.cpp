#include "runner/sweep/failure.hpp"

#include <array>
#include <string_view>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"

namespace runner::sweep {

namespace {

template <size_t Count>
bool has_any(const std::string& text, const std::array<std::string_view, Count>& words) {
  for (auto word : words)
    if (text.find(word) != std::string::npos) return true;
  return false;
}

}  // namespace

std::string failure_class(const TrialExit& exit) {
  const std::string text = lower(exit.message);
  const auto code = static_cast<ExitCode>(exit.code);
  if (exit.timed_out) return "timeout";
  if (exit.kind == "oom" || has_any(text, std::array<std::string_view, 2>{"out of memory", "bad_alloc"}))
    return "out_of_memory";
  if (exit.kind == "nonfinite") return "nan";
  if (exit.kind == "usage" || code == ExitCode::usage) return "user_error";
  if (exit.kind == "environment" || code == ExitCode::environment ||
      has_any(text, std::array<std::string_view, 5>{"cuda error", "nccl error", "cudnn", "device-side", "ecc error"}))
    return "device";
  if (code == ExitCode::preempted || code == ExitCode::interrupted) return "preempted";
  return "other";
}

bool blames_device(const std::string& failure_class) { return failure_class == "device" || failure_class == "other"; }

}  // namespace runner::sweep
