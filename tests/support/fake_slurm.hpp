// A workplace with a Slurm of one machine (tests/support/fake_slurm).
#pragma once
#include "tests/support/command.hpp"

namespace runner::testing {

/// Puts sbatch, srun and scontrol into a folder of the workplace. Removing it waits for nothing: finish the jobs first.
class FakeSlurm {
 public:
  explicit FakeSlurm(const Workplace& place) : state_(place.path() / "slurm") {
    fs::create_directories(state_ / "bin");
    for (const char* name : {"sbatch", "srun", "scontrol"})
      fs::create_symlink(RUNNER_SOURCE_DIR "/tests/support/fake_slurm", state_ / "bin" / name);
  }
  /// The variables with which commands find it.
  std::map<std::string, std::string> variables() const {
    return {{"FAKE_SLURM", state_.string()}, {"PATH", (state_ / "bin").string() + ":" + ::getenv("PATH")}};
  }
  std::string calls() const { return slurp(state_ / "calls"); }
  std::string output(const std::string& job) const { return slurp(state_ / (job + ".out")); }
  /// From now on sbatch prints the text and fails with exit code 3.
  void refuse(const std::string& text) const { std::ofstream(state_ / "refuse") << text; }
  /// From now on sbatch prints the text and submits nothing.
  void answer(const std::string& text) const { std::ofstream(state_ / "answer") << text; }
  /// The job's exit code, which it waits for. Throws after a minute.
  int code(const std::string& job) const {
    if (!wait_until([&] { return !slurp(state_ / (job + ".end")).empty(); }, 60))
      throw std::runtime_error("job " + job + " has not ended:\n" + output(job));
    return std::stoi(slurp(state_ / (job + ".end")));
  }
  /// The processes of the job's newest step.
  std::vector<pid_t> tasks(const std::string& job) const {
    std::istringstream list(slurp(state_ / (job + ".tasks")));
    std::vector<pid_t> pids;
    for (pid_t pid = 0; list >> pid;) pids.push_back(pid);
    return pids;
  }

 private:
  fs::path state_;
};

}  // namespace runner::testing
