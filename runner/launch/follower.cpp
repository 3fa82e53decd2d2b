// The follower's side of the protocol.
#include "runner/launch/follower.hpp"

#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/launch/first_cause.hpp"
#include "runner/launch/lines.hpp"
#include "runner/launch/member.hpp"
#include "runner/launch/members.hpp"
#include "runner/launch/stop_signals.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr double follower_tick_seconds = 0.1;
constexpr double attempt_seconds = 5;        ///< for one attempt to connect
constexpr double shared_folder_seconds = 2;  ///< network file systems may show a new file late
constexpr double silent_seconds = 5;  ///< how long a node of an elastic run tries before it says for what it waits

void wait_readable(const std::vector<int>& fds, double seconds) {
  std::vector<pollfd> watched;
  for (int fd : fds)
    if (fd >= 0) watched.push_back({fd, POLLIN, 0});
  ::poll(watched.data(), watched.size(), static_cast<int>(seconds * 1000) + 1);
}

/// Whether a leader may set this variable in the environment of workers, with what its values may be.
bool may_be_set(const std::string& name, const std::string& value) {
  constexpr size_t digits_max = 6;
  if (name == "OMP_WAIT_POLICY") return value == "passive";
  const bool known = name == "OMP_NUM_THREADS" || name == "MKL_NUM_THREADS" || name == "PJRT_NPROC";
  return known && !value.empty() && value.size() <= digits_max &&
         std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; });
}

/// The options of runner-worker that a training has. Others make it load a library, for example.
bool may_be_given(const std::string& argument) {
  constexpr std::array options = {"--run-dir", "--cache-dir", "--accept-changed-data", "--attempt", "--resume"};
  return !argument.starts_with('-') || std::ranges::find(options, argument) != options.end();
}

/// Takes what a leader says about the workers of an attempt. Throws BadMessage, or nlohmann::json::exception.
Handout take_start(const json& message, WorkerGroup& group) {
  const auto arguments = message.at("arguments").get<std::vector<std::string>>();
  const auto environment = message.at("environment").get<std::map<std::string, std::string>>();
  for (const auto& argument : arguments)
    if (!may_be_given(argument)) throw BadMessage("arguments: " + argument);
  for (const auto& [name, value] : environment)
    if (!may_be_set(name, value)) throw BadMessage("environment: " + name);
  group.arguments = arguments;
  group.environment = environment;
  group.log_dir = text_in(message, "log_dir");
  const auto number = [&](const char* field, int least, int most, int otherwise) {
    return message.contains(field) ? number_in(message, field, least, most) : otherwise;
  };
  constexpr int ranks_max = 1 << 20, port_max = 65'535;
  group.ranks_of_worker = number("ranks_of_worker", 1, group.local_size, 1);
  group.world_size = number("world_size", group.local_size, ranks_max, group.world_size);
  group.first_rank = number("first_rank", 1, group.world_size - group.local_size, group.first_rank);
  group.num_nodes = number("num_nodes", 1, group.world_size, group.num_nodes);
  group.node_rank = number("node_rank", 0, group.num_nodes - 1, group.node_rank);
  return {.master_port = number_in(message, "store_port", 1, port_max),
          .node_address = text_in(message, "node_address")};
}

Outcome outcome_from_json(const json& message) {
  Outcome outcome;
  const int code = number_in(message, "code", 0, static_cast<int>(ExitCode::interrupted));
  outcome.code = static_cast<ExitCode>(code);
  outcome.status = text_in(message, "status");
  message.at("first_cause").get_to(outcome.first_cause);
  return outcome;
}

