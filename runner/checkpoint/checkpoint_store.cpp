#include "runner/checkpoint/checkpoint_store.hpp"

#include <algorithm>

#include "runner/base/error.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/log.hpp"
#include "runner/checkpoint/manifest.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// Removes a folder at the end of a scope.
class TemporaryCopy {
 public:
  explicit TemporaryCopy(fs::path path) : path_(std::move(path)) { remove(); }
  ~TemporaryCopy() { remove(); }
  TemporaryCopy(const TemporaryCopy&) = delete;
  const fs::path& path() const { return path_; }

 private:
  void remove() const {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  fs::path path_;
};

/// Fills `copy` with links to the files of a checkpoint, or with copies if the filesystem has no links: retention may remove the
/// checkpoint while it is stored. Returns the hash of its manifest; empty: it was removed or replaced meanwhile. Throws Error(environment).
std::string hold(const fs::path& checkpoint, const fs::path& copy) {
  const std::string manifest = manifest_digest(checkpoint);
  std::error_code error;
  fs::create_directories(copy, error);
  if (!error) fs::copy(checkpoint, copy, fs::copy_options::recursive | fs::copy_options::create_hard_links, error);
  if (error) {
    error.clear();
    fs::remove_all(copy, error);
    fs::copy(checkpoint, copy, fs::copy_options::recursive, error);
  }
  if (manifest.empty() || manifest_digest(checkpoint) != manifest) return "";
  if (error) throw environment_error("cannot copy {} to store it: {}", checkpoint.string(), error.message());
  return manifest;
}

fs::path record_file(const fs::path& run_dir) { return run_dir / "stored.json"; }

}  // namespace

CheckpointStore::CheckpointStore(std::unique_ptr<parts::CheckpointIO> io, std::string file)
    : io_(std::move(io)), file_(std::move(file)) {}

void CheckpointStore::open_run(const std::string& run, const fs::path& run_dir, const std::string& monitor) {
  const std::lock_guard lock(mutex_);
  if (!run_.empty()) return;
  run_ = run;
  run_dir_ = run_dir;
  monitor_ = monitor;
  for (const auto& left : hidden_folders(folder()))
    if (left.extension() == ".storing" || left.extension() == ".loading") TemporaryCopy{left};
  read_record();
}

void CheckpointStore::set_note(std::function<void(const std::string&)> note) {
  const std::lock_guard lock(mutex_);
  note_ = std::move(note);
}

template <typename Work>
auto CheckpointStore::calling(const char* function, const std::string& name, Work&& work) {
  const auto failed = [&](const char* why) {
    return environment_error("{}: {}({}{}{}) failed: {}", file_, function, run_, name.empty() ? "" : ", ", name, why);
  };
  try {
    return work();
  } catch (const std::exception& error) {
    throw failed(error.what());
  } catch (...) {
    throw failed("it threw something that is no std::exception");
  }
}

void CheckpointStore::read_record() {
  if (!fs::exists(record_file(run_dir_))) return;
  try {
    const json record = json::parse(read_file(record_file(run_dir_)));
    const bool same_metric = record.at("monitor") == monitor_;
    for (const auto& [name, entry] : record.at("checkpoints").items()) {
      Stored stored{.manifest = entry.at("manifest"),
                    .step = entry.at("step"),
                    .attempt = entry.at("attempt"),
                    .created = entry.at("created")};
      if (same_metric && entry.at("monitored").is_number()) stored.monitored = entry.at("monitored").get<double>();
      stored_[name] = stored;
    }
  } catch (const json::exception&) {  // damaged: everything is stored again
    stored_.clear();
  }
}

void CheckpointStore::write_record() {
  json checkpoints = json::object();
  for (const auto& [name, stored] : stored_)
    checkpoints[name] = {{"manifest", stored.manifest},
                         {"step", stored.step},
                         {"attempt", stored.attempt},
                         {"created", stored.created},
                         {"monitored", stored.monitored ? json(*stored.monitored) : json()}};
  write_file_atomic(record_file(run_dir_), json{{"monitor", monitor_}, {"checkpoints", checkpoints}}.dump(1) + "\n");
}

void CheckpointStore::list() {
  const auto names = calling("names", "", [&] { return io_->names(run_); });
  listed_.emplace();
  for (const auto& name : names) {
    if (step_of_name(name))
      listed_->insert(name);
    else if (note_ && noted_.insert(name).second)
      note_(fmt::format("{}: names({}) returned \"{}\", which is not the name of a checkpoint such as {}: ignored",
                        file_, run_, name, checkpoint_name(50)));
  }
}

bool CheckpointStore::is_stored(const KnownCheckpoint& checkpoint) const {
  const std::string name = checkpoint.path.filename();
  const auto found = stored_.find(name);
  return found != stored_.end() && listed_->contains(name) &&
         found->second.manifest == manifest_digest(checkpoint.path);
}

void CheckpointStore::record(const KnownCheckpoint& checkpoint, const std::string& manifest) {
  const std::string name = checkpoint.path.filename();
  listed_->insert(name);
  stored_[name] = {.manifest = manifest,
                   .step = checkpoint.step,
                   .attempt = checkpoint.attempt,
                   .created = checkpoint.created,
                   .monitored = checkpoint.monitored};
  write_record();
}

void CheckpointStore::store(const KnownCheckpoint& checkpoint) {
  const std::string name = checkpoint.path.filename();
  const TemporaryCopy copy(folder() / ("." + name + ".storing"));
  const std::string manifest = hold(checkpoint.path, copy.path());
  if (manifest.empty()) return;
  fault_point("store");
  calling("save", name, [&] { io_->save(run_, name, copy.path()); });
  fault_point("stored");
  record(checkpoint, manifest);
}

