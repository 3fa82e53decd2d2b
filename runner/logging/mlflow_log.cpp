#include "runner/logging/mlflow_log.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/clock.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"

namespace runner {

using nlohmann::json;

namespace {

const char* const run_tag = "runner.run";
const char* const settings_tag = "runner.settings";

std::string given_or(const std::optional<std::string>& given, const char* variable, const char* otherwise) {
  const char* found = std::getenv(variable);
  return given ? *given : found && *found ? found : otherwise;
}

std::string without_last_slash(std::string uri) {
  while (uri.ends_with('/')) uri.pop_back();
  return uri;
}

int64_t milliseconds(double seconds) { return static_cast<int64_t>(seconds * 1000); }

/// The text, or its beginning if MLflow would refuse it: old servers allow 500 bytes.
std::string short_enough(const std::string& text) {
  constexpr size_t most = 500;
  return text.size() <= most ? text : text.substr(0, most - 3) + "...";
}

/// {"optimizer.lr": "0.001"} of all keys of the recipe.
std::map<std::string, std::string> params_of(const json& config) {
  std::map<std::string, std::string> params;
  for (const auto& [section, keys] : config.items())
    for (const auto& [key, value] : keys.items())
      params[mlflow_name(section + "." + key)] = short_enough(
          value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, json::error_handler_t::replace));
  return params;
}

std::map<std::string, std::string> tags_of(const AttemptStart& attempt, const std::string& settings) {
  const auto& row = attempt.row;
  std::map<std::string, std::string> tags = {{run_tag, attempt.run},
                                             {settings_tag, settings},
                                             {"runner.folder", attempt.folder.string()},
                                             {"runner.strategy", row.strategy},
                                             {"runner.ranks", std::to_string(row.world_size)},
                                             {"mlflow.source.type", "LOCAL"},
                                             {"mlflow.source.name", join(row.argv, " ")}};
  if (!row.tags.empty()) tags["runner.tags"] = join(row.tags, ", ");
  if (!row.notes.empty()) tags["mlflow.note.content"] = row.notes;
  if (row.git.is_object()) tags["mlflow.source.git.commit"] = row.git.value("commit", "");
  if (const char* user = std::getenv("USER")) tags["mlflow.user"] = user;
  for (auto& [name, value] : tags) value = short_enough(value);
  return tags;
}

}  // namespace

MlflowLog::MlflowLog(const Recipe::Logging& settings, Ledger* record)
    : record_(record),
      uri_(without_last_slash(given_or(settings.mlflow_uri, "MLFLOW_TRACKING_URI", "http://127.0.0.1:5000"))),
      experiment_name_(given_or(settings.mlflow_experiment, "MLFLOW_EXPERIMENT_NAME", "Default")),
      api_(uri_) {
  if (!uri_.starts_with("http://") && !uri_.starts_with("https://"))
    throw usage_error("MLFLOW_TRACKING_URI is {}, which is no server: logging.mlflow_uri needs http:// or https://",
                      uri_);
}

MlflowLog::~MlflowLog() {
  {
    std::lock_guard lock(mutex_);
    give_up_ = true;
  }
  changed_.notify_all();
  api_.stop();
  if (thread_.joinable()) thread_.join();
}

std::string MlflowLog::place() const {
  return fmt::format("MLflow at {}, experiment {}", origin_of_url(uri_), experiment_name_);
}

void MlflowLog::begin(const AttemptStart& attempt) {
  recorded_run_ = attempt.run;
  if (thread_.joinable()) return;  // a restart: the same settings, so what is sent stays right
  job_ = {.home = attempt.home,
          .run = attempt.run,
          .name = attempt.row.name,
          .settings = xxh3_hex(attempt.row.resolved),
          .started_ms = milliseconds(wall_seconds()),
          .from_step = attempt.from_step};
  job_.tags = tags_of(attempt, job_.settings);
  job_.params = params_of(attempt.row.config);
  BlockedSignals blocked;
  thread_ = std::thread([this] { follow(); });
}

void MlflowLog::points(const PointGroup& group) {
  constexpr size_t most = 20'000;
  std::lock_guard lock(mutex_);
  times_.try_emplace(group.step, milliseconds(wall_seconds()));
  if (times_.size() > most) times_.erase(times_.begin());
}

void MlflowLog::tick() {
  json found;
  {
    std::lock_guard lock(mutex_);
    found.swap(found_);
  }
  if (record_ && !found.is_null()) record_->annotate(recorded_run_, "mlflow", found);
}

int64_t MlflowLog::time_of(int64_t step) {
  std::lock_guard lock(mutex_);
  const auto found = times_.find(step);
  return found != times_.end() ? found->second : job_.started_ms;
}

void MlflowLog::end(const RunEnd& end) {
  constexpr std::chrono::seconds longest{10};
  const auto& status = end.outcome.status;
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  end_ = {.status = status == "finished" ? "FINISHED"
                    : status == "failed" ? "FAILED"
                                         : "KILLED",
          .time_ms = milliseconds(wall_seconds())};
  changed_.notify_all();
  const bool in_time = changed_.wait_for(lock, longest, [this] { return done_; });
  give_up_ = true;
  lock.unlock();
  if (!in_time) tell_lack();
  changed_.notify_all();
  api_.stop();
  thread_.join();
  tick();
}

