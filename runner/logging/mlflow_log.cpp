#include "runner/logging/mlflow_log.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/clock.hpp"
#include "runner/base/environment_text.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/secrets.hpp"
#include "runner/base/text.hpp"
#include "runner/base/xxh3.hpp"

namespace runner {

using nlohmann::json;

namespace {

const char* const run_tag = "runner.run";
const char* const settings_tag = "runner.settings";
const std::string changed_tag = "runner.changed.";
const char* const no_answer = "does not answer in time: it lacks the last points and the end of this run";

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
      params[mlflow_name(section + "." + key)] =
          short_enough(value.is_string() ? value.get<std::string>() : json_text(value));
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
                                             {"mlflow.source.name", shell_words(row.argv)}};
  if (!row.tags.empty()) tags["runner.tags"] = join(row.tags, ", ");
  for (const auto& tag : row.tags) tags[mlflow_name("runner.tag." + tag)] = "true";
  if (!row.group.empty()) tags["runner.group"] = row.group;
  if (!row.notes.empty()) tags["mlflow.note.content"] = row.notes;
  if (row.git.is_object()) tags["mlflow.source.git.commit"] = row.git.value("commit", "");
  if (const char* user = std::getenv("USER")) tags["mlflow.user"] = user;
  for (auto& [name, value] : tags) value = short_enough(value);
  return tags;
}

}  // namespace

MlflowLog::MlflowLog(const Recipe::Logging& settings, Ledger* record)
    : record_(record),
      uri_(without_last_slash(given_or_variable(settings.mlflow_uri, "MLFLOW_TRACKING_URI", "http://127.0.0.1:5000"))),
      experiment_name_(given_or_variable(settings.mlflow_experiment, "MLFLOW_EXPERIMENT_NAME", "Default")),
      api_(uri_) {
  if (!uri_.starts_with("http://") && !uri_.starts_with("https://"))
    throw usage_error("MLFLOW_TRACKING_URI is {}, which is no server: logging.mlflow_uri needs http:// or https://",
                      without_url_passwords(uri_));
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
  {
    std::lock_guard lock(mutex_);
    for (auto& [metric, step] : recorded_) step = std::min(step, attempt.from_step);
  }
  if (thread_.joinable()) return;  // a restart: the same settings, so what is sent stays right
  job_ = {.home = attempt.home,
          .run = attempt.run,
          .name = attempt.row.name,
          .settings = xxh3_hex(attempt.row.resolved),
          .started_ms = milliseconds(wall_seconds()),
          .from_step = attempt.from_step};
  job_.tags = tags_of(attempt, job_.settings);
  job_.params = params_of(attempt.row.config);
  // Points of earlier attempts may have to be sent again.
  const double started = start_of_run(attempt.run);
  const auto names = attempt.ledger.metric_names(attempt.run);
  if (std::ranges::find(names, metric::seconds) != names.end())
    for (const auto& [step, seconds] : attempt.ledger.points(attempt.run, metric::seconds))
      times_[step] = milliseconds(started + seconds);
  BlockedSignals blocked;
  thread_ = std::thread([this] { follow(); });
}

void MlflowLog::points(const PointGroup& group) {
  constexpr size_t most = 20'000;
  std::lock_guard lock(mutex_);
  times_.try_emplace(group.step, milliseconds(wall_seconds()));
  while (times_.size() > most) times_.erase(times_.begin());
  for (const auto& point : group.points) {
    auto& last = recorded_.try_emplace(point.name, point.step).first->second;
    last = std::max(last, point.step);
  }
}

void MlflowLog::tick() {
  json found;
  std::vector<std::string> problems;
  {
    std::lock_guard lock(mutex_);
    found.swap(found_);
    problems.swap(problems_);
  }
  if (!record_) return;
  if (!found.is_null()) record_->annotate(recorded_run_, "mlflow", found);
  for (const auto& problem : problems) record_->event(recorded_run_, "undelivered", {{"message", problem}});
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
  const bool in_time = end.patience.at_most(longest).wait(
      changed_, lock, "the last points to reach MLflow at " + origin_of_url(uri_), [this] { return done_; });
  give_up_ = true;
  lock.unlock();
  if (!in_time) warn_incomplete(no_answer);
  changed_.notify_all();
  api_.stop();
  thread_.join();
  tick();
}

