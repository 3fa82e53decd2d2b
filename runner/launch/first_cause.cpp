// Orders failures and describes exits of workers.
#include "runner/launch/first_cause.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>

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

Failure failure_from_event(const nlohmann::json& event, double seen) {
  Failure failure;
  failure.seen = seen;
  failure.rank = event.at("rank").get<int>();
  failure.kind = text_field(event, "kind");
  failure.consequence = failure.kind == "collective";
  std::string message = text_field(event, "message");
  failure.message = fmt::format("rank {}: {}", failure.rank, message.empty() ? "failed without a message" : message);
  return failure;
}

const Failure* first_cause(const std::vector<Failure>& failures) {
  auto first = std::min_element(failures.begin(), failures.end(), [](const Failure& a, const Failure& b) {
    return std::pair(a.consequence, a.seen) < std::pair(b.consequence, b.seen);
  });
  return first == failures.end() ? nullptr : &*first;
}

std::string signal_name(int signal) {
  const char* name = ::sigabbrev_np(signal);
  return name ? fmt::format("SIG{}", name) : "unnamed";
}

std::string describe_exit(int rank, const WorkerExit& exit, const std::string& log_file) {
  if (!exit.gone_with.empty())
    return fmt::format("rank {} is lost: its supervisor on {} has gone, or that host cannot be reached", rank,
                       exit.gone_with);
  std::string what = fmt::format("rank {} exited with code {}", rank, exit.code);
  if (exit.signal != 0) {
    what = fmt::format("rank {} was killed by signal {} ({}{})", rank, exit.signal, signal_name(exit.signal),
                       exit.signal == SIGKILL && exit.oom_suspected ? "; out of memory killer?" : "");
  }
  return what + (exit.log_tail.empty() ? fmt::format("; it wrote nothing to {}", log_file)
                                       : fmt::format("; the end of {}:\n{}", log_file, exit.log_tail));
}

}  // namespace runner
