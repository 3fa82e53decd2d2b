#include "runner/plugins/ask_worker.hpp"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "runner/base/capture.hpp"
#include "runner/base/child_process.hpp"
#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/plugins/library.hpp"

namespace runner {

namespace {

fs::path worker_program() { return beside_program("runner-worker"); }

/// Runs the program, and kills it when one of the signals arrives.
Captured capture_until(const HeldSignals& signals, const std::vector<std::string>& command, CaptureOptions options) {
  constexpr std::chrono::milliseconds pause{20};
  std::stop_source stop;
  options.stop = stop.get_token();
  const std::jthread watch([&](const std::stop_token& ended) {
    while (!ended.stop_requested() && !signals.any()) std::this_thread::sleep_for(pause);
    if (signals.any()) stop.request_stop();
  });
  return capture(command, options);
}

}  // namespace

std::string worker_identity() {
  const auto worker = worker_program();
  struct stat status {};
  if (::stat(worker.c_str(), &status) != 0)
    throw environment_error("{} is missing: build it, or reinstall runner", worker.string());
  return fmt::format("{} {}.{}", status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec);
}

nlohmann::json ask_worker(const std::string& flag, const nlohmann::json& request, const std::string& key,
                          const std::map<std::string, std::string>& environment) {
  (void)worker_identity();
  const auto library = request.at("plugin").get<std::string>();
  const HeldSignals signals;  // until the folder is removed
  const ScratchFolder scratch(fs::temp_directory_path());
  const auto question = scratch.path() / "request.json", answer = scratch.path() / "description.json";
  write_file_atomic(question, request.dump());
  constexpr std::chrono::minutes longest{5};
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(fmt::format("{}={}", name, value));
  const auto ended = capture_until(signals, {worker_program().string(), flag, question.string(), answer.string()},
                                   {.timeout = longest, .environment = variables, .with_stderr = true});
  if (ended.too_late && signals.any())
    throw Error(ExitCode::interrupted, fmt::format("stopped while {} was asked about", library));
  if (ended.too_late)
    throw usage_error("{}: the process that was asked about {} took more than {} minutes", key, library,
                      longest.count());
  if (!fs::exists(answer))
    throw usage_error("{}: the process that was asked about {} ended {}{}", key, library,
                      ended.status < 0 ? "by a signal, without an answer" : fmt::format("with status {}", ended.status),
                      trim(ended.output).empty() ? "" : fmt::format(": {}", trim(ended.output)));
  auto description = nlohmann::json::parse(read_file(answer));
  if (const auto error = description.find("error"); error != description.end())
    throw usage_error("{}", error->get<std::string>());
  return description;
}

nlohmann::json ask_about_part(const std::string& flag, const std::string& library, const nlohmann::json& options,
                              const std::string& key) {
  static std::mutex mutex;
  static std::map<std::string, nlohmann::json> known;
  check_library_file(library, key);
  const nlohmann::json request = {{"plugin", library}, {"options", options}};
  const std::string state = flag + request.dump() + xxh3_hex(MappedFile(library).bytes());
  const std::lock_guard lock(mutex);
  if (const auto found = known.find(state); found != known.end()) return found->second;
  return known.emplace(state, ask_worker(flag, request, key)).first->second;
}

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
  process_ = start_child({.program = worker_program().string(),
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
  throw environment_error("{}: {} ended without an answer{}", purpose_, worker_program().string(), last_words());
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
