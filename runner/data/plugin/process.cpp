#include "runner/data/plugin/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/exec.hpp"
#include "runner/base/files.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/text.hpp"

extern char** environ;

namespace runner {

namespace {

[[noreturn]] void refuse_start(int reason) {
  throw environment_error("cannot start the process of data.plugin: {}", std::strerror(reason));
}

pid_t start_process(int socket, int shared) {
  const auto program = beside_program("runner");
  if (!fs::exists(program))
    throw environment_error("data.plugin needs {}, which is missing: build it, or put it into the folder of this program",
                            program.string());
  std::vector<std::string> words{program.string(), plugin_process_argument};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, plugin_socket);
  posix_spawn_file_actions_adddup2(&actions, shared, plugin_progress);
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, words[0].c_str(), &actions, nullptr, exec_words(words).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error) refuse_start(error);
  return pid;
}

/// Above those that the process gets, so that dup2() to these neither replaces one of them nor keeps FD_CLOEXEC.
Descriptor moved_up(int fd) {
  Descriptor first(fd);
  if (fd < 0) refuse_start(errno);
  Descriptor moved(::fcntl(fd, F_DUPFD_CLOEXEC, 16));
  if (!moved.is_open()) refuse_start(errno);
  return moved;
}

}  // namespace

PluginProcess::PluginProcess(const nlohmann::json& start) : start_(start) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) refuse_start(errno);
  socket_ = Descriptor(ends[0]);
  const Descriptor theirs = moved_up(ends[1]), shared = moved_up(::memfd_create("data plug-in", MFD_CLOEXEC));
  if (::ftruncate(shared.get(), sizeof(int64_t)) != 0) refuse_start(errno);
  void* memory = ::mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, shared.get(), 0);
  if (memory == MAP_FAILED) refuse_start(errno);
  progress_ = static_cast<volatile int64_t*>(memory);
  pid_ = start_process(theirs.get(), shared.get());
}

PluginProcess::~PluginProcess() {
  socket_.close();
  if (progress_) ::munmap(const_cast<int64_t*>(progress_), sizeof(int64_t));
  const double longest = steady_seconds() + 2;
  while (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (steady_seconds() > longest) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::string PluginProcess::ask(PluginQuestion question, const std::string& more) {
  if (pid_ < 0) throw usage_error("the plug-in {} has ended before", start_.at("library").get<std::string>());
  asked_ = question;
  question.bytes = more.size();
  PluginAnswer head;
  if (!send_all(socket_.get(), &question, sizeof question) || !send_all(socket_.get(), more.data(), more.size()) ||
      !receive_all(socket_.get(), &head, sizeof head))
    fail();
  std::string answer(head.bytes, '\0');
  if (!receive_all(socket_.get(), answer.data(), answer.size())) fail();
  if (!head.failed) return answer;
  if (answer.starts_with("data.plugin") || answer.starts_with("data.options")) throw usage_error("{}", answer);
  throw usage_error("data.plugin: {}: the plug-in {} {}", doing(question),
                    fs::path(start_.at("library").get<std::string>()).filename().string(), "failed: " + answer);
}

void PluginProcess::fail() {
  socket_.close();
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  const std::string how = WIFSIGNALED(status)
                              ? fmt::format("crashed ({})", ::strsignal(WTERMSIG(status)))
                              : fmt::format("ended its process with exit status {}", WEXITSTATUS(status));
  throw usage_error("data.plugin: {}: the plug-in {} {}", doing(asked_),
                    fs::path(start_.at("library").get<std::string>()).filename().string(), how);
}

std::string PluginProcess::doing(const PluginQuestion& question) const {
  using Kind = PluginQuestion::Kind;
  if (question.kind == Kind::start) return start_.at("library").get<std::string>();
  const std::string path = start_.at("paths").at(question.source);
  const int64_t index = *progress_;
  if (index < 0 || question.kind == Kind::describe) return path;
  return fmt::format("{}, {} {}", path, question.kind == Kind::records ? "record" : "sample", index);
}

}  // namespace runner
