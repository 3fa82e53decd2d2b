// The files of a run: artifacts and traces of the profiler, to be saved; and its logs: pages of lines, what was appended, and search.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
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

namespace {

constexpr int64_t lines_max = 2000;
constexpr size_t line_bytes_max = 4000;

/// How far a client has read: "GENERATION-BYTE", from the `next` of an earlier answer.
struct Position {
  int64_t generation = 0, byte = 0;
};

std::string to_text(const Position& position) { return fmt::format("{}-{}", position.generation, position.byte); }

std::optional<Position> position_parameter(const Request& request) {
  const std::string text = request.parameter("after");
  if (text.empty()) return {};
  const auto parts = split(text, '-');
  Position position;
  const auto read = [](const std::string& part) { return parse_number<int64_t>(part).value_or(-1); };
  if (parts.size() == 2) position = {.generation = read(parts[0]), .byte = read(parts[1])};
  if (parts.size() != 2 || position.generation < 0 || position.byte < 0)
    throw ApiError(400, fmt::format("after must be the `next` of an earlier answer, not \"{}\"", text));
  return position;
}

struct WantedLines {
  std::string search;  ///< in lower case; empty: all lines
  int64_t from = 0;    ///< how many of the matching lines are skipped; negative: only so many of the last ones
  int64_t count = 0;
  bool stop = false;  ///< after `count` lines; otherwise the file is read to its end, to count what matches
};

/// Lines that match, in the order of the file.
struct FoundLines {
  std::vector<json> list;
  int64_t matching = 0;
  LogPlace next;
};

FoundLines find_lines(const Descriptor& file, LogPlace begin, const WantedLines& wanted) {
  FoundLines found;
  LogReader reader(file, begin);
  std::string line;
  int64_t number = begin.lines;
  while (!(wanted.stop && std::ssize(found.list) >= wanted.count) && reader.read(line)) {
    ++number;
    if (!wanted.search.empty() && lower(line).find(wanted.search) == std::string::npos) continue;
    ++found.matching;
    if (wanted.from >= 0 && (found.matching <= wanted.from || std::ssize(found.list) >= wanted.count)) continue;
    if (line.size() > line_bytes_max) line = line.substr(0, line_bytes_max) + " ...";
    found.list.push_back({{"line", number}, {"text", escape_invalid_utf8(line)}});
    if (reader.unfinished()) found.list.back()["unfinished"] = true;
    if (wanted.from < 0 && std::ssize(found.list) > 2 * lines_max)
      found.list.erase(found.list.begin(), found.list.end() + wanted.from);
  }
  if (wanted.from < 0 && std::ssize(found.list) > -wanted.from)
    found.list.erase(found.list.begin(), found.list.end() + wanted.from);
  found.next = reader.next();
  return found;
}

}  // namespace

Response get_logs(const Api& api, const Request& request, const Captures& captures) {
  const std::string id = run_id(api, captures[0]);
  const fs::path folder = Ledger(api.readers.home().string(), Ledger::Mode::read).run_dir(id);
  std::string name = request.parameter("file");
  if (!request.query.contains("file")) name = open_below(folder, "logs/run.log").is_open() ? "run.log" : "rank-0.log";
  // A negative `from` counts from the end: -500 is the last 500 lines.
  WantedLines wanted{.search = lower(request.parameter("search")),
                     .from = integer_parameter(request, "from", 0, -lines_max, 1'000'000'000),
                     .count = integer_parameter(request, "lines", 500, 1, lines_max)};
  const auto after = position_parameter(request);
  const bool is_log = !name.starts_with('.') && name.find('/') == std::string::npos;
  const fs::path place = fs::path("logs") / name;
  const Descriptor file = is_log ? open_below(folder, place) : Descriptor();
  if (!file.is_open()) throw ApiError(404, fmt::format("the run has no log \"{}\"", name));
  const auto [index, lock] = api.logs.of(folder / place);
  index->update(file);
  const bool appended = after && after->generation == index->generation() && after->byte <= index->end().byte;
  LogPlace begin;
  if (appended) {
    begin = index->at_byte(file, after->byte);
    wanted.from = 0;
    wanted.stop = true;
  } else if (wanted.search.empty()) {
    begin =
        index->after_lines(file, wanted.from < 0 ? std::max<int64_t>(0, index->lines() + wanted.from) : wanted.from);
    wanted.stop = wanted.from >= 0;
    if (wanted.stop) wanted.from = 0;
  }
  const FoundLines found = find_lines(file, begin, wanted);
  return json_response({{"run", id},
                        {"file", name},
                        {"total", index->lines()},
                        {"bytes", index->size()},
                        {"matching", wanted.search.empty() ? index->lines() : found.matching},
                        {"lines", found.list},
                        {"appended", appended},
                        {"left", index->size() - found.next.byte},
                        {"next", to_text({.generation = index->generation(), .byte = found.next.byte})}});
}

}  // namespace runner::ui
