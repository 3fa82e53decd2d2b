#include "runner/plugins/conversation.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "runner/base/child_process.hpp"
#include "runner/base/error.hpp"
#include "runner/base/own_program.hpp"
#include "runner/plugins/ask_worker.hpp"

namespace runner {

Conversation::Conversation(std::vector<std::string> arguments, std::string purpose)
    : arguments_(std::move(arguments)), purpose_(std::move(purpose)) {}

Conversation::~Conversation() { stop(); }

void Conversation::start() {
  (void)worker_identity(purpose_);
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw environment_error("{}: no socket: {}", purpose_, std::strerror(errno));
  socket_ = Descriptor(ends[0]);
  const Descriptor other(ends[1]), silence(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  received_.clear();
  process_ = start_child({.program = beside_program("runner-worker").string(),
                          .arguments = arguments_,
                          .out = other.get(),
                          .log = silence.get(),
                          .in = other.get()});
}

void Conversation::stop() {
  socket_.close();
  if (process_ <= 0) return;
  ::kill(process_, SIGKILL);
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

bool Conversation::receive(std::string& line) {
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
    constexpr int pause_ms = 1000;
    pollfd poll{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&poll, 1, pause_ms) <= 0) continue;
    char buffer[1 << 16];
    const auto count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    received_.append(buffer, static_cast<size_t>(count));
  }
}

nlohmann::json Conversation::ask(const nlohmann::json& question) {
  const auto line = question.dump() + "\n";
  std::string answer;
  const bool stays = process_ > 0 && send(line) && receive(answer);
  if (!stays) {
    stop();
    start();
    if (!send(line) || !receive(answer)) {
      stop();
      throw environment_error("{}: the worker ended without an answer", purpose_);
    }
  }
  auto result = nlohmann::json::parse(answer);
  if (const auto error = result.find("error"); error != result.end())
    throw usage_error("{}", error->get<std::string>());
  return result;
}

}  // namespace runner
