// Lists the checkpoints of a run, chooses the one to continue from, and removes old ones.
#include <algorithm>
#include <charconv>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/log.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/checkpoint/manifest.hpp"

namespace runner {

namespace {

std::optional<int64_t> whole_number(std::string_view digits) {
  int64_t number = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  bool all = error == std::errc() && end == digits.data() + digits.size() && number >= 0;
  return all ? std::optional(number) : std::nullopt;
}

/// The text between `prefix` and `suffix`; empty if the name does not have both.
std::optional<std::string_view> middle_of(std::string_view name, std::string_view prefix, std::string_view suffix) {
  if (name.size() <= prefix.size() + suffix.size() || !name.starts_with(prefix) || !name.ends_with(suffix))
    return std::nullopt;
  return name.substr(prefix.size(), name.size() - prefix.size() - suffix.size());
}

/// The step in a name PREFIXnnnnnnSUFFIX.
std::optional<int64_t> step_in(std::string_view name, std::string_view prefix, std::string_view suffix) {
  auto digits = middle_of(name, prefix, suffix);
  return digits ? whole_number(*digits) : std::nullopt;
}

std::vector<std::pair<int64_t, fs::path>> folders(const fs::path& checkpoints, std::string_view prefix,
                                                  std::string_view suffix) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints, error), end; !error && entry != end; entry.increment(error))
    if (auto step = step_in(entry->path().filename().string(), prefix, suffix)) found.push_back({*step, entry->path()});
  if (error && error != std::errc::no_such_file_or_directory)
    throw environment_error("cannot list {}: {}", checkpoints.string(), error.message());
  std::sort(found.begin(), found.end());
  return found;
}

struct Temporary {
  fs::path path;
  int64_t step, attempt;
};

/// Folders named .step-NNNNNN.ATTEMPT.tmp. A name without ATTEMPT has attempt 0.
std::vector<Temporary> temporary_folders(const fs::path& checkpoints) {
  std::vector<Temporary> found;
  std::error_code error;
  for (fs::directory_iterator entry(checkpoints, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    auto middle = middle_of(name, ".step-", ".tmp");
    if (!middle) continue;
    const size_t dot = middle->find('.');
    auto step = whole_number(middle->substr(0, dot));
    auto attempt = dot == std::string_view::npos ? std::optional<int64_t>(0) : whole_number(middle->substr(dot + 1));
    if (step && attempt) found.push_back({entry->path(), *step, *attempt});
  }
  return found;
}

/// A failure only logs a warning: a folder that remains does no harm, and the next call tries to remove it again.
void remove_folder(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) log::warning("cannot remove {}: {}", path.string(), error.message());
}

/// Renames the checkpoint to a hidden name first. If the process is killed, no partial checkpoint has a published name.
void remove_published(const fs::path& path) {
  const fs::path hidden = hide_checkpoint(path);
  if (!hidden.empty()) remove_folder(hidden);
}

/// Whether the run has given up a damaged checkpoint. False if its manifest cannot be read.
bool damaged_is_given_up(const fs::path& path, const Attempts& attempts) {
  try {
    const Manifest manifest = read_manifest_only(path);
    return given_up(manifest.step, attempt_of(manifest.state), attempts);
  } catch (const Error&) {
    return false;
  }
}

/// The checkpoints whose manifest and file sizes are correct, sorted by time of publication. Calls `damaged` for
/// others.
std::vector<KnownCheckpoint> sound_checkpoints(
    const fs::path& checkpoints, const Attempts& attempts, const std::string& monitor,
    const std::function<void(const fs::path&, const std::string&)>& damaged) {
  std::vector<KnownCheckpoint> sound;
  for (const auto& path : list_checkpoints(checkpoints)) {
    try {
      Checkpoint checkpoint(path, /*verify=*/false, /*name_previous=*/false);
      KnownCheckpoint published{.path = path,
                                .step = checkpoint.step(),
                                .created = checkpoint.created(),
                                .attempt = checkpoint.attempt(),
                                .given_up = given_up(checkpoint, attempts)};
      if (auto value = checkpoint.state().find(monitor); value != checkpoint.state().end() && value->is_number())
        published.monitored = value->get<double>();
      sound.push_back(published);
    } catch (const Error& error) {
      damaged(path, error.what());
    }
  }
  std::stable_sort(sound.begin(), sound.end(), [](const auto& a, const auto& b) { return a.created < b.created; });
  return sound;
}

/// Leaves the checkpoints with a value of the monitored metric, the best first. Of equal ones, the first that was published is first.
void rank_by_value(std::vector<KnownCheckpoint>& published, bool higher) {
  std::erase_if(published, [](const auto& one) { return !one.monitored; });
  std::stable_sort(published.begin(), published.end(), [&](const auto& a, const auto& b) {
    return higher ? *a.monitored > *b.monitored : *a.monitored < *b.monitored;
  });
}

