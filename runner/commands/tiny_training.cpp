#include "runner/commands/tiny_training.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "runner/base/child_process.hpp"
#include "runner/base/own_program.hpp"
#include "runner/config/config.hpp"
#include "runner/launch/lines.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/lua/script_file.hpp"

namespace runner {

namespace {

/// Two layers, two ranks, epochs of six steps. train() sets the number of steps.
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

/// Prints a line of the child process. Leaves out lines about the temporary run.
void TinyTraining::forward(std::string line) const {
  for (const char* about_run : {"run ", "continuing from ", "logs of all ranks: "})
    if (line.starts_with(about_run) && line.find(folder().string()) != std::string::npos) return;
  for (const char* left_out :
       {"starting 2 workers", "more: runner show ", "continue with: runner resume ", "  the recipe names it at "})
    if (line.starts_with(left_out)) return;
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
  command.environment = {{"RUNNER_HOME", home()}, {lua::lines_variable, lines_file().string()}};
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

int64_t TinyTraining::steps_done() const {
  Ledger ledger(home(), Ledger::Mode::read);
  return ledger.show(ledger.find_run("last")).at("steps").get<int64_t>();
}

int64_t steps_to_train(const std::vector<Option>& options, const nlohmann::json& given, int64_t least) {
  constexpr int64_t most = 32;
  int64_t steps = least;
  for (const auto& option : options) {
    const auto value = given.value(option.name, option.default_value);
    if (option.type == Option::Type::integer && value.is_number_integer() && value.get<int64_t>() < most)
      steps = std::max(steps, value.get<int64_t>() + 1);
  }
  return steps;
}

}  // namespace runner
