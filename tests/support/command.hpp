// Runs the built `runner` as a process in a temporary folder and returns its exit code, stdout and stderr.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"
#include "tests/support/wait_until.hpp"

namespace runner::testing {

namespace fs = std::filesystem;

struct CommandResult {
  int code = 0;  ///< exit code, or 128 + signal
  std::string out, err;
  nlohmann::json json() const {  ///< the last line of stdout
    auto text = out.substr(0, out.find_last_not_of('\n') + 1);
    return nlohmann::json::parse(text.substr(text.rfind('\n') + 1));
  }
};

inline std::string slurp(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Predictions of memory that earlier tests recorded: each model's answers are asked for once, not once for each test.
inline void link_profiles(const fs::path& from, const fs::path& to, fs::file_time_type oldest) {
  std::error_code ignored;
  fs::create_directories(to, ignored);
  for (const auto& file : fs::directory_iterator(from, ignored))
    if (file.path().extension() == ".profiles" && fs::last_write_time(file.path(), ignored) >= oldest)
      fs::create_hard_link(file.path(), to / file.path().filename(), ignored);
}

/// A temporary folder with RUNNER_HOME inside. The destructor removes it.
class Workplace {
 public:
  Workplace() { link_profiles(profiles(), home() / "cache", built()); }
  ~Workplace() { link_profiles(home() / "cache", profiles(), built()); }
  Workplace(const Workplace&) = delete;
  const fs::path& path() const { return folder_.path; }
  fs::path home() const { return path() / "home"; }
  bool untouched() const {  ///< nothing was written to RUNNER_HOME but predictions of memory
    for (const auto& file : fs::recursive_directory_iterator(home()))
      if (file.path() != home() / "cache" && file.path().extension() != ".profiles") return false;
    return true;
  }
  /// From now on, `runner` is a copy of the program, and its worker is this shell script; the real worker predicts memory.
  /// With an empty script, there is no worker. In the script, `emit JSON` sends an event.
  void replace_worker(const std::string& script) {
    program_ = (path() / "bin" / "runner").string();
    fs::create_directories(path() / "bin");
    fs::copy_file(RUNNER_BINARY_DIR "/bin/runner", program_, fs::copy_options::skip_existing);  // it may be running
    fs::remove(worker());
    if (script.empty()) return;
    write("bin/runner-worker", "#!/bin/sh\n[ \"$1\" = --profiles ] && exec " RUNNER_BINARY_DIR
                               "/bin/runner-worker \"$@\"\nemit() { echo \"$1\" >/proc/self/fd/$RUNNER_EVENT_FD; }\n" +
                                   script + "\n");
    fs::permissions(worker(), fs::perms(0755));
  }
  fs::path worker() const { return path() / "bin" / "runner-worker"; }
  static fs::path profiles() { return RUNNER_BINARY_DIR "/tests/profiles"; }
  static fs::file_time_type built() {  ///< answers of older workers are not used
    std::error_code none;
    return fs::last_write_time(RUNNER_BINARY_DIR "/bin/runner-worker", none);
  }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((path() / name).parent_path());
    std::ofstream(path() / name, std::ios::binary) << text;
  }

  /// Starts `runner ARGUMENTS` and returns its pid. The output goes to NAME.out and NAME.err. If `private_bytes` > 0,
  /// it limits the private memory of each process (RLIMIT_DATA). With `unread`, the output goes to a pipe without a
  /// reader.
  pid_t start(const std::vector<std::string>& arguments, const std::string& name = "command",
              const std::map<std::string, std::string>& environment = {}, uint64_t private_bytes = 0,
              bool unread = false) const {
    pid_t pid = ::fork();
    if (pid != 0) return pid;
    rlimit limit{private_bytes, private_bytes};
    if (private_bytes > 0) ::setrlimit(RLIMIT_DATA, &limit);
    ::setenv("RUNNER_HOME", home().c_str(), 1);
    ::setenv("NO_COLOR", "1", 1);
    for (const auto& [key, value] : environment) ::setenv(key.c_str(), value.c_str(), 1);
    if (::chdir(path().c_str()) != 0) ::_exit(126);
    int out = ::open((name + ".out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int err = ::open((name + ".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int ends[2];
    if (unread && ::pipe(ends) == 0 && ::close(ends[0]) == 0) out = err = ends[1];
    ::dup2(out, 1);
    ::dup2(err, 2);
    std::string program = program_;
    std::vector<char*> argv{program.data()};
    auto copy = arguments;
    for (auto& argument : copy) argv.push_back(argument.data());
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  CommandResult finish(pid_t pid, const std::string& name = "command") const {
    int status = 0;
    ::waitpid(pid, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), slurp(path() / (name + ".out")),
            slurp(path() / (name + ".err"))};
  }
  CommandResult run(const std::vector<std::string>& arguments,
                    const std::map<std::string, std::string>& environment = {}) const {
    return finish(start(arguments, "command", environment));
  }
  /// A metric of the last run: a list of [step, value].
  nlohmann::json points(const std::string& metric) const {
    auto result = run({"metrics", "last", "--name", metric, "--json"});
    if (result.code != 0) throw std::runtime_error(result.err);
    return result.json().at("points");
  }

 private:
  TemporaryFolder folder_;
  std::string program_ = RUNNER_BINARY_DIR "/bin/runner";
};

inline std::vector<double> losses(const Workplace& place) {
  std::vector<double> values;
  const auto points = place.points("loss");
  for (const auto& point : points) values.push_back(point[1]);
  return values;
}

/// The child processes of a process. The children of a supervisor are its workers.
inline std::vector<pid_t> children_of(pid_t pid) {
  std::istringstream list(slurp("/proc/" + std::to_string(pid) + "/task/" + std::to_string(pid) + "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; list >> child;) children.push_back(child);
  return children;
}

/// A recipe that trains in about a second: 2 ranks, a tiny GPT, generated text.
inline void write_tiny_recipe(const Workplace& place, const std::string& extra = "") {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "line " + std::to_string(i * i % 97) + " of " + std::to_string(i % 13) + "\n";
  place.write("text.txt", text);
  place.write("tiny.toml", R"([run]
seed = 3
[model]
name = "gpt"
n_layers = 2
dim = 32
n_heads = 2
max_seq_len = 32
dropout = 0.1
[data]
format = "text"
train = ["text.txt"]
validation_fraction = 0.05
[devices]
accelerator = "cpu"
cpu_processes = 2
threads_per_rank = 1
[train]
max_steps = 12
global_batch_size = 12
limit_val_batches = 2
)" + extra);
}

}  // namespace runner::testing