std::string MlflowLog::record_problem(const std::string& what) {
  auto text =
      fmt::format("MLflow at {}{}; `runner export {} --metrics mlflow -o FOLDER` writes the whole run for MLflow",
                  origin_of_url(uri_), what, job_.run);
  std::lock_guard lock(mutex_);
  problems_.push_back(text);
  return text;
}

void MlflowLog::warn_incomplete(const std::string& what) {
  const auto text = record_problem(" " + what);
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

std::optional<MlflowLog::End> MlflowLog::end_asked() {
  std::lock_guard lock(mutex_);
  return end_;
}

bool MlflowLog::ledger_lacks_points() {
  std::lock_guard lock(mutex_);
  return std::ranges::any_of(recorded_, [&](const auto& entry) {
    const auto found = ledger_->read().find(entry.first);
    return found == ledger_->read().end() || found->second < entry.second;
  });
}

void MlflowLog::warn_once(const std::string& problem) {
  if (!troubled_.exchange(true))
    log::warning("MLflow at {}: {}; the training goes on, and the points are sent when it answers", origin_of_url(uri_),
                 problem);
}

void MlflowLog::tag_changed_params(const MlflowRun& found) {
  for (const auto& [name, before] : found.params) {
    const auto now = job_.params.find(name);
    const std::string value = now == job_.params.end() ? "not set" : now->second;
    if (value != before || found.tags.contains(changed_tag + name)) job_.tags[changed_tag + name] = value;
  }
}

void MlflowLog::tag_replaced_points(const MlflowRun& found) {
  std::vector<std::string> replaced;
  for (const auto& [name, last] : found.last) {
    if (last.step > job_.from_step) continue;  // will be trained again
    const auto recorded = ledger_->value(names_.metric_of(name), last.step);
    // Servers store numbers that are not finite in different ways.
    if (recorded && (*recorded == last.value || !std::isfinite(*recorded))) continue;
    replaced.push_back(fmt::format("{} at step {}", name, last.step));
    steps_on_server_[name] = last.step - 1;
    replaced_[name] = last.step;
  }
  if (!replaced.empty()) job_.tags["runner.replaced"] = short_enough(join(replaced, ", "));
}

void MlflowLog::know_steps_on_server(const MlflowRun& run) {
  steps_on_server_.clear();
  for (const auto& [name, last] : run.last) steps_on_server_[name] = last.step;
}

void MlflowLog::continue_run(const MlflowRun& found) {
  const bool same_settings = found.tags.contains(settings_tag) && found.tags.at(settings_tag) == job_.settings;
  const bool later = std::ranges::any_of(found.last, [&](const auto& one) { return one.second.step > job_.from_step; });
  if (later && !same_settings) {
    log::info("MLflow has later steps of this run with other settings, and cannot delete them: a new run begins there");
    api_.update_run(found.id, "KILLED", job_.started_ms);
    job_.tags["runner.replaces"] = found.id;
    return make_run();
  }
  names_.restore(found.tags);
  know_steps_on_server(found);
  tag_changed_params(found);
  tag_replaced_points(found);
  api_.update_run(found.id, "RUNNING", 0);
  api_.log_texts(found.id, "tags", job_.tags);
  // The missing params are those of a request that failed, or of all. MLflow cannot change a param that it has.
  auto missing = job_.params;
  std::erase_if(missing, [&](const auto& param) { return found.params.contains(param.first); });
  api_.log_texts(found.id, "params", missing);
  for (const auto& [name, step] : steps_on_server_) ledger_->skip(names_.metric_of(name), step);
  run_ = found.id;
}

void MlflowLog::make_run() {
  const auto id = api_.create_run(experiment_, job_.name, job_.started_ms, job_.tags);
  api_.log_texts(id, "params", job_.params);
  run_ = id;
}

void MlflowLog::open() {
  if (!ledger_) ledger_ = std::make_unique<NewPoints>(job_.home, job_.run);
  if (experiment_.empty()) experiment_ = api_.experiment(experiment_name_);
  const auto found = api_.find_run(experiment_, run_tag, job_.run);
  found ? continue_run(*found) : make_run();
  const auto url = fmt::format("{}/#/experiments/{}/runs/{}", page_of_url(uri_), experiment_, run_);
  log::info("run in MLflow: {}", url);
  std::lock_guard lock(mutex_);
  found_ = {{"run", run_}, {"experiment", experiment_}, {"url", url}};
}

void MlflowLog::log_at_their_times(const std::vector<MetricPoint>& points) {
  std::vector<MetricPoint> named = points;
  std::vector<int64_t> times;
  for (auto& point : named) {
    point.name = names_.of(point.name);
    const auto replaced = replaced_.find(point.name);
    times.push_back(replaced != replaced_.end() && replaced->second == point.step ? milliseconds(wall_seconds())
                                                                                  : time_of(point.step));
  }
  if (const auto tags = names_.take_new_tags(); !tags.empty()) api_.log_texts(run_, "tags", tags);
  api_.log_metrics(run_, named, times);
}

void MlflowLog::log(const std::vector<MetricPoint>& points) {
  constexpr int bad_request = 400;
  try {
    return log_at_their_times(points);
  } catch (const MlflowFailure& failure) {
    if (failure.status() != bad_request) throw;
  }
  std::map<std::string, std::vector<MetricPoint>> metrics;
  for (const auto& point : points) metrics[point.name].push_back(point);
  for (const auto& [metric, its_points] : metrics) try {
      log_at_their_times(its_points);
    } catch (const MlflowFailure& failure) {
      if (failure.status() != bad_request) throw;
      refused_.insert(metric);
      log::warning("MLflow at {} does not take the metric \"{}\", which is left out there: {}", origin_of_url(uri_),
                   escape_invalid_utf8(metric), failure.what());
    }
}

void MlflowLog::send(std::vector<MetricPoint> points) {
  std::erase_if(points, [&](const MetricPoint& point) {
    const auto last = steps_on_server_.find(names_.of(point.name));
    return refused_.contains(point.name) || (last != steps_on_server_.end() && last->second >= point.step);
  });
  if (points.empty()) return;
  unsent_ = points;
  log(points);
  unsent_.clear();
}

void MlflowLog::send_new() {
  constexpr size_t most = 1000;  // of a request
  if (!unsent_.empty()) {        // the server may have taken some of them before the failure
    know_steps_on_server(api_.run(run_));
    send(std::exchange(unsent_, {}));
  }
  for (auto points = ledger_->next(most); !points.empty(); points = ledger_->next(most)) send(std::move(points));
}

void MlflowLog::finish(const End& end) {
  if (ledger_lacks_points()) warn_incomplete("lacks the last points of this run: the ledger cannot be read");
  api_.update_run(run_, end.status, end.time_ms);
}

void MlflowLog::give_up_for_good(const std::string& why) {
  log::warning("{}", record_problem(fmt::format(": {}; the training continues without MLflow", why)));
  if (run_.empty()) return;
  try {
    api_.update_run(run_, "KILLED", milliseconds(wall_seconds()));
  } catch (const MlflowFailure&) {  // its status stays
  }
}

void MlflowLog::follow() {
  constexpr std::chrono::milliseconds look_every{1000}, longest_pause{30'000};
  auto pause = look_every;
  do {
    const auto end = end_asked();  // before the look: the ledger has all points at the end
    try {
      if (run_.empty()) open();
      send_new();
      if (troubled_.exchange(false)) log::info("MLflow at {} answers again, and has all points", origin_of_url(uri_));
      if (end) finish(*end);
      pause = look_every;
      if (end) break;
    } catch (const Error& error) {  // of the server or of the ledger
      const auto* refusal = dynamic_cast<const MlflowFailure*>(&error);
      if (refusal && !refusal->may_recover()) {
        give_up_for_good(error.what());
        break;
      }
      if (given_up()) break;
      warn_once(error.what());
      if (end) {
        warn_incomplete(no_answer);
        break;
      }
      pause = std::min(2 * pause, longest_pause);
    } catch (const std::exception& error) {
      give_up_for_good(error.what());
      break;
    }
  } while (wait(pause));
  std::lock_guard lock(mutex_);
  done_ = true;
  changed_.notify_all();
}

}  // namespace runner
