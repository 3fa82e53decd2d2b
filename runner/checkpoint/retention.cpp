// Lists the checkpoints of a run, chooses the one to continue from, and removes old ones.
#include <algorithm>
#include <charconv>
#include <set>

#include "runner/base/error.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/log.hpp"
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
  fs::path hidden = path.parent_path() / ("." + path.filename().string() + ".removed");
  std::error_code error;
  fs::rename(path, hidden, error);
  fault_point("retention");
  if (error)
    log::warning("cannot remove {}: {}", path.string(), error.message());
  else
    remove_folder(hidden);
}

struct Published {
  fs::path path;
  int64_t step = 0;
  double created = 0;
  std::optional<double> monitored;
};

/// The checkpoints whose manifest and file sizes are correct, sorted by time of publication. Calls `damaged` for others.
std::vector<Published> sound_checkpoints(const fs::path& checkpoints, const std::string& monitor,
                                         const std::function<void(const fs::path&, const std::string&)>& damaged) {
  std::vector<Published> sound;
  for (const auto& path : list_checkpoints(checkpoints)) {
    try {
      Checkpoint checkpoint(path, /*verify=*/false, /*name_previous=*/false);
      Published published{path, checkpoint.step(), checkpoint.created(), std::nullopt};
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

}  // namespace

std::string checkpoint_name(int64_t step) { return fmt::format("step-{:06d}", step); }

fs::path named_checkpoint(const std::string& named) {
  fs::path path = fs::absolute(named).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "step-000050/"
  std::error_code failed;
  if (fs::exists(path / manifest_name, failed)) return path;
  const bool exists = fs::exists(path, failed);
  std::vector<fs::path> near;
  for (const auto& folder : {path, path / "checkpoints", path.parent_path()})
    if (near.empty() && fs::is_directory(folder, failed)) near = list_checkpoints(folder);
  std::erase(near, path);
  throw usage_error("{}: {}{}", path.string(),
                    exists ? "this is not a checkpoint folder, it has no manifest.json" : "there is no such checkpoint",
                    near.empty() ? "" : fmt::format("; the newest one there is {}", near.back().string()));
}

std::vector<fs::path> list_checkpoints(const fs::path& checkpoints) {
  std::vector<fs::path> paths;
  for (const auto& [step, path] : folders(checkpoints, "step-", "")) paths.push_back(path);
  return paths;
}

std::optional<fs::path> newest_good_checkpoint(const fs::path& checkpoints,
                                               const std::function<void(const std::string&)>& note,
                                               const std::function<bool(const Checkpoint&)>& wanted) {
  auto skip = [&](const fs::path& path, const std::string& why) {
    if (note) note(fmt::format("skipping checkpoint {}: {}", path.filename().string(), why));
  };
  auto sound = sound_checkpoints(checkpoints, "", skip);
  for (auto candidate = sound.rbegin(); candidate != sound.rend(); ++candidate) {
    try {
      if (wanted && !wanted(Checkpoint(candidate->path, /*verify=*/false, /*name_previous=*/false))) continue;
      Checkpoint checkpoint(candidate->path, /*verify=*/true, /*name_previous=*/false);
      return candidate->path;
    } catch (const Error& error) {
      skip(candidate->path, error.what());
    }
  }
  return std::nullopt;
}

void remove_leftovers(const fs::path& checkpoints, int64_t attempt) {
  for (const auto& temporary : temporary_folders(checkpoints))
    if (temporary.attempt < attempt) remove_folder(temporary.path);
}

void retain(const fs::path& checkpoints, int64_t keep_last, int64_t save_top_k, const std::string& monitor) {
  for (const auto& [step, path] : folders(checkpoints, ".step-", ".removed")) remove_folder(path);
  auto sound = sound_checkpoints(checkpoints, monitor, [](const fs::path&, const std::string&) {});
  if (sound.empty()) return;
  for (const auto& temporary : temporary_folders(checkpoints))
    if (temporary.step <= sound.back().step) remove_folder(temporary.path);

  size_t excess = keep_last == 0 ? 0 : sound.size() - std::min(sound.size(), static_cast<size_t>(keep_last));
  if (excess == 0) return;
  std::set<fs::path> keep;
  for (size_t i = excess; i < sound.size(); ++i) keep.insert(sound[i].path);
  auto ranked = sound;
  std::erase_if(ranked, [](const auto& published) { return !published.monitored; });
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return *a.monitored < *b.monitored; });
  for (size_t i = 0; i < ranked.size() && static_cast<int64_t>(i) < save_top_k; ++i) keep.insert(ranked[i].path);
  for (const auto& published : sound)
    if (!keep.contains(published.path)) remove_published(published.path);
}

}  // namespace runner