void MlflowLog::tell_lack() {
  const auto text = fmt::format(
      "MLflow at {} does not answer in time: it lacks the last points and the end of this run", origin_of_url(uri_));
  troubled_.exchange(true) ? log::info("{}", text) : log::warning("{}", text);
}

bool MlflowLog::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return give_up_ || end_; });
  return !give_up_;
}

bool MlflowLog::given_up() {
  std::lock_guard lock(mutex_);
  return give_up_;
}

void MlflowLog::tell_trouble(const std::string& problem) {
  if (!troubled_.exchange(true))
    log::warning("MLflow at {}: {}; the training goes on, and the points are sent when it answers", origin_of_url(uri_),
                 problem);
}

void MlflowLog::take_up(MlflowRun found) {
  const auto later =
      std::ranges::count_if(found.last_steps, [&](const auto& one) { return one.second > job_.from_step; });
  if (later > 0 && found.tags[settings_tag] != job_.settings) {
    log::info("MLflow has later steps of this run with other settings, and cannot delete them: a new run begins there");
    api_.update_run(found.id, "KILLED", job_.started_ms);
    job_.tags["runner.replaces"] = found.id;
    return make_run();
  }
  api_.update_run(found.id, "RUNNING", 0);
  api_.set_tags(found.id, job_.tags);
  // Those of a request that failed, or of all. MLflow cannot change a param that it has.
  auto missing = job_.params;
  std::erase_if(missing, [&](const auto& param) { return found.params.contains(param.first); });
  api_.log_params(found.id, missing);
  for (const auto& [name, step] : found.last_steps) ledger_->skip(name, step);
  there_ = std::move(found.last_steps);
  run_ = found.id;
}

void MlflowLog::make_run() {
  const auto id = api_.create_run(experiment_, job_.name, job_.started_ms, job_.tags);
  api_.log_params(id, job_.params);
  run_ = id;
}

void MlflowLog::open() {
  if (!ledger_) ledger_ = std::make_unique<NewPoints>(job_.home, job_.run);
  if (experiment_.empty()) experiment_ = api_.experiment(experiment_name_);
  auto found = api_.find_run(experiment_, run_tag, job_.run);
  found ? take_up(std::move(*found)) : make_run();
  const auto url = fmt::format("{}/#/experiments/{}/runs/{}", origin_of_url(uri_), experiment_, run_);
  log::info("run in MLflow: {}", url);
  std::lock_guard lock(mutex_);
  found_ = {{"run", run_}, {"experiment", experiment_}, {"url", url}};
}

void MlflowLog::send(std::vector<MetricPoint> points) {
  std::erase_if(points, [&](const MetricPoint& point) {
    const auto last = there_.find(mlflow_name(point.name));
    return last != there_.end() && last->second >= point.step;
  });
  if (points.empty()) return;
  unsent_ = std::move(points);
  std::vector<int64_t> times;
  for (const auto& point : unsent_) times.push_back(time_of(point.step));
  api_.log_metrics(run_, unsent_, times);
  unsent_.clear();
}

bool MlflowLog::send_new() {
  constexpr size_t most = 1000;  // of a request
  std::optional<End> end;
  {
    std::lock_guard lock(mutex_);
    end = end_;  // before the look: the ledger has all points when end_ is set
  }
  if (!unsent_.empty()) {  // the server may have taken some of them before the failure
    there_ = api_.run(run_).last_steps;
    send(std::exchange(unsent_, {}));
  }
  for (auto points = ledger_->next(most); !points.empty(); points = ledger_->next(most)) send(std::move(points));
  if (!end) return true;
  api_.update_run(run_, end->status, end->time_ms);
  return false;
}

void MlflowLog::follow() {
  constexpr std::chrono::milliseconds look_every{1000}, longest_pause{30'000};
  auto pause = look_every;
  bool ending = false;
  while (true) {
    try {
      if (run_.empty()) open();
      const bool more = send_new();
      if (troubled_.exchange(false)) log::info("MLflow at {} answers again, and has all points", origin_of_url(uri_));
      pause = look_every;
      if (!more) break;
    } catch (const Error& error) {  // of the server or of the ledger
      const auto* refusal = dynamic_cast<const MlflowFailure*>(&error);
      if (refusal && !refusal->may_recover()) {
        log::warning("MLflow at {}: {}; the training continues without MLflow", origin_of_url(uri_), error.what());
        break;
      }
      if (given_up()) break;
      tell_trouble(error.what());
      if (ending) {
        tell_lack();
        break;
      }
      pause = std::min(2 * pause, longest_pause);
    } catch (const std::exception& error) {
      log::warning("{}; the training continues without MLflow", error.what());
      break;
    }
    if (!wait(pause)) break;
    std::lock_guard lock(mutex_);
    ending = end_.has_value();
  }
  std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

}  // namespace runner
