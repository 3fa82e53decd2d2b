#include "runner/report/run_differences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "runner/base/capture.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/quoting.hpp"
#include "runner/base/scratch_folder.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

using nlohmann::json;

void flatten(const std::string& prefix, const json& value, std::vector<std::pair<std::string, json>>& out) {
  if (!value.is_object() || value.empty()) return out.emplace_back(prefix, value), void();
  for (const auto& [key, inner] : value.items()) flatten(prefix.empty() ? key : prefix + "." + key, inner, out);
}

json value_or_null(const json& object, const char* key) {
  return object.is_object() && object.contains(key) ? object.at(key) : json();
}

/// The compared part of the state of the code. A patch counts by its digest.
json code_of(const json& run) {
  const json git = run.at("git");
  json code = {{"build", value_or_null(run, "build_id")},
               {"commit", value_or_null(git, "commit")},
               {"branch", value_or_null(git, "branch")},
               {"uncommitted changes", value_or_null(value_or_null(git, "patch"), "digest")},
               {"untracked files", value_or_null(git, "untracked")}};
  // Records of earlier programs have a hash only.
  if (!git.is_object() || !git.contains("patch")) code["uncommitted changes"] = value_or_null(git, "diff_hash");
  if (code["untracked files"] == json::array()) code["untracked files"] = nullptr;
  return code;
}

json environment_of(const json& run) {
  json environment = hardware_of(run.at("host"));
  for (const char* key : {"hostname", "kernel", "memory_bytes"}) environment[key] = value_or_null(run.at("host"), key);
  environment["ranks"] = run.at("world_size");
  const auto argv = value_or_null(run, "argv");
  environment["command"] = argv.is_array() ? json(shell_words(argv)) : argv;
  environment["working directory"] = value_or_null(run, "working_directory");
  environment["user"] = value_or_null(run, "user");
  if (const json variables = value_or_null(run, "environment"); variables.is_object())
    for (const auto& [name, value] : variables.items()) environment[name] = value;
  return environment;
}

double seconds_of(const json& run) {
  double seconds = 0;
  for (const auto& attempt : run.at("attempts")) {
    const json& ended = attempt.at("ended").is_null() ? attempt.at("heartbeat") : attempt.at("ended");
    seconds += std::max(0.0, ended.get<double>() - attempt.at("started").get<double>());
  }
  return seconds;
}

/// Metrics that measure the machine, not the training.
bool is_measurement(const std::string& metric) {
  static const std::set<std::string> all = {metric::tokens_per_s,    metric::samples_per_s, metric::step_seconds,
                                            metric::data_wait_share, metric::memory_bytes,  metric::seconds};
  return all.contains(metric);
}

void add_metrics(const json& run, Results wanted, json& results) {
  const auto checkpoint = value_or_null(run.at("config"), "checkpoint");
  const auto monitor = value_or_null(checkpoint, "monitor");
  for (const auto& [name, values] : run.at("metrics").items()) {
    if (wanted == Results::of_training && is_measurement(name)) continue;
    results["last " + name] = values.at("last");
    if (monitor == name || name.ends_with("loss"))
      results["best " + name] = values.at(higher_is_better(name) ? "max" : "min");
  }
}

json results_of(const json& run, Results wanted) {
  json results = {{"status", run.at("status")}, {"steps", run.at("steps")}};
  if (const auto why = value_or_null(run, "why"); why.is_string() && why != "") results["why"] = why;
  add_metrics(run, wanted, results);
  if (wanted == Results::all && run.at("started").is_number()) results["took seconds"] = seconds_of(run);
  for (const char* kind : {"predicted", "measured"}) {
    const auto values = value_or_null(run, kind);
    if (!values.is_object()) continue;
    static const std::vector<std::string> told_elsewhere = {"schema", "status", "steps", "final_loss", "metric_value"};
    for (const auto& [name, value] : values.items())
      if (wanted == Results::of_training && (kind == std::string_view("measured") || !name.ends_with("bytes_per_rank")))
        continue;
      else if (value.is_number() && std::ranges::find(told_elsewhere, name) == told_elsewhere.end())
        results[std::string(kind) + " " + name] = value;
  }
  return results;
}

