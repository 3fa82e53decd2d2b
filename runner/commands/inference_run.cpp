#include "runner/commands/inference_run.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>
#include <tuple>

#include "runner/base/child_process.hpp"
#include "runner/base/error.hpp"
#include "runner/base/exec.hpp"
#include "runner/base/log.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/adapter_model.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/provenance.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/commands/start_point.hpp"
#include "runner/config/config.hpp"
#include "runner/data/data_meaning.hpp"
#include "runner/devices/devices.hpp"
#include "runner/inference/line_output.hpp"
#include "runner/launch/events.hpp"
#include "runner/launch/stop_signals.hpp"
#include "runner/ledger/git_state.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/run_kinds.hpp"
#include "runner/pretrained/model_files.hpp"
#include "runner/report/table.hpp"

namespace runner {

namespace {

using nlohmann::json;

ModelPlace checkpoint_of(const ModelOptions& options, const std::string& run, const fs::path& run_dir,
                         const Ledger* ledger) {
  auto place = *place_at(chosen_checkpoint(options.choice, run, run_dir, ledger));
  place.name = run;
  return place;
}

/// A place that is no run of the ledger. --step, --checkpoint and --best choose a checkpoint if it is a run's folder.
std::optional<ModelPlace> place_of_path(const ModelOptions& options) {
  const auto option = options.choice.option();
  if (option.empty()) return place_at(options.model);
  const fs::path path = options.model;
  const bool checkpoint = fs::is_regular_file(path / "manifest.json");
  if (!checkpoint && fs::is_regular_file(path / "resolved.toml"))
    return checkpoint_of(options, options.model, fs::absolute(path).lexically_normal(), nullptr);
  const bool folder = fs::is_regular_file(path / "config.json") || is_adapter_folder(path);
  const bool model = fs::is_directory(path) ? folder : is_model_folder(path);
  if (checkpoint || model)
    throw usage_error("{} chooses one of the checkpoints of a run, and {} is {}: name a run, or leave out {}", option,
                      options.model, checkpoint ? "one checkpoint already" : "a model, which has one set of weights",
                      option);
  return std::nullopt;
}

ModelPlace find_place(const ModelOptions& options) {
  std::optional<Error> no_model;  // a folder that is none; a run may have its name
  try {
    if (const auto place = place_of_path(options)) return *place;
  } catch (const Error& error) {
    if (options.model.find('/') != std::string::npos || !fs::is_directory(options.model)) throw;
    no_model.emplace(error);
  }
  const Ledger ledger(ledger_home(), Ledger::Mode::read);
  std::string run;
  try {
    run = run_with_checkpoint(ledger, options.model, options.choice);
  } catch (const Error& error) {
    if (no_model) throw *no_model;
    throw Error(error.code(), fmt::format("{}; {} is not a folder either", error.what(), options.model));
  }
  return checkpoint_of(options, run, ledger.run_dir(run), &ledger);
}

/// The run of a run folder; empty if the ledger has none.
std::string run_of_folder(const Ledger& ledger, const std::string& run_dir) {
  std::error_code ignored;
  for (const auto& row : ledger.runs())
    if (!run_dir.empty() && fs::equivalent(row.folder, run_dir, ignored)) return row.id;
  return "";
}

/// How the data of a run differ from those that it had until its checkpoint, one sentence each, and a message about them. Training data are
/// compared if a part of them validates (data.validation_fraction), because a change moves rows from one part to the other. `of_run`: its
/// record, if there is one.
std::pair<std::vector<std::string>, std::string> changes_of_data(const LoadRequest& load, const json& of_run) {
  auto recipe = load_recipe((fs::path(load.run_dir) / "resolved.toml").string());
  const auto state = Checkpoint(load.checkpoint, /*verify=*/false).state();
  const auto before = state.value("/data/meaning"_json_pointer, json::object());
  if (!recipe.data.validation_fraction) {
    const auto changes = changed_meaning(before, validation_meaning(recipe.data, load.cache_dir));
    return {changes, "the validation data have changed since the run used them: " + join(changes, "; ") +
                         ". The loss cannot be compared with those of the run"};
  }
  keep_trained_tokenizer(recipe.data, load.run_dir);
  auto now = data_meaning(recipe, 0, load.cache_dir);
  now.erase("data.tokenizer");  // the worker refuses another one
  auto changes = changed_meaning(before, now);
  std::string accepted;  // by a resume from an earlier step
  for (const auto& event : of_run.value("events", json::array())) {
    const auto kind = event.value("event", ""), message = event.value("message", "");
    if (kind == "note" && message.starts_with(accepted_changes)) accepted = message.substr(accepted_changes.size());
    if (kind != "resumed") continue;
    if (!accepted.empty() && event.value("step", int64_t{0}) < load.step &&
        std::ranges::find(changes, accepted) == changes.end())
      changes.push_back(accepted);
    accepted.clear();
  }
  return {changes, "the data have changed since the run began to train on them: " + join(changes, "; ") +
                       ". Rows that it trained on may now be validated"};
}

/// The row of an evaluation or prediction in the ledger. It begins when the model is loaded and the data are read, so that mistakes of
/// the command line leave no row.
class InferenceRow {
 public:
  explicit InferenceRow(const InferenceRequest& request)
      : request_(request),
        ledger_(ledger_home(), Ledger::Mode::write),
        parent_(run_of_folder(ledger_, request.load.run_dir)) {}

