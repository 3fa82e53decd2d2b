// Sets up the environment, log and descriptors of each rank.
#include "runner/launch/worker_group.hpp"

#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runner/base/child_process.hpp"
#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/log_heading.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/base/text.hpp"
#include "runner/launch/events.hpp"

namespace runner {

namespace {

// A worker on this host: a child process with an event pipe and a log file.

/// The settings of a worker process.
struct WorkerCommand {
  int rank = 0;   ///< the first one
  int ranks = 1;  ///< ranks in the process; each is a thread
  std::string program;
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  ///< added to this process's environment
  std::vector<int> inherited;                      ///< further descriptors that the child keeps, with the same numbers
  std::string log_file;                            ///< stdout and stderr are appended; stdin is /dev/null
  std::string log_heading = {};                    ///< a line that separates this output from that of earlier workers
  int64_t log_bytes_max = int64_t{64} << 20;       ///< a larger log loses its middle, see ChildLog::bound()
  std::chrono::milliseconds stopped_limit = std::chrono::minutes(2);  ///< as in WorkerGroup
};

/// The thread that creates the object must outlive it: the kernel kills the child when that thread ends (PR_SET_PDEATHSIG).
/// Therefore no worker survives a kill -9 of the supervisor. The child leads a new process group: a Ctrl-C on the terminal
/// reaches the supervisor only, and send_group() also reaches the child's child processes.
class WorkerProcess final : public Worker {
 public:
  /// Throws Error(environment) if the program or its log cannot be opened.
  explicit WorkerProcess(const WorkerCommand& command);
  ~WorkerProcess() override;  ///< kills and reaps
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  int rank() const override { return rank_; }
  bool running() const override { return running_; }
  int event_fd() const override { return events_.get(); }  ///< -1 after the end of the pipe was read
  /// Adds a `failed` event if the process has been stopped for too long (SIGSTOP), once.
  std::vector<nlohmann::json> read_events() override;
  std::function<void()> answer() override;
  /// If the worker has ended, also kills the rest of its process group and reaps the worker.
  std::optional<WorkerExit> poll_exit() override;
  void send(int signal) override;
  void send_group(int signal) override;
  const std::string& log_file() const override { return log_.path(); }

 private:
  bool stopped_too_long();