/// The parts of a patch by the first line of each, "diff --git a/x b/x"; in "" what is before the first.
std::map<std::string, std::string> by_file(const std::string& patch) {
  std::map<std::string, std::string> parts;
  std::string head;
  size_t begin = 0;
  while (begin < patch.size()) {
    const size_t end = std::min(patch.find('\n', begin), patch.size() - 1) + 1;
    const std::string line = patch.substr(begin, end - begin);
    if (line.starts_with("diff --git ")) head = trim(line);
    if (line.starts_with("# cut")) head = "";
    // The digests of the blobs say nothing that the changes do not say.
    if (!line.starts_with("index ")) parts[head] += line;
    begin = end;
  }
  return parts;
}

}  // namespace

std::vector<std::pair<std::string, json>> flattened(const json& object) {
  std::vector<std::pair<std::string, json>> out;
  if (object.is_object() && !object.empty()) flatten("", object, out);
  return out;
}

DifferenceList different_keys(const json& a, const json& b) {
  std::map<std::string, std::pair<json, json>> values;
  for (auto& [key, value] : flattened(a)) values[key].first = value;
  for (auto& [key, value] : flattened(b)) values[key].second = value;
  DifferenceList list;
  for (auto& [key, both] : values)
    if (both.first != both.second) list.push_back({key, both.first, both.second});
  return list;
}

DifferenceList code_differences(const json& a, const json& b) { return different_keys(code_of(a), code_of(b)); }

DifferenceList environment_differences(const json& a, const json& b) {
  return different_keys(environment_of(a), environment_of(b));
}

DifferenceList result_differences(const json& a, const json& b, Results results) {
  return different_keys(results_of(a, results), results_of(b, results));
}

std::vector<AttemptSettings> changed_settings(const json& run) {
  std::vector<AttemptSettings> changed;
  for (const auto& attempt : run.at("attempts")) {
    if (!attempt.at("config").is_object()) continue;
    auto differences = different_keys(attempt.at("config"), run.at("config"));
    if (!differences.empty()) changed.push_back({attempt.at("number").dump(), std::move(differences)});
  }
  return changed;
}

std::string to_text(const AttemptSettings& settings) {
  std::vector<std::string> keys;
  for (const auto& entry : settings.differences) keys.push_back(entry.key);
  return fmt::format("attempt {} had other values of {}", settings.number, join(keys, ", "));
}

json hardware_of(const json& host) {
  json hardware = json::object();
  for (const char* key : {"cpu", "cores", "avx2", "avx512", "onednn_isa"}) hardware[key] = value_or_null(host, key);
  for (const char* list : {"cuda", "devices"}) {
    const auto devices = value_or_null(host, list);
    hardware[list] = devices.is_array() ? json::array() : json();
    if (devices.is_array())
      for (const auto& device : devices) {
        json kept = json::object();
        for (const char* key : {"name", "memory_bytes", "major", "minor"}) kept[key] = value_or_null(device, key);
        hardware[list].push_back(std::move(kept));
      }
  }
  if (hardware["devices"].is_null()) hardware.erase("devices");  // of a plug-in only
  return hardware;
}

std::string unified_diff(const std::string& a, const std::string& b, const std::string& name_a,
                         const std::string& name_b) {
  if (a == b) return "";
  const ScratchFolder folder(fs::temp_directory_path());
  write_file_atomic(folder.path() / "a", a);
  write_file_atomic(folder.path() / "b", b);
  const auto answer = capture({"diff", "-u", "--text", "--label", name_a, "--label", name_b,
                               (folder.path() / "a").string(), (folder.path() / "b").string()},
                              {.timeout = std::chrono::seconds(20), .environment = {"LC_ALL=C"}});
  constexpr int differ = 1;
  if (answer.status == differ) return answer.output;
  return fmt::format("{} and {} differ, and the program `diff` could not show how\n", name_a, name_b);
}

std::string patch_difference(const std::string& a, const std::string& b, const std::string& name_a,
                             const std::string& name_b) {
  const auto of_a = by_file(a), of_b = by_file(b);
  std::map<std::string, std::pair<std::string, std::string>> files;
  for (const auto& [head, text] : of_a) files[head].first = text;
  for (const auto& [head, text] : of_b) files[head].second = text;
  std::string out;
  for (const auto& [head, texts] : files) {
    const auto& [in_a, in_b] = texts;
    if (in_a == in_b) continue;
    if (in_a.empty() || in_b.empty())
      out += fmt::format("# only in {}\n{}", in_a.empty() ? name_b : name_a, in_a.empty() ? in_b : in_a);
    else
      out += fmt::format("# different in both\n{}\n{}", head, unified_diff(in_a, in_b, name_a, name_b));
  }
  return out;
}

}  // namespace runner