  void begin() {
    if (!run_.empty()) return;
    NewRun row;
    const json of_parent = record_of_parent();
    row.name = of_parent.value("name", fs::path(request_.load.name).filename().string()) + "-" + request_.verb;
    row.tags = {request_.verb};
    row.run_dir_root = (fs::absolute(ledger_home()) / "runs").string();
    row.recipe_source = of_parent.value("recipe", "");
    row.resolved = of_parent.value("resolved", "");
    row.config = {{request_.verb, json::parse(to_text(request_))}};
    row.origins = json::object();
    row.plan = json::object();
    row.strategy = request_.verb;
    row.argv = own_command_line();
    row.build_id = build_id();
    const auto code = read_code_state(fs::current_path());
    row.git = code.git;
    row.host = to_json(read_facts());
    row.parent = parent_;
    row.parent_kind = link_of(request_.verb);
    run_ = ledger_.begin_run(row);
    ledger_.begin_attempt(run_, request_.verb);
  }
  void result(const json& metrics) {
    begin();
    std::vector<MetricPoint> points;
    for (const auto& [name, value] : metrics.items())
      if (value.is_number() || value.is_null())  // JSON has null for a value that is not a number
        points.push_back({.name = name,
                          .step = request_.load.step,
                          .value = value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>()});
    ledger_.metrics(run_, std::move(points));
    ledger_.event(run_, "result", {{"step", request_.load.step}, {"metrics", metrics}});
    if (!request_.output.empty())
      ledger_.artifact(run_, request_.verb == "embed" ? "embeddings" : "predictions",
                       fs::absolute(request_.output).string(), {{"step", request_.load.step}});
  }
  void heartbeat() {
    if (!run_.empty()) ledger_.heartbeat(run_);
  }
  void finish(const std::string& status, ExitCode code, const std::string& message) {
    if (!run_.empty()) ledger_.finish_run(run_, status, static_cast<int>(code), message);
  }
  const std::string& run() const { return run_; }
  const std::string& parent() const { return parent_; }
  /// The record of the run whose model it reads; an empty object if the ledger has none.
  json record_of_parent() const { return parent_.empty() ? json::object() : ledger_.show(parent_); }
  void note(const std::string& message) { ledger_.event(run_, "note", {{"message", message}}); }

