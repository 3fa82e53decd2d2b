// Starts the ranks of a mesh as processes of this machine, which meet, make their groups, and then do nothing. Prints one JSON line: the
// time until all have met, and the memory, descriptors and threads of all of them together.
//
// bench_rendezvous RANKS [BACKEND [fork|exec]]: BACKEND is shm (default) or gloo. Ranks are forks of this process after it has loaded
// LibTorch, so that they share its memory, or, with exec, programs of their own like workers.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/launch/shared_resources.hpp"
#include "strategies/collective/divergence_watch.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/collective/shm_layout.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/mesh/mesh.hpp"

using namespace runner;
using nlohmann::json;

namespace {

constexpr int rounds = 20;             ///< all_reduces of control words
constexpr int64_t control_words = 12;  ///< as many as a step has
constexpr double deadline_seconds = 300;

/// What a rank tells, in memory that all processes share. Times are steady seconds.
struct Report {
  std::atomic<bool> ready;
  double met, grouped, together, reduced;
};

int number(const char* name) { return std::atoi(std::getenv(name)); }

/// A cube of data, pipeline and tensor ranks; what is left over are data ranks.
Mesh cube(int ranks) {
  int pipeline = 1, tensor = 1;
  while (tensor < 8 && ranks % (tensor * 2) == 0 && tensor * tensor * tensor * 8 <= ranks) tensor *= 2;
  pipeline = tensor > 1 && ranks % (tensor * tensor) == 0 ? tensor : 1;
  return Mesh(ranks, {{Axis::pipeline, pipeline}, {Axis::data, ranks / pipeline / tensor}, {Axis::tensor, tensor}});
}

/// A rank: meets the others, makes the groups of the mesh, and waits until the other end of `idle` is closed.
int run_rank(Report* reports, int idle) {
  WorldOptions options = world_options_from_environment();
  options.backend = std::getenv("BACKEND");
  options.rendezvous_timeout = std::chrono::milliseconds(static_cast<int64_t>(deadline_seconds * 1000));
  options.on_diverged = [](const std::string& verdict) {
    std::cerr << verdict << "\n";
    ::_exit(1);
  };
  Report& report = reports[options.rank];
  World world = make_world(options);
  report.met = steady_seconds();
  const Mesh mesh = cube(options.size);
  std::vector<ProcessGroup> groups;
  for (const auto axis : {Axis::pipeline, Axis::data, Axis::tensor})
    if (mesh.size(axis) > 1)
      for (const auto& group : mesh.groups(axis))
        groups.push_back(world.make_subgroup(group.ranks(), fmt::format("{} {}", name_of(axis), group.first)));
  report.grouped = steady_seconds();
  barrier(world.control);
  report.together = steady_seconds();
  std::vector<at::Tensor> words{torch::ones({control_words}, torch::kFloat64)};
  for (int round = 0; round < rounds; ++round) {
    words[0].fill_(1);
    world.control->allreduce(words, {c10d::ReduceOp::SUM})->wait();
    if (words[0][0].item<double>() != options.size) throw run_error("a wrong sum");
  }
  report.reduced = steady_seconds();
  report.ready = true;
  char byte;
  [[maybe_unused]] const ssize_t n = ::read(idle, &byte, 1);
  return 0;
}

int rank_process(Report* reports, int idle) {
  try {
    at::set_num_threads(1);
    return run_rank(reports, idle);
  } catch (const c10::Error& error) {
    std::cerr << "rank " << std::getenv("RANK") << ": " << error.what_without_backtrace() << "\n";
  } catch (const std::exception& error) {
    std::cerr << "rank " << std::getenv("RANK") << ": " << error.what() << "\n";
  }
  return 1;
}

/// A number of a file of /proc whose lines are "NAME: NUMBER ...".
int64_t field(const std::string& path, const std::string& name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(name + ":")) return std::atoll(line.c_str() + name.size() + 1);
  return 0;
}

int64_t descriptors_of(pid_t pid) {
  return std::distance(std::filesystem::directory_iterator(fmt::format("/proc/{}/fd", pid)),
                       std::filesystem::directory_iterator());
}

class Bench {
 public:
  Bench(int ranks, std::string backend, bool exec)
      : ranks_(ranks),
        backend_(std::move(backend)),
        exec_(exec),
        board_(make_shared_memory(static_cast<int64_t>(sizeof(Report)) * ranks)),
        reports_(map(board_.get(), ranks)) {
    if (::pipe(idle_) != 0) throw environment_error("no pipe");
  }
  static Report* map(int fd, int ranks) {
    void* memory =
        ::mmap(nullptr, sizeof(Report) * static_cast<size_t>(ranks), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) throw environment_error("cannot map the reports");
    return static_cast<Report*>(memory);
  }

