// The keys of [logging] and [health].
#include <algorithm>
#include <set>

#include "runner/base/text.hpp"
#include "runner/config/key_adder.hpp"

// The rows of the tables are wrapped by hand.
// clang-format off

namespace runner::keys {

using nlohmann::json;

namespace {

/// The mistake in a list that may have each of the `known` names once.
std::optional<std::string> check_names(const std::string& key, const json& names, const std::vector<std::string>& known) {
  const auto list = join({known.begin(), known.end() - 1}, ", ") + " and " + known.back();
  std::set<std::string> seen;
  if (names.empty()) return fmt::format("`{}` is empty: it can have {}", key, list);
  for (const std::string name : names) {
    if (std::ranges::find(known, name) == known.end()) {
      const auto near = nearest(name, known);
      return fmt::format("`{}` has no \"{}\": it can have {}{}", key, name, list,
                         near ? "; did you mean \"" + *near + "\"?" : "");
    }
    if (!seen.insert(name).second) return fmt::format("`{}` has \"{}\" twice", key, name);
  }
  return std::nullopt;
}

std::optional<std::string> known_loggers(json& names) {
  return names.empty() ? std::nullopt : check_names("loggers", names, {"csv", "tensorboard", "mlflow", "wandb"});
}

/// A URL with a scheme of HTTP, or one that a variable begins. Passwords are in variables.
std::optional<std::string> http_url(const std::string& key, const std::string& password, json& value) {
  const auto url = value.get<std::string>();
  const bool http = url.starts_with("http://") || url.starts_with("https://");
  if (!http && !url.starts_with("${env:"))
    return fmt::format("`{}` cannot be \"{}\": it begins with http:// or https://{}", key, url,
                       key == "mlflow_uri" ? "; a folder is written after the run by `runner export RUN --metrics mlflow -o DIR`" : "");
  const auto host = url.find("://") + 3, end = url.find_first_of("/?#", host), at = url.find('@', host);
  if (http && at != std::string::npos && at < end)
    return fmt::format("`{}` has a user name before \"@\", and records keep the recipe: {}", key, password);
  return std::nullopt;
}

std::optional<std::string> tracking_uri(json& value) {
  return http_url("mlflow_uri", "set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN, in the "
                  "environment", value);
}

std::optional<std::string> webhook_url(json& value) {
  return http_url("webhook", "put the URL into a variable, and write webhook = \"${env:NAME}\"", value);
}

std::optional<std::string> known_moments(json& names) {
  if (auto problem = check_names("on", names, {"end", "failure", "alert", "trial"})) return problem;
  if (names == json{"trial"}) return "`on` has only \"trial\": add what the trials send: end, failure or alert";
  return std::nullopt;
}

std::optional<std::string> one_place_each(json& targets) {
  for (const auto& target : targets)
    if (target.contains("command") == target.contains("webhook"))
      return "each table in `notify` has a command or a webhook, and not both";
  return std::nullopt;
}

std::optional<std::string> system_interval(json& value) {
  constexpr double least = 0.1;
  const auto seconds = value.get<double>();
  if (seconds == 0 || seconds >= least) return std::nullopt;
  return fmt::format("`system_interval_s` must be 0 (no readings) or at least {}, not {}", least, value_text(value));
}

void add_notify(Adder<Recipe::Logging>& add) {
  using Notify = Recipe::Logging::Notify;
  OptionTable<Notify> target;
  target.add({.name = "on", .type = T::texts, .fits = known_moments}, &Notify::on)
      .add({.name = "command", .type = T::text}, &Notify::command)
      .add({.name = "webhook", .type = T::text, .fits = webhook_url}, &Notify::webhook);
  add({.name = "notify", .type = T::tables,
       .help = "Commands and webhooks that get messages about the run: { on, command } or { on, webhook }. on: end (of any kind), "
               "failure, alert (see [health]; also a restart); default: these three. A sweep sends one message at its end; with trial in on, "
               "each of its trials sends messages, too. command: a line for /bin/sh that reads one line of JSON. webhook: a "
               "URL that gets the JSON by POST; Slack, Mattermost, Teams and Discord show it. Write a secret as ${env:NAME}: its "
               "value is in no record.",
       .wanted = "a table of on and command, or of on and webhook, or a list of them", .fits = one_place_each},
      &Recipe::Logging::notify, target, {.secret = true});
}

}  // namespace

void add_logging(std::vector<Key>& keys) {
  Adder add(keys, "logging", &Recipe::logging);
  using L = Recipe::Logging;
  add({.name = "loggers", .type = T::texts,
       .help = "Metrics for other programs, in addition to the ledger. csv: metrics.csv in the run's folder. tensorboard: event files "
               "there. mlflow: a server of MLflow. wandb: an offline run of Weights & Biases in the run's folder, for `wandb sync`.",
       .wanted = "a list of csv, tensorboard, mlflow and wandb", .fits = known_loggers}, &L::loggers);
  add({.name = "mlflow_uri", .type = T::text,
       .help = "URL of the MLflow server. Default: the variable MLFLOW_TRACKING_URI, or http://127.0.0.1:5000.",
       .fits = tracking_uri}, &L::mlflow_uri);
  add({.name = "mlflow_experiment", .type = T::text,
       .help = "Experiment of MLflow; it is made if it does not exist. Default: the variable MLFLOW_EXPERIMENT_NAME, or Default."},
      &L::mlflow_experiment);
  add({.name = "wandb_project", .type = T::text,
       .help = "Project of Weights & Biases. Default: the variable WANDB_PROJECT, or runner."}, &L::wandb_project);
  add({.name = "wandb_entity", .type = T::text,
       .help = "User or team of Weights & Biases. Default: the variable WANDB_ENTITY, or the user of `wandb sync`."},
      &L::wandb_entity);
  add_notify(add);
  add({.name = "system_interval_s", .type = T::number,
       .help = "Seconds between readings of this machine, which `runner show` sums up: CPU, memory, disk, network and GPUs. The first ones "
               "follow each other faster. 0: none.", .minimum = 0, .maximum = 3600, .fits = system_interval},
      &L::system_interval_s, {.quiet = true});
}

void add_health(std::vector<Key>& keys) {
  Adder add(keys, "health", &Recipe::health);
  using H = Recipe::Health;
  add({.name = "loss_spike", .type = T::number,
       .help = "A loss that is above the median of earlier steps by this many robust standard deviations, and by a tenth, is recorded "
               "as loss_spike, with the samples of the step. 0: never.", .minimum = 0}, &H::loss_spike, {.quiet = true});
  add({.name = "loss_spike_window", .type = T::integer,
       .help = "The earlier steps that loss_spike compares with.", .minimum = 8, .maximum = 10000}, &H::loss_spike_window,
      {.quiet = true});
  add({.name = "stall", .type = T::number,
       .help = "A step that takes this many times the median of earlier steps, and at least stall_after, is recorded as stall, with "
               "its samples. 0: never.", .minimum = 0}, &H::stall, {.quiet = true});
  add({.name = "stall_after", .type = T::duration, .help = "The shortest stall."}, &H::stall_after, {.quiet = true});
}

}  // namespace runner::keys