  int rank_;
  pid_t pid_ = -1;
  bool running_ = false;
  Descriptor events_;
  std::shared_ptr<Descriptor> settled_;  ///< the eventfd on which the worker waits after `settle`
  EventReader reader_;
  ChildLog log_;
  int64_t log_bytes_max_;
  std::optional<long> oom_kills_before_;
  double stopped_limit_, looked_at_ = 0, stopped_for_ = 0;  ///< in seconds, of the process
};

constexpr size_t tail_lines = 10;

/// The number of kills by the kernel's out-of-memory killer on this machine (/proc/vmstat); empty if it cannot be read.
std::optional<long> oom_kill_count() {
  std::ifstream file("/proc/vmstat");
  std::string name;
  long value = 0;
  while (file >> name >> value)
    if (name == "oom_kill") return value;
  return std::nullopt;
}

WorkerProcess::WorkerProcess(const WorkerCommand& command)
    : rank_(command.rank),
      reader_(command.rank, command.ranks),
      log_(command.log_file, command.log_heading),
      log_bytes_max_(command.log_bytes_max),
      stopped_limit_(std::chrono::duration<double>(command.stopped_limit).count()) {
  oom_kills_before_ = oom_kill_count();
  ChildPipe events;
  settled_ = std::make_shared<Descriptor>(::eventfd(0, EFD_CLOEXEC));
  if (!settled_->is_open()) throw environment_error("cannot make an eventfd: {}", std::strerror(errno));
  Descriptor log = log_.take();
  ChildCommand child{command.program, command.arguments, command.environment, log.get(), log.get(), command.inherited};
  child.environment["RUNNER_EVENT_FD"] = std::to_string(events.write.get());
  child.environment["RUNNER_SETTLED_FD"] = std::to_string(settled_->get());
  child.inherited.insert(child.inherited.end(), {events.write.get(), settled_->get()});
  pid_ = start_child(child);
  events_ = std::move(events.read);
  running_ = true;
}

WorkerProcess::~WorkerProcess() {
  if (!running_ || pid_ < 0) return;
  send_group(SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

std::vector<nlohmann::json> WorkerProcess::read_events() {
  std::vector<nlohmann::json> events;
  char buffer[65536];
  // A running worker is read in portions, so that the others have their turn; an ended one is read to the end.
  for (int reads = 0; (reads < 16 || !running_) && events_.is_open(); ++reads) {
    ssize_t n = ::read(events_.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    auto more = n > 0 ? reader_.feed({buffer, static_cast<size_t>(n)}) : reader_.finish();
    events.insert(events.end(), more.begin(), more.end());
    if (n <= 0) events_.close();
  }
  if (stopped_too_long())
    events.push_back({{"event", "failed"},
                      {"rank", rank_},
                      {"time", wall_seconds()},
                      {"kind", "error"},
                      {"message", fmt::format("the process {} has been stopped for {} (by SIGSTOP or a similar signal)",
                                              pid_, format_duration(stopped_for_))}});
  return events;
}

/// Looks once a second. The time in which this process was stopped, too, does not count.
bool WorkerProcess::stopped_too_long() {
  constexpr double look_every = 1, counted_max = 2;
  const double now = steady_seconds(), elapsed = now - looked_at_;
  if (!running_ || elapsed < std::min(look_every, stopped_limit_ / 2)) return false;
  looked_at_ = now;
  const bool reported = stopped_for_ >= stopped_limit_;
  const auto stat = read_process_stat(pid_);
  if (!stat || stat->state != 'T') {  // 't' is a debugger's stop
    stopped_for_ = 0;
    return false;
  }
  stopped_for_ += std::min(elapsed, counted_max);
  return !reported && stopped_for_ >= stopped_limit_;
}

std::function<void()> WorkerProcess::answer() {
  return [settled = settled_] {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t n = ::write(settled->get(), &one, sizeof one);
  };
}

std::optional<WorkerExit> WorkerProcess::poll_exit() {
  if (!running_) return std::nullopt;
  log_.bound(log_bytes_max_);
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
    return std::nullopt;
  send_group(SIGKILL);  // before the worker is reaped: until then, its group id cannot be reused
  ::waitpid(pid_, nullptr, 0);
  running_ = false;
  log_.bound(log_bytes_max_);
  WorkerExit exit;
  (info.si_code == CLD_EXITED ? exit.code : exit.signal) = info.si_status;
  auto oom_kills = oom_kill_count();
  exit.oom_suspected = !oom_kills || !oom_kills_before_ || *oom_kills > *oom_kills_before_;
  exit.log_tail = log_.tail(tail_lines);
  return exit;
}

void WorkerProcess::send(int signal) {
  if (running_) ::kill(pid_, signal);
}
void WorkerProcess::send_group(int signal) {
  if (running_) ::kill(-pid_, signal);
}

std::map<std::string, std::string> rank_environment(const WorkerGroup& group, const Handout& handout, int local) {
  std::map<std::string, std::string> variables = group.environment;
  int local_world = group.local_world_size > 0 ? group.local_world_size : group.local_size;
  variables["RANK"] = std::to_string(group.first_rank + local);
  const int local_rank = group.local_rank_offset + local;  // beyond the first node in a simulation of several
  variables["LOCAL_RANK"] = std::to_string(local_rank % local_world);
  variables["WORLD_SIZE"] = std::to_string(group.world_size);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(local_world);
  variables["NODE_RANK"] = std::to_string(group.node_rank + local_rank / local_world);
  variables["MASTER_ADDR"] = group.master_addr;
  variables["MASTER_PORT"] = std::to_string(handout.master_port);
  if (group.ranks_of_worker > 1) {
    variables["RUNNER_RANKS_OF_WORKER"] = std::to_string(group.ranks_of_worker);
    // LibTorch's record of collectives has a map of the process that its threads change without a lock (FlightRecorderDetail.hpp).
    variables["TORCH_FR_BUFFER_SIZE"] = "0";
  }
  if (!group.device_indices.empty()) {
    const auto first = group.device_indices.begin() + local;
    variables["RUNNER_DEVICE_INDEX"] = fmt::format("{}", fmt::join(first, first + group.ranks_of_worker, ","));
  }
  if (!handout.node_address.empty()) variables["RUNNER_NODE_ADDRESS"] = handout.node_address;
  if (local == 0 && handout.listen_fd >= 0) variables["RUNNER_LISTEN_FD"] = std::to_string(handout.listen_fd);
  if (handout.shm_fd >= 0) variables["RUNNER_SHM_FD"] = std::to_string(handout.shm_fd);
  return variables;
}

}  // namespace

void place(WorkerGroup& group, const Placement& placement) {
  group.first_rank = placement.rank;
  group.world_size = placement.world_size;
  group.local_size = placement.launched ? 1 : placement.simulated ? placement.world_size : placement.local_size;
  group.local_rank_offset = placement.launched ? placement.local_rank : 0;
  group.local_world_size = placement.local_size;
  group.node_rank = placement.node_rank;
  group.num_nodes = placement.num_nodes;
  group.master_addr = placement.master_addr;
  group.master_port = placement.master_port;
}

std::string log_file_of(const WorkerGroup& group, int rank) {
  return (std::filesystem::path(group.log_dir) / fmt::format("rank-{}.log", rank)).string();
}

std::vector<std::unique_ptr<Worker>> start_workers(const WorkerGroup& group, const Handout& handout) {
  // A worker takes an event pipe, an eventfd, and a log while it starts. The leader has a connection to each other supervisor.
  raise_descriptor_limit(256 + 4 * group.local_size + (group.world_size - group.local_size),
                         fmt::format("the supervisor of {} of {} ranks", group.local_size, group.world_size));
  std::filesystem::create_directories(group.log_dir);
  std::vector<std::unique_ptr<Worker>> workers;
  const auto option = std::ranges::find(group.arguments, "--attempt");
  const bool numbered = option != group.arguments.end() && option + 1 != group.arguments.end();
  const std::string heading = numbered ? log_heading(*(option + 1), format_time(wall_seconds())) : "";
  for (int local = 0; local < group.local_size; local += group.ranks_of_worker) {
    WorkerCommand command;
    command.rank = group.first_rank + local;
    command.ranks = group.ranks_of_worker;
    command.program = group.worker;
    command.arguments = group.arguments;
    command.environment = rank_environment(group, handout, local);
    command.log_file = log_file_of(group, command.rank);
    command.log_heading = heading;
    command.stopped_limit = group.stopped_limit;
    if (local == 0 && handout.listen_fd >= 0) command.inherited.push_back(handout.listen_fd);
    if (handout.shm_fd >= 0) command.inherited.push_back(handout.shm_fd);
    workers.push_back(std::make_unique<WorkerProcess>(command));
  }
  return workers;
}

}  // namespace runner
