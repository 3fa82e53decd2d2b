#include "runner/data/plugin/source.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/descriptor.hpp"
#include "runner/base/error.hpp"
#include "runner/base/exec.hpp"
#include "runner/base/files.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/data/plugin/data_plugin.h"
#include "runner/data/source_files.hpp"
#include "strategies/engine/row_batch.hpp"

extern char** environ;

namespace runner {

/// A process in which a data plug-in runs, seen from the program that asks it.
/// Used by one thread at a time. A thread may end while a process that it has started goes on.
class PluginProcess {
 public:
  /// `start`: see PluginQuestion::Kind::start. Throws Error(environment) if the process cannot be started.
  explicit PluginProcess(const nlohmann::json& start);
  ~PluginProcess();  ///< the plug-in has two seconds to close its data
  PluginProcess(const PluginProcess&) = delete;
  PluginProcess& operator=(const PluginProcess&) = delete;

  /// Sends a question and waits for its answer. Throws Error(usage) with the plug-in's mistake, or how the process ended.
  std::string ask(PluginQuestion question, const std::string& more = "");

 private:
  [[noreturn]] void fail();
  std::string doing(const PluginQuestion& question) const;

  nlohmann::json start_;
  Descriptor socket_;
  volatile int64_t* progress_ = nullptr;
  pid_t pid_ = -1;
  PluginQuestion asked_ = {};
};

namespace {

[[noreturn]] void refuse_start(int reason) {
  throw environment_error("cannot start the process of data.plugin: {}", std::strerror(reason));
}

pid_t start_process(int socket, int shared) {
  const auto program = beside_program("runner");
  if (!fs::exists(program))
    throw environment_error(
        "data.plugin needs {}, which is missing: build it, or put it into the folder of this program",
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
  const auto message = fmt::format("data.plugin: {}: the plug-in {} failed: {}", doing(question),
                                   fs::path(start_.at("library").get<std::string>()).filename().string(), answer);
  if (question.kind == PluginQuestion::Kind::records && *progress_ == question.begin)
    throw RecordFault(ExitCode::usage, message);
  throw usage_error("{}", message);
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

using nlohmann::json;

namespace {

ElementType element_type_of(uint32_t type) {
  switch (type) {
    case RUNNER_DATA_INT32:
      return ElementType::int32;
    case RUNNER_DATA_UINT8:
      return ElementType::uint8;
    case RUNNER_DATA_BOOL:
      return ElementType::boolean;
    case RUNNER_DATA_FLOAT32:
      return ElementType::float32;
    default:
      return ElementType::int64;
  }
}

/// A row that stands for no sample must not count in the loss.
BatchField field_of(const json& from) {
  BatchField field{.name = from.at("name"),
                   .type = element_type_of(from.at("type")),
                   .row = from.at("row").get<std::vector<int64_t>>()};
  const bool target = field.name == row_field::targets_name || field.name == row_field::labels_name;
  if (target && field.type == ElementType::int64) field.padding = ignored_target;
  if (target && field.type == ElementType::float32) field.padding = std::nan("");
  return field;
}

}  // namespace

const BatchField* PluginContent::find(const std::string& name) const {
  const auto found = std::ranges::find(fields, name, &BatchField::name);
  return found == fields.end() ? nullptr : &*found;
}

PluginSource::PluginSource(const Recipe::Data& data, std::vector<std::string> paths, int64_t seq_len, int64_t processes)
    : start_(
          {{"library", data.plugin.value_or("")}, {"options", data.options}, {"seq_len", seq_len}, {"paths", paths}}),
      paths_(std::move(paths)),
      most_(std::max<int64_t>(1, processes)) {
  if (!data.plugin) throw usage_error("data.format = \"plugin\" needs data.plugin, the library that reads the data");
  if (!fs::is_regular_file(*data.plugin)) {
    const auto near = nearest_file(*data.plugin);
    throw usage_error("data.plugin: there is no file {}{}", *data.plugin, near ? "; did you mean " + *near + "?" : "");
  }
}

PluginSource::~PluginSource() = default;

std::unique_ptr<PluginProcess> PluginSource::take() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !idle_.empty() || running_ < most_; });
    if (!idle_.empty()) {
      auto process = std::move(idle_.back());
      idle_.pop_back();
      return process;
    }
    ++running_;
  }
  try {
    auto process = std::make_unique<PluginProcess>(start_);
    process->ask({.kind = PluginQuestion::Kind::start}, start_.dump());
    return process;
  } catch (...) {
    give_back(nullptr);
    throw;
  }
}

/// Null: the process is gone, and another may be started.
void PluginSource::give_back(std::unique_ptr<PluginProcess> process) {
  const std::lock_guard lock(mutex_);
  if (process)
    idle_.push_back(std::move(process));
  else
    --running_;
  changed_.notify_one();
}

std::string PluginSource::ask(PluginQuestion question) {
  auto process = take();
  try {
    auto answer = process->ask(question);
    give_back(std::move(process));
    return answer;
  } catch (...) {
    process.reset();
    give_back(nullptr);
    throw;
  }
}

PluginContent PluginSource::content(size_t path) {
  const auto text = ask({.kind = PluginQuestion::Kind::describe, .source = static_cast<uint32_t>(path)});
  const auto description = json::parse(text);
  PluginContent content{.count = description.at("count"),
                        .records = description.at("records"),
                        .text = description.at("text"),
                        .weighs = description.at("weighs")};
  for (const auto& field : description.at("fields")) {
    content.fields.push_back(field_of(field));
    content.classes.push_back(field.at("classes"));
  }
  if (content.count == 0)
    throw usage_error("data.plugin: {} has no {}", paths_[path], content.records ? "record" : "sample");
  return content;
}

PluginContent plugin_content(const Recipe::Data& data, int64_t seq_len) {
  const auto& train = data.sources.empty() ? data.train : data.sources.front().train;
  check_source_paths("data.train", train);
  static std::mutex mutex;
  static std::map<std::string, PluginContent> kept;
  const std::lock_guard lock(mutex);
  if (!data.plugin || !fs::is_regular_file(*data.plugin)) PluginSource(data, {}, seq_len, 1);  // throws
  const auto key = fmt::format("{}{}{}", json{data.options, seq_len}.dump(), fingerprint({train.front()}),
                               fingerprint({*data.plugin}));
  if (const auto found = kept.find(key); found != kept.end()) return found->second;
  return kept.emplace(key, PluginSource(data, {train.front()}, seq_len, 1).content(0)).first->second;
}

json plugin_identity(const Recipe::Data& data) {
  static std::mutex mutex;
  static std::map<std::string, std::string> kept;
  const auto state = fingerprint({data.plugin.value()});
  const std::lock_guard lock(mutex);
  auto& digest = kept[state];
  if (digest.empty()) digest = xxh3_hex(MappedFile(*data.plugin).bytes());
  return {{"name", fs::path(*data.plugin).filename().string()}, {"xxh3", digest}, {"options", data.options}};
}

}  // namespace runner
