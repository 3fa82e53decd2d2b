#include "runner/plugins/conversation.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "runner/base/child_process.hpp"
#include "runner/base/error.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/text.hpp"
#include "runner/plugins/ask_worker.hpp"

namespace runner {

Conversation::Conversation(std::vector<std::string> arguments, std::string purpose)
    : arguments_(std::move(arguments)), purpose_(std::move(purpose)) {}

Conversation::~Conversation() { stop(); }

void Conversation::start() {
  (void)worker_identity();
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw environment_error("{}: no socket: {}", purpose_, std::strerror(errno));
  socket_ = Descriptor(ends[0]);
  const Descriptor other(ends[1]);
  log_ = Descriptor(::memfd_create("runner-worker", MFD_CLOEXEC));
  received_.clear();
  process_ = start_child({.program = beside_program("runner-worker").string(),
                          .arguments = arguments_,
                          .environment = {{"OMP_WAIT_POLICY", "passive"}},  // it waits for questions
                          .out = other.get(),
                          .log = log_.get(),
                          .in = other.get()});
}

void Conversation::stop() {
  socket_.close();
  if (process_ <= 0) return;
  ::kill(-process_, SIGKILL);  // with the processes of a plug-in
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = 0;
}

bool Conversation::send(const std::string& line) {
  for (size_t sent = 0; sent < line.size();) {
    const auto count = ::send(socket_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

bool Conversation::receive(std::string& line, const HeldSignals& signals) {
  using namespace std::chrono;
  const auto deadline = steady_clock::now() + minutes(5);
  for (;;) {
    if (const auto end = received_.find('\n'); end != std::string::npos) {
      line = received_.substr(0, end);
      received_.erase(0, end + 1);
      return true;
    }
    if (steady_clock::now() > deadline) {
      stop();
      throw environment_error("{} took more than 5 minutes", purpose_);
    }
    if (signals.any()) {
      stop();
      throw Error(ExitCode::interrupted, fmt::format("stopped during {}", purpose_));
    }
    constexpr int pause_ms = 100;
    pollfd poll{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, pause_ms) <= 0) continue;
    char buffer[1 << 16];
    const auto count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    received_.append(buffer, static_cast<size_t>(count));
  }
}

/// ": " and the end of what the worker wrote to stderr; "" if that is nothing.
std::string Conversation::last_words() const {
  char buffer[2048];
  const auto end = ::lseek(log_.get(), 0, SEEK_END);
  const auto count = ::pread(log_.get(), buffer, sizeof buffer, std::max<off_t>(0, end - std::ssize(buffer)));
  const auto words = count > 0 ? trim(std::string(buffer, static_cast<size_t>(count))) : "";
  return words.empty() ? "" : fmt::format(": {}", words);
}

std::string Conversation::answer_to(const std::string& line, const HeldSignals& signals) {
  std::string answer;
  if (process_ > 0 && send(line) && receive(answer, signals)) return answer;
  stop();
  start();
  if (send(line) && receive(answer, signals)) return answer;
  stop();
  throw environment_error("{}: {} ended without an answer{}", purpose_, beside_program("runner-worker").string(),
                          last_words());
}

nlohmann::json Conversation::ask(const nlohmann::json& question, const std::string& key) {
  const HeldSignals signals;
  const auto answer = nlohmann::json::parse(answer_to(question.dump() + "\n", signals), nullptr,
                                            /*allow_exceptions=*/false);
  if (answer.is_object() && answer.contains(key)) return answer.at(key);
  if (!answer.is_object() || !answer.contains("error") || !answer.contains("code"))
    throw environment_error("{}: the worker gave no answer that can be read{}", purpose_, last_words());
  throw Error(static_cast<ExitCode>(answer.at("code").get<int>()), answer.at("error").get<std::string>());
}

}  // namespace runner
