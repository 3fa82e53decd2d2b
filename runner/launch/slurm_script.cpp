#include "runner/launch/slurm_script.hpp"

#include <algorithm>
#include <array>

#include "runner/base/error.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

/// sbatch's short options, of those that scripts set.
constexpr std::array<std::pair<char, const char*>, 12> short_options = {{{'A', "account"},
                                                                         {'G', "gpus"},
                                                                         {'J', "job-name"},
                                                                         {'N', "nodes"},
                                                                         {'a', "array"},
                                                                         {'c', "cpus-per-task"},
                                                                         {'d', "dependency"},
                                                                         {'n', "ntasks"},
                                                                         {'o', "output"},
                                                                         {'p', "partition"},
                                                                         {'q', "qos"},
                                                                         {'t', "time"}}};

/// Options that ask for the same as others, in other words.
constexpr std::array<std::pair<const char*, const char*>, 5> other_words = {{{"ntasks", "ntasks-per-node"},
                                                                             {"gpus", "gpus-per-node"},
                                                                             {"gpus-per-task", "gpus-per-node"},
                                                                             {"gres", "gpus-per-node"},
                                                                             {"no-requeue", "requeue"}}};

/// Options that `runner submit` has itself, because the job depends on their values.
constexpr std::array<const char*, 3> own_options = {"time", "cpus-per-task", "array"};

/// A value in a line of options. sbatch removes quotes and backslashes as a shell does, and replaces nothing.
std::string batch_value(const SlurmOption& option) {
  if (option.value.find_first_of("\n\r") != std::string::npos)
    throw usage_error("{}: a value with a line break cannot stand in a line `#SBATCH --{}`", option.origin,
                      option.name);
  const bool plain = option.value.find_first_not_of(
                         "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                         "0123456789_-+=./:,@%") == std::string::npos;
  if (plain) return option.value;
  std::string quoted = "\"";
  for (const char c : option.value) quoted += (c == '"' || c == '\\' ? "\\" : "") + std::string(1, c);
  return quoted + "\"";
}

/// The long name of an option that its user wrote: "-N2", "--nodes=2" and "--nodes 2" are "nodes".
std::string option_name(const std::string& text) {
  if (text.starts_with("--")) return text.substr(2, text.find_first_of("= \t") - 2);
  for (const auto& [letter, name] : short_options)
    if (text.size() > 1 && text[1] == letter) return name;
  return text.substr(1, 1);
}

/// Checks an option that the user wrote for sbatch.
void check_further(const SlurmJob& job, const std::string& text) {
  if (!text.starts_with("-") || text.size() < 2 || text.find_first_of("\n\r") != std::string::npos)
    throw usage_error("--sbatch {}: it takes one option of sbatch, such as --sbatch=--constraint=a100",
                      shell_word(text));
  std::string name = option_name(text);
  if (name == "chdir" || name == "wrap" || text.starts_with("-D"))
    throw usage_error("--sbatch {}: the script changes to its folder and has its commands; start `runner submit` there",
                      text);
  if (name == "array" && job.kind == SlurmJob::Kind::run)
    throw usage_error("--sbatch {}: an array trains the trials of a sweep, and {} is a recipe", text, job.file);
  if (std::ranges::find(own_options, name) != own_options.end())
    throw usage_error("--sbatch {0}: give it as --{1}, an option of `runner submit`, which must know its value", text,
                      name);
  for (const auto& [other, set] : other_words)
    if (name == other) name = set;
  for (const auto& option : job.options)
    if (option.name == name)
      throw usage_error("--sbatch {}: the job has --{}{} already, from {}", text, option.name,
                        option.value.empty() ? "" : "=" + option.value, option.origin);
}

std::string mount_text(const SlurmContainer& container, const std::string& separator) {
  std::string text;
  for (const auto& mount : container.mounts) {
    const auto colons = std::count(mount.begin(), mount.end(), ':');
    if (mount.find(',') != std::string::npos || colons > 1)
      throw usage_error("{} cannot be mounted in a container: commas and colons separate mounts", mount);
    const bool pyxis = container.runtime == SlurmContainer::Runtime::pyxis;
    text += (text.empty() ? "" : separator) + (pyxis && colons == 0 ? mount + ":" + mount : mount);
  }
  return text;
}

/// The words before `runner` that make srun start it in the container; none without Pyxis.
std::vector<std::string> srun_options(const SlurmJob& job) {
  std::vector<std::string> words;
  if (job.cpus_per_task) words.push_back("--cpus-per-task=" + *job.cpus_per_task);
  if (!job.container || job.container->runtime != SlurmContainer::Runtime::pyxis) return words;
  words.push_back("--container-image=" + job.container->image);
  words.push_back("--container-mounts=" + mount_text(*job.container, ","));
  words.push_back("--container-workdir=" + job.directory);
  return words;
}

/// `runner`, or the command that starts it in a container of Apptainer.
std::vector<std::string> program_words(const SlurmJob& job) {
  if (!job.container || job.container->runtime != SlurmContainer::Runtime::apptainer) return {job.program};
  std::vector<std::string> words = {"apptainer", "exec"};
  if (job.container->gpus) words.push_back("--nv");
  words.insert(words.end(),
               {"--bind", mount_text(*job.container, ","), "--pwd", job.directory, job.container->image, job.program});
  return words;
}

/// `list`=(WORDS)
std::string list_line(const char* list, std::vector<std::string> words, const std::vector<std::string>& more,
                      const std::vector<std::string>& last) {
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), last.begin(), last.end());
  return fmt::format("{}=({})\n", list, shell_words(words));
}

