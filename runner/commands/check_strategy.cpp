#include "runner/commands/check_strategy.hpp"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "runner/base/child_process.hpp"
#include "runner/base/log.hpp"
#include "runner/base/own_program.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/launch/lines.hpp"
#include "runner/lua/hook_file.hpp"
#include "runner/lua/strategy_file.hpp"
#include "runner/selection/plan.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/selection/strategy_options.hpp"

namespace runner {

namespace {

/// Two blocks on two ranks. The numbers of steps are set later.
const char* const tiny_recipe = R"([model]
name = "gpt"
n_layers = 2
dim = 32
n_heads = 2
max_seq_len = 32
[data]
format = "text"
train = ["text.txt"]
[devices]
accelerator = "cpu"
cpu_processes = 2
threads_per_rank = 1
[train]
max_steps = 3
global_batch_size = 8
)";

std::string tiny_text() {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += fmt::format("line {} of {}\n", i * i % 97, i % 13);
  return text;
}

/// The strategy's name in a recipe, with the absolute path of the file, so that it works from any folder.
std::string strategy_name(const std::string& file) {
  return "lua:" + (file.ends_with(".lua") ? fs::absolute(file).lexically_normal().string() : file);
}

/// The tiny recipe with the strategy, with the script limits of `recipe_file`, and its strategy options if it uses the
/// same strategy.
Recipe recipe_for(const std::string& file, const std::string& recipe_file, const fs::path& folder) {
  write_file_atomic(folder / "text.txt", tiny_text());
  write_file_atomic(folder / "tiny.toml", tiny_recipe);
  Recipe recipe = load_recipe((folder / "tiny.toml").string());
  if (!recipe_file.empty()) {
    Recipe given = load_whole_recipe(recipe_file, {});
    if (given.strategy.name == strategy_name(file)) recipe.strategy.options = given.strategy.options;
    recipe.hooks = given.hooks;
    recipe.hooks.files.clear();
    recipe.hooks.options = nlohmann::json::object();
  }
  recipe.strategy.name = strategy_name(file);
  return recipe;
}

void describe(const Entry& entry, const Recipe& recipe) {
  std::printf("strategy %s: %s\n", recipe.strategy.name.c_str(), entry.summary.c_str());
  Topology topology;
  topology.devices_per_node = 2;
  topology.cores = 2;
  Plan plan = make_plan(recipe, topology, 256);
  if (memory_known(entry))
    std::printf("  memory of %s parameters: %s a rank\n",
                format_parameters(plan.model->parameter_count()).c_str(),
                format_bytes(plan.memory.total()).c_str());
  for (const auto& part : plan.traffic)
    std::printf("  traffic of a step: %lld x %s, %s\n", static_cast<long long>(part.calls), part.collective.c_str(),
                format_bytes(part.payload_bytes).c_str());
  for (const auto& note : plan.notes) std::printf("  %s\n", note.c_str());
  std::fflush(stdout);
}

/// Prints a line of the child process, except lines with paths of the temporary folder and lines that repeat
/// describe().
void forward(const std::string& line) {
  for (const char* left_out :
       {"note: ", "run 2", "starting ", "continuing ", "more: ", "logs of all ranks: ", "  the recipe names it at "})
    if (line.starts_with(left_out)) return;
  std::fprintf(stderr, "%s\n", line.c_str());
}

/// Runs `runner WORDS` with a separate ledger in `folder`. Returns its exit code.
int train(const fs::path& folder, const std::vector<std::string>& words) {
  ChildPipe talk;
  ChildCommand command{own_program().string(), words};
  command.environment = {{"RUNNER_HOME", (folder / "home").string()}};
  command.out = command.log = talk.write.get();
  pid_t child = start_child(command);
  talk.write.close();
  LineReader lines;
  char buffer[4096];
  for (pollfd ready{talk.read.get(), POLLIN, 0};; ::poll(&ready, 1, -1)) {
    ssize_t n = ::read(talk.read.get(), buffer, sizeof buffer);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) break;
    for (const auto& line : lines.feed({buffer, static_cast<size_t>(n)})) forward(line);
  }
  if (auto rest = lines.finish(); !rest.empty()) forward(rest);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Enough steps for what the strategy does every N steps, if an option is N.
int64_t steps_to_train(const Entry& entry, const Recipe& recipe) {
  constexpr int64_t least = 3, most = 32;
  int64_t steps = least;
  for (const auto& option : entry.options) {
    const auto value = recipe.strategy.options.value(option.name, option.default_value);
    if (option.type == OptionSpec::Type::integer && value.is_number_integer() && value.get<int64_t>() < most)
      steps = std::max(steps, value.get<int64_t>() + 1);
  }
  return steps;
}

/// Prints the log of rank 0, which contains the output of the script.
void show_prints(const fs::path& folder) {
  std::error_code none;
  for (const auto& run : fs::directory_iterator(folder / "home" / "runs", none)) {
    if (!fs::exists(run.path() / "logs" / "rank-0.log")) continue;
    LineReader reader;
    auto lines = reader.feed(read_file(run.path() / "logs" / "rank-0.log"));
    if (auto rest = reader.finish(); !rest.empty()) lines.push_back(rest);
    for (const auto& line : lines) std::printf("  rank 0: %s\n", line.c_str());
  }
}

}  // namespace

bool is_script_strategy(const std::string& file) {
  if (lua::names_script(file)) return true;
  if (!file.ends_with(".lua")) return !lua::shipped_hooks().contains(file) && lua::shipped_strategies().contains(file);
  lua::State state;
  try {
    auto returned = state.load_file(file).reference;
    if (!returned.is_table()) return false;
    const auto& kind = lua::strategy_kind();
    for (const auto& key : state.keys(returned))
      for (const auto* names : {&kind.functions, &kind.fields})
        for (const auto& name : *names)
          if (key == name && key != "setup" && key != "memory") return true;  // hooks also have these two
  } catch (const Error&) {
    return false;  // the caller loads it as a hook, which reports the error
  }
  return false;
}

ExitCode check_strategy(const std::string& given, const std::string& recipe_file) {
  const auto file = lua::names_script(given) ? given.substr(given.find(':') + 1) : given;
  ScratchFolder folder(fs::temp_directory_path());
  Recipe recipe = recipe_for(file, recipe_file, folder.path());
  std::vector<Diagnostic> diagnostics;
  const Entry* entry = learn_script_strategy(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  describe(*entry, recipe);
  const auto path = (folder.path() / "check.toml").string();
  write_file_atomic(path, print_recipe(recipe));
  const int64_t steps = steps_to_train(*entry, recipe);
  int code = train(folder.path(), {"run", path, "--set", fmt::format("train.max_steps={}", steps)});
  if (code == 0) code = train(folder.path(), {"resume", "last", "--set", fmt::format("train.max_steps={}", 2 * steps)});
  show_prints(folder.path());
  if (code != 0) return static_cast<ExitCode>(code);
  log::info("{} is fine: two ranks trained {} steps with it, stopped, and continued from the checkpoint for {} more",
            file, steps, steps);
  return ExitCode::done;
}

}  // namespace runner
