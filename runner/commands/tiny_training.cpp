#include "runner/commands/tiny_training.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "runner/base/child_process.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/launch/lines.hpp"

namespace runner {

namespace {

/// Two blocks, two ranks, epochs of six steps. train() sets the number of steps.
const char* const tiny_recipe = R"([model]
name = "gpt"
n_layers = 2
dim = 32
n_heads = 2
max_seq_len = 32
[data]
format = "text"
train = ["text.txt"]
validation_fraction = 0.1
[devices]
accelerator = "cpu"
cpu_processes = 2
threads_per_rank = 1
[train]
max_steps = 6
global_batch_size = 8
val_check_interval = 2
)";

std::string tiny_text() {
  std::string text;
  for (int i = 0; i < 120; ++i) text += fmt::format("line {} of {}\n", i * i % 97, i % 13);
  return text;
}

}  // namespace

TinyTraining::TinyTraining(const std::string& script)
    : folder_(fs::temp_directory_path()),
      shown_(script),
      script_(script.ends_with(".lua") ? fs::absolute(script).lexically_normal().string() : script) {
  write_file_atomic(folder() / "text.txt", tiny_text());
  write_file_atomic(folder() / "tiny.toml", tiny_recipe);
  recipe = load_recipe((folder() / "tiny.toml").string());
}

/// Prints a line of the child process, except lines with paths of the temporary folder.
void TinyTraining::forward(std::string line) const {
  for (const char* left_out :
       {"note: ", "run 2", "starting ", "continuing ", "more: ", "logs of all ranks: ", "  the recipe names it at "})
    if (line.starts_with(left_out) && !line.starts_with("note: hook ")) return;
  for (size_t at = 0; script_ != shown_ && (at = line.find(script_, at)) != std::string::npos; at += shown_.size())
    line.replace(at, script_.size(), shown_);
  std::fprintf(stderr, "%s\n", line.c_str());
}

int TinyTraining::train(int64_t steps, const std::vector<std::string>& overrides,
                        const std::function<bool(const std::string& line)>& hide) {
  const auto path = (folder() / "check.toml").string();
  if (!begun_) write_file_atomic(path, print_recipe(recipe));
  ChildPipe talk;
  ChildCommand command{own_program().string(), {begun_ ? "resume" : "run", begun_ ? "last" : path}};
  begun_ = true;
  command.arguments.insert(command.arguments.end(), {"--set", fmt::format("train.max_steps={}", steps)});
  for (const auto& text : overrides) command.arguments.insert(command.arguments.end(), {"--set", text});
  command.environment = {{"RUNNER_HOME", home()}};
  command.out = command.log = talk.write.get();
  pid_t child = start_child(command);
  talk.write.close();
  auto show = [&](const std::string& line) {
    if (!hide || !hide(line)) forward(line);
  };
  LineReader lines;
  char buffer[4096];
  for (pollfd ready{talk.read.get(), POLLIN, 0};; ::poll(&ready, 1, -1)) {
    ssize_t n = ::read(talk.read.get(), buffer, sizeof buffer);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) break;
    for (const auto& line : lines.feed({buffer, static_cast<size_t>(n)})) show(line);
  }
  if (auto rest = lines.finish(); !rest.empty()) show(rest);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace runner
