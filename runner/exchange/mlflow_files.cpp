// Runs of the ledger as MLflow's folder store.
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/xxh3.hpp"
#include "runner/exchange/export_metrics.hpp"
#include "runner/logging/mlflow_api.hpp"

namespace runner {

namespace {

using nlohmann::json;

int64_t milliseconds(double seconds) { return static_cast<int64_t>(seconds * 1000); }

/// A scalar of YAML: JSON's strings are strings of YAML.
std::string yaml_text(const std::string& text) { return json_text(json(text)); }

void write(const fs::path& file, const std::string& content) {
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> stream(std::fopen(file.c_str(), "wb"), std::fclose);
  const bool written = stream && std::fwrite(content.data(), 1, content.size(), stream.get()) == content.size() &&
                       std::fflush(stream.get()) == 0;
  if (!written) throw environment_error("cannot write {}: is the disk full?", file.string());
}

/// Names of files: those that MLflow accepts, each once, and none below another one.
class FileNames {
 public:
  std::string add(const std::string& wanted) {
    const std::string name = mlflow_name(wanted);
    std::string free = name;
    for (int number = 2; !is_free(free); ++number) free = flat(name) + "_" + std::to_string(number);
    for (size_t slash = free.find('/'); slash != std::string::npos; slash = free.find('/', slash + 1))
      folders_.insert(free.substr(0, slash));
    files_.insert(free);
    return free;
  }

 private:
  bool is_free(const std::string& name) const {
    if (name.empty() || files_.contains(name) || folders_.contains(name)) return false;
    for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1))
      if (files_.contains(name.substr(0, slash))) return false;
    return true;
  }
  static std::string flat(std::string name) {
    std::ranges::replace(name, '/', '_');
    return name;
  }

  std::set<std::string> files_, folders_;
};

/// Settings by their dotted names. MLflow reads one line of each.
void write_params(const json& config, const std::string& prefix, const fs::path& folder, FileNames& names) {
  for (const auto& [key, value] : config.items()) {
    const std::string name = prefix + key;
    if (value.is_object() && !value.empty()) {
      write_params(value, name + ".", folder, names);
      continue;
    }
    const bool is_line =
        value.is_string() && value.get_ref<const std::string&>().find_first_of("\r\n") == std::string::npos;
    write(folder / names.add(name), is_line ? value.get<std::string>() : json_text(value));
  }
}

void write_tags(const ExportedRun& run, const fs::path& folder) {
  const auto& shown = run.shown;
  const auto text = [&](const char* key) {
    return shown.value(key, json()).is_string() ? shown.at(key).get<std::string>() : "";
  };
  write(folder / "mlflow.runName", text("name"));
  write(folder / "mlflow.source.type", "LOCAL");
  write(folder / "mlflow.source.name", "runner");
  write(folder / "runner.run", run.id);
  write(folder / "runner.strategy", text("strategy"));
  if (!text("notes").empty()) write(folder / "mlflow.note.content", text("notes"));
  if (!text("group").empty()) write(folder / "runner.group", text("group"));
  FileNames names;
  for (const std::string tag : shown.at("tags")) {
    const auto equals = tag.find('=');
    const bool is_pair = equals != std::string::npos && equals > 0;  // as tags of MLflow are imported
    write(folder / names.add(is_pair ? tag.substr(0, equals) : "runner.tag." + tag),
          is_pair ? tag.substr(equals + 1) : tag);
  }
}

/// The number of RunStatus (mlflow/protos/service.proto).
int status_number(const std::string& status) {
  static const std::map<std::string, int> numbers = {{"running", 1}, {"finished", 3}, {"failed", 4}};
  const auto found = numbers.find(status);
  constexpr int killed = 5;
  return found == numbers.end() ? killed : found->second;
}

class MlflowFolder {
 public:
  /// `final_name`: the name that the folder will have.
  MlflowFolder(fs::path folder, const fs::path& final_name)
      : folder_(std::move(folder)), uri_("file://" + fs::absolute(final_name).lexically_normal().string()) {
    experiment("Default");
  }

  void add(const ExportedRun& run) {
    const std::string group = run.shown.value("group", "");
    const std::string experiment_id = experiment(group.empty() ? "Default" : group);
    const std::string id = xxh3_hex(run.id);
    const fs::path folder = folder_ / experiment_id / id;
    const json ended = run.shown.value("ended", json());
    write(folder / "meta.yaml",
          fmt::format("artifact_uri: {}\nend_time: {}\nentry_point_name: ''\nexperiment_id: '{}'\n"
                      "lifecycle_stage: active\nrun_id: '{}'\nrun_name: {}\nrun_uuid: '{}'\nsource_name: ''\n"
                      "source_type: 4\nsource_version: ''\nstart_time: {}\nstatus: {}\ntags: []\nuser_id: runner\n",
                      yaml_text(uri_ + "/" + experiment_id + "/" + id + "/artifacts"),
                      ended.is_number() ? std::to_string(milliseconds(ended.get<double>())) : "null", experiment_id, id,
                      yaml_text(run.shown.at("name")), id, milliseconds(run.started()),
                      status_number(run.shown.at("status"))));
    std::error_code ignored;
    for (const char* part : {"artifacts", "metrics", "params", "tags"}) fs::create_directory(folder / part, ignored);
    FileNames params, metrics;
    write_params(run.shown.at("config"), "", folder / "params", params);
    write_tags(run, folder / "tags");
    for (const auto& [name, points] : run.metrics) {
      std::string lines;
      for (const auto& [step, value] : points)
        lines += fmt::format("{} {} {}\n", milliseconds(run.time_of(step)), value, step);
      const std::string file = metrics.add(name);
      write(folder / "metrics" / file, lines);
      if (file != name) write(folder / "tags" / mlflow_name("runner.metric." + file), name);
    }
  }

 private:
  /// The id of an experiment, which is made if there is none of this name. Ids are numbers.
  std::string experiment(const std::string& name) {
    auto [found, is_new] = experiments_.try_emplace(name);
    if (!is_new) return found->second;
    constexpr uint64_t eighteen_digits = 1'000'000'000'000'000'000;
    found->second = name == "Default"
                        ? "0"
                        : std::to_string(std::stoull(xxh3_hex(name).substr(0, 16), nullptr, 16) % eighteen_digits);
    write(folder_ / found->second / "meta.yaml",
          fmt::format("artifact_location: {}\ncreation_time: 0\nexperiment_id: '{}'\nlast_update_time: 0\n"
                      "lifecycle_stage: active\nname: {}\n",
                      yaml_text(uri_ + "/" + found->second), found->second, yaml_text(name)));
    return found->second;
  }

  fs::path folder_;
  std::string uri_;
  std::map<std::string, std::string> experiments_;
};

}  // namespace

ExportedMetrics export_mlflow(const Ledger& ledger, const std::vector<std::string>& runs, const std::string& output) {
  return export_folder(ledger, runs, output, [&](const fs::path& temporary) {
    const auto folder = std::make_shared<MlflowFolder>(temporary, output);
    return [folder](const ExportedRun& run) { folder->add(run); };
  });
}

}  // namespace runner
