#include "runner/logging/mlflow_api.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "runner/base/foreign_json.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"
#include "runner/base/utf8.hpp"
#include "runner/base/xxh3.hpp"

namespace runner {

using nlohmann::json;

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

/// For a query: all bytes but letters, digits and -._~ as %XX (RFC 3986).
std::string percent_encoded(const std::string& text) {
  std::string out;
  for (unsigned char c : text)
    if (std::isalnum(c) || c == '-' || c == '.' || c == '_' || c == '~')
      out += static_cast<char>(c);
    else
      out += fmt::format("%{:02X}", c);
  return out;
}

json key_values(const std::map<std::string, std::string>& values) {
  auto list = json::array();
  for (const auto& [key, value] : values) list.push_back({{"key", key}, {"value", value}});
  return list;
}

/// 64-bit integers, and numbers that are not finite, are texts in protobuf's JSON.
double number_of(const json& value) {
  return value.is_string() ? std::strtod(value.get<std::string>().c_str(), nullptr) : value.get<double>();
}

MlflowRun read_mlflow_run(const json& run) {
  MlflowRun found{.id = run.at("info").at("run_id")};
  const json data = run.value("data", json::object());
  for (const auto& tag : data.value("tags", json::array())) found.tags[tag.at("key")] = tag.value("value", "");
  for (const auto& param : data.value("params", json::array()))
    found.params[param.at("key")] = param.value("value", "");
  for (const auto& metric : data.value("metrics", json::array()))
    found.last[metric.at("key")] = {.step = static_cast<int64_t>(number_of(metric.value("step", json(0)))),
                                    .value = number_of(metric.value("value", json(0)))};
  return found;
}

/// Calls `send` with parts of a list that MLflow accepts in one request.
template <typename Send>
void in_parts(const json& list, Send&& send) {
  constexpr size_t most = 100;
  for (size_t begin = 0; begin < list.size(); begin += most)
    send(json(list.begin() + static_cast<std::ptrdiff_t>(begin),
              list.begin() + static_cast<std::ptrdiff_t>(std::min(begin + most, list.size()))));
}

}  // namespace

MlflowApi::MlflowApi(std::string uri)
    : base_(std::move(uri) + "/api/2.0/mlflow/"),
      user_(variable("MLFLOW_TRACKING_USERNAME")),
      password_(variable("MLFLOW_TRACKING_PASSWORD")) {
  if (const auto token = variable("MLFLOW_TRACKING_TOKEN"); !token.empty())
    headers_.push_back("Authorization: Bearer " + token);
}

json MlflowApi::call(const std::string& method, const std::string& what, const json& body) {
  const auto reply = client_.send({.method = method,
                                   .url = base_ + what,
                                   .body = body.is_null() ? "" : json_text(body),
                                   .headers = headers_,
                                   .user = user_,
                                   .password = password_});
  if (reply.status == 0) throw MlflowFailure(reply.problem, 0, /*may_recover=*/true);
  const json answer = foreign_json(reply.body);
  if (reply.ok() && answer.is_object()) return answer;
  const std::string operation = what.substr(0, what.find('?'));
  if (reply.ok())
    throw MlflowFailure(operation + " is not answered with JSON: this is no MLflow server", reply.status, false);
  const std::string message = answer.is_object() ? first_line(answer.value("message", "")) : "";
  throw MlflowFailure(fmt::format("{}: status {}{}", operation, reply.status, message.empty() ? "" : ": " + message),
                      reply.status, reply.may_recover());
}

std::string MlflowApi::experiment(const std::string& name) {
  const auto look = [&] { return call("GET", "experiments/get-by-name?experiment_name=" + percent_encoded(name), {}); };
  json found;
  try {
    found = look();
  } catch (const MlflowFailure& failure) {
    constexpr int not_found = 404;
    if (failure.status() != not_found) throw;
    try {
      return call("POST", "experiments/create", {{"name", name}}).at("experiment_id");
    } catch (const MlflowFailure& refused) {
      if (refused.may_recover()) throw;
      found = look();  // another process has made it in the meantime
    }
  }
  const json& experiment = found.at("experiment");
  if (experiment.value("lifecycle_stage", "active") != "active")
    throw MlflowFailure(
        fmt::format("the experiment \"{}\" was deleted: restore it, or set logging.mlflow_experiment", name), 0, false);
  return experiment.at("experiment_id");
}