std::vector<KnownCheckpoint> CheckpointStore::known_here(const Retention& rule) const {
  std::vector<KnownCheckpoint> known;
  for (const auto& [name, stored] : stored_)
    if (listed_->contains(name))
      known.push_back({.path = name,
                       .step = stored.step,
                       .created = stored.created,
                       .attempt = stored.attempt,
                       .given_up = given_up(stored.step, stored.attempt, rule.attempts),
                       .monitored = stored.monitored});
  return known;
}

std::set<fs::path> CheckpointStore::not_worth_storing(const std::vector<KnownCheckpoint>& folder,
                                                      const Retention& rule) const {
  auto known = known_here(rule);
  for (auto checkpoint : folder) {
    checkpoint.path = checkpoint.path.filename();
    std::erase_if(known, [&](const auto& stored) { return stored.path == checkpoint.path; });
    known.push_back(checkpoint);
  }
  std::ranges::stable_sort(known, {}, &KnownCheckpoint::created);
  const auto surplus = surplus_of(known, rule);
  return {surplus.begin(), surplus.end()};
}

void CheckpointStore::remove_surplus(const Retention& rule) {
  auto known = known_here(rule);
  std::ranges::stable_sort(known, {}, &KnownCheckpoint::created);
  for (const auto& path : surplus_of(known, rule)) {
    const std::string name = path;
    calling("remove", name, [&] { io_->remove(run_, name); });
    fault_point("store retention");
    listed_->erase(name);
    stored_.erase(name);
    write_record();
  }
}

CheckpointStore::Pass CheckpointStore::store_missing(const Retention& rule,
                                                     const std::function<void(const std::string&)>& begins,
                                                     const std::function<bool()>& stop) {
  Pass pass;
  const auto succeeds = [&](auto&& work) {
    const std::lock_guard lock(mutex_);
    try {
      work();
      return true;
    } catch (const std::exception& error) {
      if (pass.failure.empty()) pass.failure = error.what();
      listed_.reset();  // what a failed call has left is not known
      return false;
    }
  };
  std::vector<KnownCheckpoint> here;
  bool missing = false;
  pass.newest_stored = succeeds([&] { here = known_checkpoints(folder(), rule.attempts, rule.monitor); });
  std::erase_if(here, [](const auto& checkpoint) { return checkpoint.given_up; });
  std::set<fs::path> surplus;
  for (const auto& checkpoint : here) {
    pass.newest_stored = succeeds([&] {
      if (!listed_) list();
      surplus = not_worth_storing(here, rule);
      missing = !is_stored(checkpoint) && !surplus.contains(checkpoint.path.filename());
    });
    if (!pass.newest_stored) return pass;  // not even the names can be read
    if (!missing) continue;
    if (stop()) {
      pass.newest_stored = false;
      return pass;
    }
    begins(checkpoint.path.filename());
    pass.newest_stored = succeeds([&] { store(checkpoint); });
  }
  if (pass.failure.empty())
    succeeds([&] {
      if (listed_) remove_surplus(rule);
    });
  return pass;
}

std::optional<fs::path> CheckpointStore::bring(const std::string& name, const Attempts& attempts) {
  log::info("loading checkpoint {} with {}", name, file_);
  const TemporaryCopy copy(folder() / ("." + name + ".loading"));
  std::error_code error;
  fs::create_directories(copy.path(), error);
  if (error) throw environment_error("cannot make the folder {}: {}", copy.path().string(), error.message());
  calling("load", name, [&] { io_->load(run_, name, copy.path()); });
  fault_point("loaded");
  {
    const Checkpoint checkpoint(copy.path(), /*verify=*/true, /*name_previous=*/false);
    if (checkpoint.step() != step_of_name(name))
      throw environment_error("{}: load({}, {}) wrote the checkpoint of step {}", file_, run_, name, checkpoint.step());
    if (!written_by(checkpoint, run_dir_))
      throw environment_error("{}: load({}, {}) wrote a checkpoint of another run", file_, run_, name);
    if (given_up(checkpoint, attempts)) return std::nullopt;
  }
  for (const auto& file : fs::directory_iterator(copy.path())) sync_path(file.path());
  const fs::path final_name = folder() / name;
  if (fs::exists(final_name)) remove_checkpoint(final_name);  // it is damaged, otherwise the run would continue from it
  publish_directory(copy.path(), final_name);
  for (const auto& known : known_checkpoints(folder(), attempts, monitor_))
    if (known.path == final_name) record(known, manifest_digest(final_name));
  return final_name;
}

std::optional<fs::path> CheckpointStore::bring_newer(int64_t step, const Attempts& attempts,
                                                     const std::function<void(const std::string&)>& note) {
  const std::lock_guard lock(mutex_);
  if (!listed_) list();
  std::map<int64_t, std::string, std::greater<>> later;
  for (const auto& name : *listed_)
    if (const int64_t stored = step_of_name(name).value(); stored > step) later[stored] = name;
  for (const auto& [stored, name] : later) {
    const auto known = stored_.find(name);
    if (known != stored_.end() && given_up(stored, known->second.attempt, attempts)) continue;
    try {
      if (auto path = bring(name, attempts)) return path;
    } catch (const Error& error) {
      note(fmt::format("skipping the stored checkpoint {}: {}", name, error.what()));
    }
  }
  return std::nullopt;
}

int64_t CheckpointStore::remove_all() {
  const std::lock_guard lock(mutex_);
  list();
  const auto names = *listed_;
  for (const auto& name : names) {
    calling("remove", name, [&] { io_->remove(run_, name); });
    listed_->erase(name);
  }
  return std::ssize(names);
}

}  // namespace runner
