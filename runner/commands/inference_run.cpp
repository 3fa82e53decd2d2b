#include "runner/commands/inference_run.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <optional>

#include "runner/base/child_process.hpp"
#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/devices/devices.hpp"
#include "runner/inference/line_output.hpp"
#include "runner/launch/events.hpp"
#include "runner/launch/stop_signals.hpp"
#include "runner/ledger/git_state.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/ledger/run_kinds.hpp"
#include "runner/report/table.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// The run of a run folder; empty if the ledger has none.
std::string run_of_folder(const Ledger& ledger, const std::string& run_dir) {
  std::error_code ignored;
  for (const auto& row : ledger.runs())
    if (!run_dir.empty() && fs::equivalent(row.folder, run_dir, ignored)) return row.id;
  return "";
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
    const json of_parent = parent_.empty() ? json::object() : ledger_.show(parent_);
    row.name = of_parent.value("name", fs::path(request_.load.name).filename().string()) + "-" + request_.verb;
    row.tags = {request_.verb};
    row.run_dir_root = (fs::absolute(ledger_home()) / "runs").string();
    row.recipe_source = of_parent.value("recipe", "");
    row.resolved = of_parent.value("resolved", "");
    row.config = {{request_.verb, json::parse(to_text(request_))}};
    row.origins = json::object();
    row.plan = json::object();
    row.strategy = request_.verb;
    auto words = read_file("/proc/self/cmdline");
    if (!words.empty() && words.back() == '\0') words.pop_back();
    row.argv = split(words, '\0');
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
  if (!failure) {
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