std::optional<MlflowRun> MlflowApi::find_run(const std::string& experiment, const std::string& tag,
                                             const std::string& value) {
  const json answer = call("POST", "runs/search",
                           {{"experiment_ids", {experiment}},
                            {"filter", fmt::format("tags.`{}` = '{}'", tag, value)},
                            {"order_by", {"attributes.start_time DESC"}},
                            {"max_results", 1}});
  const json runs = answer.value("runs", json::array());
  return runs.empty() ? std::nullopt : std::optional(read_mlflow_run(runs[0]));
}

MlflowRun MlflowApi::run(const std::string& id) {
  return read_mlflow_run(call("GET", "runs/get?run_id=" + percent_encoded(id), {}).at("run"));
}

std::string MlflowApi::create_run(const std::string& experiment, const std::string& name, int64_t start_ms,
                                  const std::map<std::string, std::string>& tags) {
  std::string id;
  in_parts(key_values(tags), [&](const json& part) {
    if (id.empty())
      id = call("POST", "runs/create",
                {{"experiment_id", experiment}, {"run_name", name}, {"start_time", start_ms}, {"tags", part}})
               .at("run")
               .at("info")
               .at("run_id");
    else
      call("POST", "runs/log-batch", {{"run_id", id}, {"tags", part}});
  });
  return id;
}

void MlflowApi::update_run(const std::string& id, const std::string& status, int64_t end_ms) {
  json body = {{"run_id", id}, {"status", status}};
  if (end_ms > 0) body["end_time"] = end_ms;
  call("POST", "runs/update", body);
}

void MlflowApi::log_texts(const std::string& id, const char* kind, const std::map<std::string, std::string>& texts) {
  in_parts(key_values(texts), [&](const json& part) {
    call("POST", "runs/log-batch", {{"run_id", id}, {kind, part}});
  });
}

void MlflowApi::log_metrics(const std::string& id, const std::vector<MetricPoint>& points,
                            const std::vector<int64_t>& times) {
  auto metrics = json::array();
  for (size_t i = 0; i < points.size(); ++i)
    metrics.push_back({{"key", points[i].name},
                       {"value", json_number(points[i].value)},
                       {"timestamp", times[i]},
                       {"step", points[i].step}});
  call("POST", "runs/log-batch", {{"run_id", id}, {"metrics", metrics}});
}

namespace {

constexpr size_t longest = 230;  // MLflow allows 250, also for the tag that has the name
const std::string tag_prefix = "runner.metric.";

/// At most `size` bytes, without a part of a character at the end.
std::string cut(std::string name, size_t size) {
  if (name.size() <= size) return name;
  while (size > 0 && unicode::continues(name[size])) --size;
  name.resize(size);
  return name;
}

/// Removes parts at the end that a cut has made "", "." or "..".
std::string without_empty_end(std::string name) {
  while (name.ends_with('/') || name.ends_with("/.") || name.ends_with("/..")) name.resize(name.rfind('/'));
  return name;
}

}  // namespace

std::string mlflow_name(std::string name) {
  for (char& c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && !std::isalnum(byte) && std::string_view("_-. /").find(c) == std::string_view::npos) c = '_';
  }
  // MLflow compares with posixpath.normpath(), and refuses what begins with "..".
  auto parts = split(name, '/');
  for (auto& part : parts)
    if (part.empty() || part == "." || part == "..") part = "_";
  if (parts.front().starts_with("..")) parts.front()[0] = '_';
  return without_empty_end(cut(join(parts, "/"), longest));
}

void MlflowNames::restore(const std::map<std::string, std::string>& tags) {
  for (const auto& [tag, metric] : tags)
    if (tag.starts_with(tag_prefix)) {
      names_[metric] = tag.substr(tag_prefix.size());
      metrics_[names_[metric]] = metric;
    }
}

const std::string& MlflowNames::of(const std::string& metric) {
  const auto [found, is_new] = names_.try_emplace(metric);
  if (!is_new) return found->second;
  std::string name = mlflow_name(metric);
  if (metrics_.contains(name)) {
    constexpr size_t digits = 8;
    name = without_empty_end(cut(name, longest - digits - 1)) + "_" + xxh3_hex(metric).substr(0, digits);
  }
  if (name != metric) new_tags_[tag_prefix + name] = metric;
  metrics_[name] = metric;
  return found->second = name;
}

std::map<std::string, std::string> MlflowNames::take_new_tags() { return std::exchange(new_tags_, {}); }

std::string MlflowNames::metric_of(const std::string& name) const {
  const auto found = metrics_.find(name);
  return found == metrics_.end() ? name : found->second;
}

}  // namespace runner
