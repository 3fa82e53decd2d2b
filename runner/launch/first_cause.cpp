// Ordering failures and wording exits.
#include "runner/launch/first_cause.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>

namespace runner {

namespace {

std::string text_field(const nlohmann::json& event, const char* name) {
  auto field = event.find(name);
  return field != event.end() && field->is_string() ? field->get<std::string>() : "";
}

}  // namespace

ExitCode Failure::code() const {
  if (kind == "usage") return ExitCode::usage;
  if (kind == "environment") return ExitCode::environment;
  return ExitCode::run_failed;
}

Failure failure_from_event(const nlohmann::json& event) {
  Failure failure;
  failure.time = event.at("time").get<double>();
  failure.rank = event.at("rank").get<int>();
  failure.kind = text_field(event, "kind");
  failure.consequence = failure.kind == "collective";
  std::string message = text_field(event, "message");
  failure.message = fmt::format("rank {}: {}", failure.rank, message.empty() ? "failed without a message" : message);
  return failure;
}

const Failure* first_cause(const std::vector<Failure>& failures) {
  auto first = std::min_element(failures.begin(), failures.end(), [](const Failure& a, const Failure& b) {
    return std::pair(a.consequence, a.time) < std::pair(b.consequence, b.time);
  });
  return first == failures.end() ? nullptr : &*first;
}

std::string describe_exit(int rank, const WorkerExit& exit, bool oom_suspected) {
  if (exit.signal == 0) return fmt::format("rank {} exited with code {}", rank, exit.code);
  const char* name = ::sigabbrev_np(exit.signal);
  return fmt::format("rank {} was killed by signal {} ({}{})", rank, exit.signal,
                     name ? fmt::format("SIG{}", name) : "unnamed",
                     exit.signal == SIGKILL && oom_suspected ? "; out of memory killer?" : "");
}

std::optional<long> oom_kill_count() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  long value = 0;
  while (file >> name >> value)
    if (name == "oom_kill") return value;
  return std::nullopt;
}

}  // namespace runner