 private:
  const InferenceRequest& request_;
  Ledger ledger_;
  std::string parent_, run_;
};

/// The worker process and its events.
class InferenceWorker {
 public:
  explicit InferenceWorker(const InferenceRequest& request) {
    const auto file = request_file(request);
    std::vector<int> inherited = {pipe_.write.get(), file.get()};
    if (request.input >= 0) inherited.push_back(request.input);
    pid_ = start_child(
        {.program = worker_binary(),
         .arguments = {"--infer", std::to_string(file.get())},
         .environment = {{"RUNNER_EVENT_FD", std::to_string(pipe_.write.get())}, {"OMP_WAIT_POLICY", "passive"}},
         .out = STDOUT_FILENO,
         .log = STDERR_FILENO,
         .inherited = std::move(inherited)});
    pipe_.write.close();
  }
  ~InferenceWorker() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  InferenceWorker(const InferenceWorker&) = delete;
  int fd() const { return pipe_.read.get(); }
  pid_t pid() const { return pid_; }
  void send(int signal) const { ::kill(pid_, signal); }
  /// New events; nothing after the end.
  std::optional<std::vector<json>> read() {
    char buffer[65536];
    const auto count = ::read(fd(), buffer, sizeof buffer);
    if (count == 0) return std::nullopt;
    return reader_.feed({buffer, static_cast<size_t>(std::max<ssize_t>(count, 0))});
  }
  /// "" if it has ended normally.
  std::string wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    if (WIFSIGNALED(status)) return fmt::format("the worker was killed by signal {}", WTERMSIG(status));
    return WEXITSTATUS(status) == 0 ? "" : fmt::format("the worker ended with code {}", WEXITSTATUS(status));
  }

 private:
  ChildPipe pipe_;
  EventReader reader_{0};
  pid_t pid_ = -1;
};

void show_progress(const json& event) {
  if (!::isatty(STDERR_FILENO)) return;
  const int64_t done = event.at("done"), all = event.at("of");
  std::fprintf(stderr, done < all ? "\r%ld of %ld" : "\r\033[K", static_cast<long>(done), static_cast<long>(all));
}

/// Makes the paths of the request absolute. Throws Error(usage) if the user would have to type the input.
void prepare_files(InferenceRequest& request) {
  if (request.output == "-") request.output.clear();
  for (auto* file : {&request.data, &request.output})
    if (!file->empty()) *file = fs::absolute(*file).lexically_normal().string();
  std::vector<std::string*> files = {&request.prompts.file};
  for (auto& file : request.files) files.push_back(&file);
  for (auto* file : files)
    if (*file == "-") {
      if (::isatty(STDIN_FILENO)) throw usage_error("-: nothing is piped into standard input");
      if (request.input < 0) request.input = ::dup(STDIN_FILENO);  // the worker's own is /dev/null
    } else if (!file->empty()) {
      *file = fs::absolute(*file).lexically_normal().string();
    }
}

}  // namespace

void find_model(const ModelOptions& options, InferenceRequest& request) {
  const auto place = find_place(options);
  auto& base = request.load.base;
  if (!base.empty() && (place.of_run() || !is_adapter_folder(place.folder)))
    throw usage_error("--base is for a folder with an adapter (adapter_config.json), and {} is none", options.model);
  if (!base.empty()) base = fs::absolute(base).lexically_normal().string();
  request.load.set(place);
  bool cuda = options.accelerator == "cuda";
  if (options.accelerator == "auto") {
    const Facts facts = read_facts();
    cuda = facts.cuda_module && !facts.devices.empty();
  }
  request.load.accelerator = cuda ? "cuda" : "cpu";
  request.load.cache_dir = data_cache();
  request.load.threads = options.threads.value_or(std::max(1u, std::thread::hardware_concurrency()));
}

void become_worker(const InferenceRequest& request) {
  const auto program = worker_binary();
  const auto file = request_file(request);
  std::vector<std::string> words{program, "--infer", std::to_string(file.get())};
  auto argv = exec_words(words);
  ::setenv("OMP_WAIT_POLICY", "passive", /*overwrite=*/0);
  ::execv(program.c_str(), argv.data());
  throw environment_error("cannot start {}: {}", program, std::strerror(errno));
}