/// Reports damaged checkpoints to `note`, except those that the run has given up.
std::function<void(const fs::path&, const std::string&)> skipping(const Attempts& attempts,
                                                                  const std::function<void(const std::string&)>& note) {
  return [&attempts, &note](const fs::path& path, const std::string& why) {
    if (note && !damaged_is_given_up(path, attempts))
      note(fmt::format("skipping checkpoint {}: {}", path.filename().string(), why));
  };
}

std::vector<RatedCheckpoint> rated(const fs::path& checkpoints, const std::string& monitor, const Attempts& attempts,
                                   const std::function<void(const fs::path&, const std::string&)>& damaged) {
  auto sound = sound_checkpoints(checkpoints, attempts, monitor, damaged);
  std::erase_if(sound, [](const auto& published) { return published.given_up; });
  rank_by_value(sound, higher_is_better(monitor));
  std::vector<RatedCheckpoint> ranked;
  for (const auto& one : sound) ranked.push_back({.path = one.path, .step = one.step, .value = *one.monitored});
  return ranked;
}

/// Completes replacements of checkpoints that took two renames (exchange_directories()) and ended between them: the new
/// checkpoint gets the final name, or the old one if the new one is not complete.
void complete_replacements(const fs::path& checkpoints) {
  for (const auto& [step, old] : folders(checkpoints, ".step-", ".replaced")) {
    const fs::path final_name = checkpoints / checkpoint_name(step);
    std::vector<Temporary> candidates = temporary_folders(checkpoints);
    std::erase_if(candidates, [step = step](const auto& temporary) { return temporary.step != step; });
    std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.attempt > b.attempt; });
    candidates.push_back({.path = old, .step = step, .attempt = 0});
    for (auto candidate = candidates.begin(); candidate != candidates.end() && !fs::exists(final_name); ++candidate) {
      try {
        Checkpoint(candidate->path, /*verify=*/true, /*name_previous=*/false);
        publish_directory(candidate->path, final_name);
      } catch (const Error&) {
        // It is not complete, or the folder is write-protected.
      }
    }
  }
}

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("step-{:06d}", step); }

fs::path named_checkpoint(const std::string& named, const fs::path& run_dir) {
  const auto absolute = [&](const fs::path& folder) {
    fs::path path = fs::absolute(folder / named).lexically_normal();
    return path.has_filename() ? path : path.parent_path();  // "step-000050/"
  };
  std::error_code failed;
  std::vector<fs::path> folders{fs::current_path()};
  if (!run_dir.empty()) folders.insert(folders.end(), {run_dir, run_dir / "checkpoints"});
  for (const auto& folder : folders)
    if (fs::exists(absolute(folder) / manifest_name, failed)) return absolute(folder);
  const fs::path path = absolute(folders.front());
  const bool exists = fs::exists(path, failed);
  std::vector<fs::path> near;
  for (const auto& folder : {path, path / "checkpoints", path.parent_path(), folders.back()})
    if (near.empty() && fs::is_directory(folder, failed)) near = list_checkpoints(folder);
  std::erase(near, path);
  throw usage_error("{}: {}{}", path.string(),
                    exists ? "this is not a checkpoint folder, it has no manifest.json" : "there is no such checkpoint",
                    near.empty() ? "" : fmt::format("; the newest one is {}", near.back().string()));
}

std::vector<fs::path> list_checkpoints(const fs::path& checkpoints) {
  std::vector<fs::path> paths;
  for (const auto& [step, path] : folders(checkpoints, "step-", "")) paths.push_back(path);
  return paths;
}

bool given_up(int64_t step, int64_t wrote, const Attempts& attempts) {
  return wrote != 0 && std::any_of(attempts.upper_bound(wrote), attempts.end(),
                                   [&](const auto& later) { return later.second < step; });
}

bool given_up(const Checkpoint& checkpoint, const Attempts& attempts) {
  return given_up(checkpoint.step(), checkpoint.attempt(), attempts);
}

std::optional<fs::path> newest_good_checkpoint(const fs::path& checkpoints, const Attempts& attempts,
                                               const std::function<void(const std::string&)>& note) {
  const auto skip = skipping(attempts, note);
  complete_replacements(checkpoints);
  auto sound = sound_checkpoints(checkpoints, attempts, "", skip);
  std::erase_if(sound, [](const auto& published) { return published.given_up; });
  for (auto candidate = sound.rbegin(); candidate != sound.rend(); ++candidate) {
    try {
      Checkpoint checkpoint(candidate->path, /*verify=*/true, /*name_previous=*/false);
      return candidate->path;
    } catch (const Error& error) {
      skip(candidate->path, error.what());
    }
  }
  return std::nullopt;
}

std::vector<RatedCheckpoint> rated_checkpoints(const fs::path& checkpoints, const std::string& monitor,
                                               const Attempts& attempts) {
  return rated(checkpoints, monitor, attempts, [](const fs::path&, const std::string&) {});
}