/// Whether the connected leader accepts this supervisor before `until`. Otherwise sets `problem` to the reason.
bool welcomed(MessageSocket& leader, double until, bool has_secret, std::string& problem) {
  while (leader.is_open() && steady_seconds() < until) {
    wait_readable({leader.fd()}, std::min(until - steady_seconds(), 1.0));
    auto answer = leader.receive();
    if (!answer) continue;
    try {
      const std::string said = text_in(*answer, "say");
      if (said == "welcome") return true;
      if (said == "greeting") {
        problem = fmt::format("it wants the secret of the nodes: set {}", nodes_secret_variable);
        return false;
      }
      if (said == "end") {
        const Outcome outcome = outcome_from_json(*answer);
        throw Error(outcome.code, outcome.first_cause);
      }
    } catch (const Error&) {
      throw;
    } catch (const std::exception&) {
      // It does not follow the protocol.
    }
    problem = "the answer is not from a supervisor of runner";
    return false;
  }
  problem = leader.is_open() ? "no answer" : "the connection was closed without an answer";
  if (has_secret || !leader.is_open()) problem += fmt::format("; is {} the same there?", nodes_secret_variable);
  return false;
}

class Following {
 public:
  Following(MessageSocket& leader, const Introduction& self, WorkerGroup group, RunFolderCheck check)
      : leader_(leader), self_(self), group_(std::move(group)), check_(std::move(check)) {}
  Outcome run();

 private:
  void obey_checked(const json& message);
  void obey(const json& message);
  void start(const json& message);
  void require_shared_folder(const std::string& proof) const;
  void fail_start(const Error& error);
  void handle_signals();
  void leave(int signal);
  void suspend();
  void report(Worker& worker);

  MessageSocket& leader_;
  const Introduction& self_;
  WorkerGroup group_;
  RunFolderCheck check_;
  StopSignals signals_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::optional<Outcome> outcome_;
  int leaving_ = 0;  ///< the signal for which this node leaves an elastic run
};

Outcome Following::run() {
  while (!outcome_) {
    if (!leader_.is_open())
      throw run_error("{}: lost the supervisor of rank 0 ({}:{}): it was killed, or its host cannot be reached",
                      describe(self_), self_.placement.master_addr, self_.placement.master_port);
    std::vector<int> fds{signals_.fd(), leader_.fd()};
    for (const auto& worker : workers_) fds.push_back(worker->event_fd());
    wait_readable(fds, follower_tick_seconds);
    handle_signals();
    for (auto& worker : workers_) report(*worker);
    for (size_t i = 0; i < Member::messages_at_once && !outcome_; ++i) {
      auto message = leader_.receive();
      if (!message) break;
      obey_checked(*message);
    }
  }
  return *outcome_;
}

/// This supervisor does only what a leader of this version says.
void Following::obey_checked(const json& message) {
  std::string problem;
  try {
    return obey(message);
  } catch (const BadMessage& error) {
    problem = error.what();
  } catch (const json::exception& error) {
    problem = error.what();
  }
  throw run_error("{}: the supervisor of rank 0 ({}:{}) does not follow the protocol: {}", describe(self_),
                  self_.placement.master_addr, self_.placement.master_port, problem);
}

void Following::obey(const json& message) {
  const std::string said = text_in(message, "say");
  if (said == "start") start(message);
  if (said == "tell") log::info("{}", message.value("text", ""));
  if (said == "end") outcome_ = outcome_from_json(message);
  if (said != "send") return;
  const int signal = number_in(message, "signal", 1, NSIG);
  const bool group = flag_in(message, "group");
  for (auto& worker : workers_)
    if (worker->rank() == message.at("rank")) group ? worker->send_group(signal) : worker->send(signal);
}

void Following::start(const json& message) {
  workers_.clear();
  const Handout handout = take_start(message, group_);
  const std::string proof = text_in(message, "proof");
  try {
    require_shared_folder(proof);
    if (self_.secret.empty()) require_trusted_folders(group_, check_);
    workers_ = start_workers(group_, handout);
  } catch (const Error& error) {
    if (self_.placement.elastic) {  // the run goes on without this node
      leader_.send({{"event", "note"},
                    {"rank", group_.first_rank},
                    {"time", wall_seconds()},
                    {"message", fmt::format("{} cannot start: {}", describe(self_), error.what())}});
      throw;
    }
    fail_start(error);
  }
}