constexpr const char* requeue_lines = R"(
# 3 = saved and resumable (preempted, or out of time). With other codes the job ends with the code of `runner`.
if [ "$code" -eq 3 ]; then
  echo "job $job: checkpoint saved, requeueing"
  scontrol requeue "$job"
fi
exit "$code"
)";

/// The commands of a job that trains one trial.
std::string trial_lines(const SlurmJob& job) {
  return fmt::format("\"${{launch[@]}}\" sweep trial {} \"$SLURM_ARRAY_TASK_ID\" --name \"$name\"\ncode=$?\n",
                     shell_word(job.file));
}

/// The commands of the other jobs.
std::string resuming_lines(const SlurmJob& job) {
  const bool run = job.kind == SlurmJob::Kind::run;
  const auto words = [](const std::vector<std::string>& list) { return list.empty() ? "" : " " + shell_words(list); };
  const std::string more = words(job.arguments), again = words(job.resume_arguments);
  const std::string file = shell_word(job.file);
  const std::string known = run ? "show" : "sweep status";
  const std::string first = run ? fmt::format("run {}{} --set \"run.name=$name\"", file, more)
                                : fmt::format("sweep run {} --name \"$name\"{}", file, more);
  return fmt::format(
      "problem=$(\"${{look[@]}}\" {} \"$name\" --json 2>&1 >/dev/null)\nknown=$?\n"
      "if [ \"$known\" -eq 0 ]; then\n  \"${{launch[@]}}\" {} \"$name\"{}\n"
      "elif [ \"$known\" -eq 2 ]; then  # there is none of this name yet\n  \"${{launch[@]}}\" {}\n"
      "else\n  echo \"$problem\" >&2\n"
      "  echo \"job $job: it is not known whether $name has begun (exit code $known)\" >&2\n  exit 4\nfi\ncode=$?\n",
      known, run ? "resume" : "sweep resume", again, first);
}

/// A number without sign, or nothing.
std::optional<int64_t> whole_number(std::string_view text) {
  const auto number = text.size() > 9 ? std::nullopt : parse_number<int64_t>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

}  // namespace

std::string slurm_job_name(const std::string& text) {
  std::string name = text;
  for (char& c : name)
    if (std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-").find(c) ==
        std::string_view::npos)
      c = '_';
  return name.empty() ? "job" : name;
}

std::string slurm_run_name(const SlurmJob& job, const std::string& number) {
  return fmt::format("slurm-{}-{}-{}", number, job.name, job.tag);
}

std::string slurm_script(const SlurmJob& job) {
  const bool trials = job.kind == SlurmJob::Kind::trials;
  std::string text =
      "#!/bin/bash\n"
      "# Written by `runner submit`, for sbatch. The job resumes after preemptions and time limits.\n#\n";
  for (const auto& option : job.options)
    text += fmt::format("#SBATCH --{}{}\n", option.name, option.value.empty() ? "" : "=" + batch_value(option));
  for (const auto& further : job.further) {
    check_further(job, further);
    text += "#SBATCH " + further + "\n";
  }
  text += fmt::format("set -u\n\ncd {} || exit 4\nexport RUNNER_HOME={}\n\n", shell_word(job.directory),
                      shell_word(job.home));
  text +=
      trials ? "# All jobs of the array work on the sweep of this name, each on one trial. A requeued job keeps its "
               "trial.\n"
               "job=${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}\n"
             : "# The name contains the job's number. A requeued job keeps its number, so it finds what it has begun.\n"
               "job=$SLURM_JOB_ID\n";
  text += fmt::format("name={}\n", slurm_run_name(job, trials ? "${SLURM_ARRAY_JOB_ID}" : "${job}"));
  const auto program = program_words(job), options = srun_options(job);
  const bool pyxis = job.container && job.container->runtime == SlurmContainer::Runtime::pyxis;
  if (!trials)
    text += pyxis ? list_line("look", {"srun", "--nodes=1", "--ntasks=1"}, options, program)
                  : list_line("look", {}, {}, program);
  text += list_line("launch", {"srun"}, options, program);
  return text + (trials ? trial_lines(job) : resuming_lines(job)) + requeue_lines;
}

std::optional<std::chrono::seconds> parse_slurm_time(const std::string& text) {
  const auto dash = text.find('-');
  const auto parts = split(dash == std::string::npos ? text : text.substr(dash + 1), ':');
  std::vector<int64_t> numbers;
  for (const auto& part : parts)
    if (auto number = whole_number(part)) numbers.push_back(*number);
  const auto days = dash == std::string::npos ? std::optional<int64_t>(0) : whole_number(text.substr(0, dash));
  if (!days || numbers.size() != parts.size() || numbers.size() > 3) return parse_duration(text);
  // Without days the last of one or two numbers is minutes or seconds: MINUTES, MINUTES:SECONDS. With days, the first is hours.
  if (dash != std::string::npos) {
    numbers.resize(3);
  } else {
    if (numbers.size() == 1) numbers.push_back(0);
    if (numbers.size() == 2) numbers.insert(numbers.begin(), 0);
  }
  return std::chrono::seconds(((*days * 24 + numbers[0]) * 60 + numbers[1]) * 60 + numbers[2]);
}

std::string write_slurm_time(std::chrono::seconds time) {
  const int64_t seconds = time.count(), days = seconds / 86400;
  return fmt::format("{}{:02}:{:02}:{:02}", days > 0 ? fmt::format("{}-", days) : "", seconds / 3600 % 24,
                     seconds / 60 % 60, seconds % 60);
}

}  // namespace runner