  json run() {
    const double begun = steady_seconds();
    start();
    const double started = steady_seconds();
    await();
    json result = measure(begun, started);
    ::close(idle_[1]);
    for (pid_t pid : pids_) ::waitpid(pid, nullptr, 0);
    return result;
  }

 private:
  void start() {
    int port = 0;
    Descriptor listener = listen_on("127.0.0.1", port), memory;
    if (backend_ == "shm") memory = make_shared_memory(static_cast<int64_t>(shm_segment_bytes(ranks_)));
    auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
    set("BACKEND", backend_);
    set("WORLD_SIZE", std::to_string(ranks_));
    set("LOCAL_WORLD_SIZE", std::to_string(ranks_));
    set("MASTER_PORT", std::to_string(port));
    set("RUNNER_SHM_FD", std::to_string(memory.get()));
    set("BOARD_FD", std::to_string(board_.get()));
    set("IDLE_FD", std::to_string(idle_[0]));
    for (int rank = 0; rank < ranks_; ++rank) {
      set("RANK", std::to_string(rank));
      set("RUNNER_LISTEN_FD", std::to_string(rank == 0 ? listener.get() : -1));
      const pid_t pid = ::fork();
      if (pid < 0) throw environment_error("cannot start rank {}", rank);
      if (pid == 0) be_rank(rank, listener.get(), memory.get());
      pids_.push_back(pid);
    }
  }

  [[noreturn]] void be_rank(int rank, int listener, int memory) {
    ::close(idle_[1]);
    if (rank > 0) ::close(listener);
    if (!exec_) ::_exit(rank_process(reports_, idle_[0]));
    for (int fd : {rank == 0 ? listener : -1, memory, board_.get(), idle_[0]})
      if (fd >= 0) ::fcntl(fd, F_SETFD, 0);
    ::execl("/proc/self/exe", "bench_rendezvous", "rank", nullptr);
    ::_exit(127);
  }

  void await() {
    const double until = steady_seconds() + deadline_seconds;
    for (int rank = 0; rank < ranks_;) {
      int status = 0;
      const bool late = steady_seconds() > until;
      if (reports_[rank].ready) {
        ++rank;
      } else if (late || ::waitpid(-1, &status, WNOHANG) > 0) {
        for (pid_t pid : pids_) ::kill(pid, SIGKILL);
        throw run_error("{}", late ? fmt::format("rank {} is not ready", rank) : "a rank has ended");
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
  }

  json measure(double begun, double started) const {
    double met = 0, grouped = 0, together = 0, reduced = 0;
    for (int rank = 0; rank < ranks_; ++rank) {
      met = std::max(met, reports_[rank].met);
      grouped = std::max(grouped, reports_[rank].grouped);
      together = std::max(together, reports_[rank].together);
      reduced = std::max(reduced, reports_[rank].reduced);
    }
    int64_t pss = 0, own = 0, tables = 0, threads = 0, descriptors = 0, most = 0;
    for (pid_t pid : pids_) {
      const auto folder = fmt::format("/proc/{}/", pid);
      pss += field(folder + "smaps_rollup", "Pss");
      own += field(folder + "smaps_rollup", "Private_Clean") + field(folder + "smaps_rollup", "Private_Dirty");
      tables += field(folder + "status", "VmPTE");
      threads += field(folder + "status", "Threads");
      const int64_t open = descriptors_of(pid);
      descriptors += open;
      if (pid != pids_.front()) most = std::max(most, open);
    }
    return {{"ranks", ranks_},
            {"backend", backend_},
            {"start", exec_ ? "exec" : "fork"},
            {"mesh", to_text(cube(ranks_))},
            {"start_s", started - begun},
            {"met_s", met - begun},
            {"grouped_s", grouped - begun},
            {"barrier_s", together - begun},
            {"control_all_reduce_ms", (reduced - together) / rounds * 1000},
            {"pss_mib", pss / 1024},
            {"private_mib", own / 1024},
            {"page_tables_mib", tables / 1024},
            {"threads", threads},
            {"descriptors", descriptors},
            {"descriptors_rank_0", descriptors_of(pids_.front())},
            {"descriptors_others_max", most}};
  }

  int ranks_;
  std::string backend_;
  bool exec_;
  Descriptor board_;
  Report* reports_;
  int idle_[2];
  std::vector<pid_t> pids_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::string first = argc > 1 ? argv[1] : "64";
  ::signal(SIGPIPE, SIG_IGN);
  if (first == "rank") return rank_process(Bench::map(number("BOARD_FD"), number("WORLD_SIZE")), number("IDLE_FD"));
  try {
    at::set_num_threads(1);
    torch::ones({1}).sum();  // loads what a first call loads, before the ranks are made
    const bool exec = argc > 3 && std::string(argv[3]) == "exec";
    std::cout << Bench(std::atoi(first.c_str()), argc > 2 ? argv[2] : "shm", exec).run().dump() << "\n";
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