std::optional<RatedCheckpoint> best_good_checkpoint(const fs::path& checkpoints, const std::string& monitor,
                                                    const Attempts& attempts,
                                                    const std::function<void(const std::string&)>& note) {
  const auto skip = skipping(attempts, note);
  complete_replacements(checkpoints);
  for (const auto& candidate : rated(checkpoints, monitor, attempts, skip)) {
    try {
      Checkpoint checkpoint(candidate.path, /*verify=*/true, /*name_previous=*/false);
      return candidate;
    } catch (const Error& error) {
      skip(candidate.path, error.what());
    }
  }
  return std::nullopt;
}

void remove_leftovers(const fs::path& checkpoints, int64_t attempt) {
  for (const auto& temporary : temporary_folders(checkpoints))
    if (temporary.attempt < attempt) remove_folder(temporary.path);
}

std::vector<fs::path> hidden_folders(const fs::path& checkpoints) {
  std::vector<fs::path> found;
  for (const char* suffix : {".removed", ".replaced", ".storing", ".loading"})
    for (const auto& [step, path] : folders(checkpoints, ".step-", suffix)) found.push_back(path);
  for (const auto& temporary : temporary_folders(checkpoints)) found.push_back(temporary.path);
  return found;
}

namespace {

/// Whether all bytes are those that were written.
bool is_intact(const fs::path& path) {
  try {
    Checkpoint(path, /*verify=*/true, /*name_previous=*/false);
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::vector<KnownCheckpoint> known_checkpoints(const fs::path& checkpoints, const Attempts& attempts,
                                               const std::string& monitor) {
  return sound_checkpoints(checkpoints, attempts, monitor, [](const fs::path&, const std::string&) {});
}

std::optional<int64_t> step_of_name(const std::string& name) {
  const auto step = step_in(name, "step-", "");
  return step && checkpoint_name(*step) == name ? step : std::nullopt;
}

std::vector<fs::path> surplus_checkpoints(const fs::path& checkpoints, const Retention& retention) {
  return surplus_of(known_checkpoints(checkpoints, retention.attempts, retention.monitor), retention);
}

std::vector<fs::path> surplus_of(const std::vector<KnownCheckpoint>& sound, const Retention& retention) {
  if (retention.keep_last == 0 || sound.empty()) return {};
  std::set<fs::path> keep;
  const bool wrote_one = !retention.attempts.empty() && sound.back().attempt == retention.attempts.rbegin()->first;
  for (const auto& published : sound)
    if (published.given_up && !wrote_one) keep.insert(published.path);
  auto counted = sound;
  std::erase_if(counted, [](const auto& published) { return published.given_up; });
  const size_t last = std::min(counted.size(), static_cast<size_t>(retention.keep_last));
  for (size_t i = counted.size() - last; i < counted.size(); ++i) keep.insert(counted[i].path);
  if (retention.keep_every > 0)
    for (const auto& published : counted)
      if (published.step % retention.keep_every == 0) keep.insert(published.path);
  rank_by_value(counted, retention.higher_is_better);
  int64_t best = 0;
  for (auto one = counted.begin(); one != counted.end() && best < retention.save_top_k; ++one) {
    keep.insert(one->path);
    if (!retention.verify || is_intact(one->path)) ++best;
  }
  std::vector<fs::path> surplus;
  for (const auto& published : sound)
    if (!keep.contains(published.path)) surplus.push_back(published.path);
  return surplus;
}

fs::path hide_checkpoint(const fs::path& path) {
  std::string name = path.filename().string();
  if (!name.starts_with('.')) name.insert(0, ".");
  const fs::path hidden = path.parent_path() / (name.substr(0, name.find('.', 1)) + ".removed");
  std::error_code error;
  if (path == hidden) return hidden;
  if (fs::exists(fs::symlink_status(hidden, error))) remove_folder(hidden);  // of a process that was killed
  fs::rename(path, hidden, error);
  if (!error) {
    fault_point("retention");
    return hidden;
  }
  log::warning("cannot remove {}: {}", path.string(), error.message());
  return {};
}

void remove_checkpoint(const fs::path& path) { remove_published(path); }

void retain(const fs::path& checkpoints, const Retention& retention) {
  for (const char* suffix : {".removed", ".replaced"})
    for (const auto& [step, path] : folders(checkpoints, ".step-", suffix)) remove_folder(path);
  const auto sound = known_checkpoints(checkpoints, retention.attempts, retention.monitor);
  if (sound.empty()) return;
  for (const auto& temporary : temporary_folders(checkpoints))
    if (temporary.step <= sound.back().step) remove_folder(temporary.path);
  for (const auto& path : surplus_checkpoints(checkpoints, retention)) remove_published(path);
}

}  // namespace runner
