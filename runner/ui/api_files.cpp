// The files that a run recorded: artifacts and traces of the profiler, to be saved.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "runner/base/files.hpp"
#include "runner/ui/api.hpp"

namespace runner::ui {

using nlohmann::json;

namespace {

json size_of(const Descriptor& file) {
  struct stat facts {};
  return file.is_open() && ::fstat(file.get(), &facts) == 0 ? json(facts.st_size) : json();
}

}  // namespace

Descriptor open_below(const fs::path& folder, const fs::path& file) {
  Descriptor place(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  for (auto part = file.begin(); part != file.end() && place.is_open(); ++part) {
    const std::string& name = part->native();
    if (name.empty() || name == "." || name == ".." || name.find_first_of(std::string_view("/\0", 2)) != name.npos)
      return {};
    const int kind = std::next(part) == file.end() ? O_RDONLY | O_NONBLOCK : O_PATH | O_DIRECTORY;
    place = Descriptor(::openat(place.get(), name.c_str(), kind | O_NOFOLLOW | O_CLOEXEC));
  }
  struct stat facts {};
  const bool regular = place.is_open() && ::fstat(place.get(), &facts) == 0 && S_ISREG(facts.st_mode);
  return regular ? std::move(place) : Descriptor();
}

json recorded_files(const json& run) {
  json files = json::array();
  std::set<std::string> known;
  const auto add = [&](const json& record, const json& kind, const std::string& path) {
    if (!known.insert(path).second) return;
    files.push_back({{"path", path},
                     {"kind", kind},
                     {"step", record.value("step", json())},
                     {"time", record["time"]},
                     {"bytes", size_of(open_below(run["run_dir"].get<std::string>(), path))}});
  };
  for (const auto& artifact : run["artifacts"]) add(artifact, artifact["kind"], artifact["path"]);
  // A trace is directly in the run's folder, which may have moved since.
  for (const auto& event : run["events"]) {
    const json path = event.value("path", json());
    if (event["event"] == "trace" && path.is_string())
      add(event, "trace", fs::path(path.get<std::string>()).filename());
  }
  return files;
}

Response get_file(const Api& api, const Request& request, const Captures& captures) {
  const std::string id = run_id(api, captures[0]), path = request.parameter("path");
  const json run = Ledger(api.readers.home().string(), Ledger::Mode::read).show(id);
  const json files = recorded_files(run);
  if (std::ranges::none_of(files, [&](const json& file) { return file["path"] == path; }))
    throw ApiError(404, fmt::format("the run recorded no file \"{}\"", path));
  auto file = std::make_shared<Descriptor>(open_below(run["run_dir"].get<std::string>(), path));
  const json size = size_of(*file);
  if (size.is_null()) throw ApiError(404, fmt::format("the run's folder has no file \"{}\"", path));
  // A file that still grows is sent as it is now.
  const auto next = [file, left = size.get<size_t>()](std::string& chunk) mutable {
    constexpr size_t chunk_bytes = 256 << 10;
    chunk.resize(std::min(left, chunk_bytes));
    const ssize_t count = ::read(file->get(), chunk.data(), chunk.size());
    if (count < 0) throw environment_error("cannot read the file: {}", std::strerror(errno));
    chunk.resize(static_cast<size_t>(count));
    left -= chunk.size();
    return count > 0;
  };
  return {.type = "application/octet-stream", .headers = {{"Content-Disposition", "attachment"}}, .stream = next};
}

}  // namespace runner::ui