InferenceResult run_inference(const ModelOptions& model, InferenceRequest& request) {
  find_model(model, request);
  prepare_files(request);
  InferenceRow row(request);
  InferenceResult result{.run = "", .parent = row.parent(), .metrics = nullptr};
  std::optional<Error> failure;
  StopSignals signals;
  std::optional<ScratchFolder> scratch;  // this process removes it, because signals kill the worker
  if (std::ranges::find(request.files, "-") != request.files.end())
    request.scratch = scratch.emplace(fs::temp_directory_path()).path().string();
  InferenceWorker worker(request);
  for (bool open = true; open;) {
    pollfd waited[] = {{worker.fd(), POLLIN, 0}, {signals.fd(), POLLIN, 0}};
    ::poll(waited, 2, 1000);
    for (const int signal : signals.take())
      if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) {
        worker.send(SIGKILL);
        failure.emplace(signal == SIGINT ? ExitCode::interrupted : ExitCode::run_failed, "stopped by a signal");
      }
    row.heartbeat();
    if (waited[0].revents == 0) continue;
    const auto events = worker.read();
    open = events.has_value();
    for (const auto& event : events.value_or(std::vector<json>())) {
      const auto kind = event.value("event", "");
      if (kind == "progress") {
        row.begin();
        show_progress(event);
      }
      if (kind == "result") row.result(result.metrics = event.at("metrics"));
      if (kind == "failed" && !failure)
        failure.emplace(static_cast<ExitCode>(event.at("code").get<int>()), event.at("message"));
    }
  }
  const auto pid = worker.pid();
  const auto ended = worker.wait();
  if (!failure && !ended.empty()) failure.emplace(ExitCode::run_failed, ended);
  if (!failure && result.metrics.is_null()) failure.emplace(ExitCode::run_failed, "the worker sent no result");
  result.run = row.run();
  std::string change;  // of the data
  try {
    if (!failure && request.verb == "evaluate" && request.data.empty() && request.load.place().of_run())
      std::tie(result.changed_data, change) = changes_of_data(request.load, row.record_of_parent());
  } catch (const Error& error) {  // the results are there
    log::warning("it is not known whether the data have changed since the run trained on them: {}", error.what());
  }
  if (!failure) {
    if (!result.changed_data.empty()) {
      row.note(change);
      log::warning("{}", change);
    }
    row.finish("finished", ExitCode::done, "");
    return result;
  }
  std::error_code ignored;
  if (!request.output.empty()) fs::remove(unfinished_output(request.output, pid), ignored);  // of a killed worker
  row.finish(failure->code() == ExitCode::interrupted ? "interrupted" : "failed", failure->code(), failure->what());
  throw *failure;
}

ExitCode write_lines_of(const ModelOptions& model, InferenceRequest& request, const std::string& things) {
  if (request.json && request.output.empty())
    throw usage_error("--json prints the summary on stdout, so the {} need --output FILE", things);
  const auto result = run_inference(model, request);
  if (request.json) print_result(request, result);
  log::info("{} {}; recorded as run {}", result.metrics.at("records").get<int64_t>(), things, result.run);
  return ExitCode::done;
}

void print_result(const InferenceRequest& request, const InferenceResult& result) {
  if (request.json) {
    json line{{"schema", 1},
              {"run", result.run},
              {"parent", result.parent.empty() ? json() : json(result.parent)},
              {"verb", request.verb},
              {"model", request.load.name},
              {"metrics", result.metrics}};
    if (request.load.place().of_run()) line["step"] = request.load.step;
    if (!result.changed_data.empty()) line["changed_data"] = result.changed_data;
    if (!request.task.empty()) line["task"] = request.task;
    if (!request.data.empty()) line["data"] = request.data;
    if (!request.output.empty()) line["output"] = request.output;
    print_json(line);
    return;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& [name, value] : result.metrics.items())
    rows.push_back({name, value.is_number_float() ? fmt::format("{:.6g}", value.get<double>()) : value.dump()});
  std::fputs(format_table({{""}, {.title = "", .right = true}}, rows).c_str(), stdout);
}

}  // namespace runner