void Following::require_shared_folder(const std::string& proof) const {
  auto file = fs::path(group_.log_dir) / proof_file_name;
  auto seen = [&] {
    std::error_code ignored;
    return fs::exists(file, ignored) && read_file(file) == proof;
  };
  for (double until = steady_seconds() + shared_folder_seconds; !seen();) {
    if (steady_seconds() > until)
      throw environment_error(
          "host {} does not see the same folder {} as rank 0's host, but all ranks write checkpoints into it: put "
          "RUNNER_HOME on a file system that all nodes share, at the same path",
          self_.host, fs::path(group_.log_dir).parent_path().string());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

/// Reports to the leader that all workers of this group failed at once.
void Following::fail_start(const Error& error) {
  const char* kind = error.code() == ExitCode::usage ? "usage" : "environment";
  for (int rank = group_.first_rank; rank < group_.first_rank + group_.local_size; rank += group_.ranks_of_worker) {
    leader_.send(
        {{"event", "failed"}, {"rank", rank}, {"time", wall_seconds()}, {"kind", kind}, {"message", error.what()}});
    leader_.send({{"say", "exit"},
                  {"rank", rank},
                  {"code", static_cast<int>(error.code())},
                  {"signal", 0},
                  {"oom_suspected", false},
                  {"log_tail", ""}});
  }
}

void Following::handle_signals() {
  for (int signal : signals_.take()) {
    if (signal == SIGTSTP)
      suspend();
    else if (self_.placement.elastic)
      leave(signal);
    else
      leader_.send({{"say", "signal"}, {"signal", signal}});
  }
}

/// The leader stops all workers with a checkpoint and then sends the end. A second Ctrl-C does not wait for that, and neither does a node
/// that has not had workers: the leader may be busy with the data.
void Following::leave(int signal) {
  const bool again = std::exchange(leaving_, leaving_ == 0 ? signal : leaving_) != 0;
  if (again && signal != SIGINT) return;
  if (!again) leader_.send({{"say", "leave"}, {"signal", signal}});
  if (again || workers_.empty()) outcome_ = outcome_of_leaving(signal);
  if (!again)
    log::info("{}: leaving the run{}", signal_name(signal),
              outcome_           ? ""
              : signal == SIGINT ? " after a checkpoint (Ctrl-C again leaves at once)"
                                 : " after a checkpoint");
}

/// Handles Ctrl-Z. The workers are in other process groups, so the terminal has not stopped them.
void Following::suspend() {
  for (auto& worker : workers_) worker->send_group(SIGSTOP);
  ::raise(SIGSTOP);
  for (auto& worker : workers_) worker->send_group(SIGCONT);
}

void Following::report(Worker& worker) {
  auto pass_on = [&] {
    for (const json& event : worker.read_events()) leader_.send(event);
  };
  pass_on();
  auto exit = worker.poll_exit();
  if (!exit) return;
  pass_on();  // events written after the last read and before the exit
  leader_.send({{"say", "exit"},
                {"rank", worker.rank()},
                {"code", exit->code},
                {"signal", exit->signal},
                {"oom_suspected", exit->oom_suspected},
                {"log_tail", exit->log_tail}});
}

/// "anna (user 1001)"; a user that this host does not know: "user 1001".
std::string name_of(uid_t user) {
  std::array<char, 4096> buffer{};
  passwd entry{}, *found = nullptr;
  const bool known = ::getpwuid_r(user, &entry, buffer.data(), buffer.size(), &found) == 0 && found;
  return known ? fmt::format("{} (user {})", entry.pw_name, user) : fmt::format("user {}", user);
}

}  // namespace

MessageSocket join_leader(const Introduction& self, std::chrono::seconds deadline) {
  const Placement& place = self.placement;
  const double begun = steady_seconds(), until = begun + static_cast<double>(deadline.count());
  std::string problem;
  for (bool told = !place.elastic;;) {
    double left = until - steady_seconds();
    if (left <= 0) break;
    if (steady_seconds() - begun > silent_seconds && !std::exchange(told, true))
      log::info("no answer at {}:{} ({}): waiting up to {} for node 0; start the same command there with --node-rank 0",
                place.master_addr, place.master_port, problem, write_duration(deadline));
    MessageSocket leader = MessageSocket::connect(place.master_addr, place.master_port, std::min(left, attempt_seconds),
                                                  problem, self.secret);
    if (leader.is_open()) {
      json hello = to_json(self);
      hello["say"] = "hello";
      leader.send(hello);
      if (welcomed(leader, until, !self.secret.empty(), problem)) return leader;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  throw environment_error(
      "{}: the supervisor of rank 0 did not answer at {}:{} within {} ({}): start {}, or allow more time "
      "(devices.rendezvous_timeout)",
      describe(self), place.master_addr, place.master_port, write_duration(deadline), problem,
      place.elastic ? "the same command there with --node-rank 0" : "it there");
}

Outcome follow(MessageSocket& leader, const Introduction& self, WorkerGroup group, RunFolderCheck check) {
  return Following(leader, self, std::move(group), std::move(check)).run();
}

fs::path run_folder_of(const WorkerGroup& group) {
  const fs::path run_dir = fs::path(group.log_dir).lexically_normal().parent_path();
  for (size_t i = 0; i < group.arguments.size(); ++i) {
    if (group.arguments[i] != "--run-dir") continue;
    const bool same = i + 1 < group.arguments.size() && fs::path(group.arguments[i + 1]).lexically_normal() == run_dir;
    if (!same) throw BadMessage("arguments: --run-dir");
  }
  return run_dir;
}

std::string why_untrusted(const fs::path& path, uid_t me) {
  bool has_child = false;  // whether the next path is a folder with a trusted one in it
  for (fs::path at = path;; at = at.parent_path()) {
    struct stat found {};
    if (::lstat(at.c_str(), &found) == 0) {
      if (found.st_uid != me && found.st_uid != 0)
        return fmt::format("{} belongs to {}, and this node runs as {}", at.string(), name_of(found.st_uid),
                           name_of(me));
      // In a sticky folder, others can make new entries, but replace none.
      const bool sticky = (found.st_mode & S_ISVTX) != 0;
      if ((found.st_mode & S_IWOTH) != 0 && !(sticky && has_child))
        return fmt::format("every user can write to {}", at.string());
      has_child = true;
    } else if (errno != ENOENT) {
      return fmt::format("{} cannot be read ({})", at.string(), std::strerror(errno));
    }
    if (at == at.parent_path()) return "";
  }
}

namespace {

/// The path without links, if both it and `inner` in it are trusted. Throws Error(environment).
fs::path trusted_path(const fs::path& path, const char* inner) {
  std::error_code error;
  const auto real = fs::weakly_canonical(fs::absolute(path), error);
  const auto real_inner = error ? fs::path() : fs::weakly_canonical(real / inner, error);
  if (error) throw environment_error("{} cannot be read: {}", path.string(), error.message());
  for (const auto& checked : {real, real_inner})
    if (const auto why = why_untrusted(checked, ::geteuid()); !why.empty())
      throw environment_error(
          "{}: without a secret, a node runs only what its own user or root has written; start all nodes as the same "
          "user, with folders that others may not write, or give all of them the same {}",
          why, nodes_secret_variable);
  return real;
}

}  // namespace

void require_trusted_folders(WorkerGroup& group, const RunFolderCheck& check) {
  const fs::path run_dir = trusted_path(run_folder_of(group), "resolved.toml");
  group.log_dir = (run_dir / fs::path(group.log_dir).lexically_normal().filename()).string();
  for (size_t i = 0; i + 1 < group.arguments.size(); ++i) {
    auto& value = group.arguments[i + 1];
    if (group.arguments[i] == "--run-dir") value = run_dir.string();
    if (group.arguments[i] == "--cache-dir") value = trusted_path(value, "programs").string();
  }
  if (check) check(run_dir);
}

}  // namespace runner
