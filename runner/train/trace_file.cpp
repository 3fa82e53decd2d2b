#include "runner/train/trace_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "runner/base/files.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

using nlohmann::json;

json metadata(const char* name, int rank, size_t track, const json& arguments) {
  return {{"ph", "M"}, {"name", name}, {"pid", rank}, {"tid", track}, {"args", arguments}};
}

/// Events of a track in the order of their beginning, and a containing event before the events in it. Rounding to the clock's resolution
/// must not make an event end after the one that contains it.
void make_nest(std::vector<TraceEvent>& events) {
  std::ranges::stable_sort(events, [](const TraceEvent& a, const TraceEvent& b) {
    if (a.track != b.track) return a.track < b.track;
    return a.begin != b.begin ? a.begin < b.begin : a.nanoseconds > b.nanoseconds;
  });
  std::vector<int64_t> ends;
  for (size_t i = 0; i < events.size(); ++i) {
    if (i == 0 || events[i].track != events[i - 1].track) ends.clear();
    while (!ends.empty() && ends.back() <= events[i].begin) ends.pop_back();
    int64_t end = events[i].begin + events[i].nanoseconds;
    if (!ends.empty()) end = std::min(end, ends.back());
    events[i].nanoseconds = end - events[i].begin;
    ends.push_back(end);
  }
}

}  // namespace

void write_trace_file(const std::filesystem::path& file, int rank, std::vector<TraceEvent> events) {
  make_nest(events);
  std::map<std::string, size_t> tracks;
  for (const auto& event : events) tracks.try_emplace(event.track, tracks.size());
  std::vector<std::string> lines;
  lines.push_back(metadata("process_name", rank, 0, {{"name", fmt::format("rank {}", rank)}}).dump());
  lines.push_back(metadata("process_sort_index", rank, 0, {{"sort_index", rank}}).dump());
  for (const auto& [name, track] : tracks)
    lines.push_back(metadata("thread_name", rank, track, {{"name", name}}).dump());
  constexpr int64_t day = int64_t{24} * 3600 * 1'000'000'000;
  int64_t midnight = events.empty() ? 0 : events.front().begin;
  for (const auto& event : events) midnight = std::min(midnight, event.begin);
  midnight -= midnight % day;
  const auto microseconds = [](int64_t nanoseconds) {
    return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
  };
  for (const auto& event : events)
    lines.push_back(fmt::format(R"({{"ph":"X","name":{},"cat":{},"ts":{},"dur":{},"pid":{},"tid":{},"args":{}}})",
                                json_text(json(event.name)), json(event.category).dump(),
                                microseconds(event.begin - midnight), microseconds(event.nanoseconds), rank,
                                tracks.at(event.track), event.arguments.dump()));
  write_file_atomic(file, fmt::format("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n", join(lines, ",\n")));
}

}  // namespace runner
