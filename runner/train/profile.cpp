#include "runner/train/profile.hpp"

#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <set>

#include "runner/base/files.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"

namespace runner {

namespace {

namespace impl = torch::profiler::impl;
namespace kineto = torch::autograd::profiler;
using nlohmann::json;

// Writes a trace in Chrome's format, which Perfetto and chrome://tracing show.
// Source: Trace Event Format (Google, 2016): complete events ("X"), with times in microseconds, and metadata ("M").

struct TraceEvent {
  std::string name, category;
  std::string track;           ///< events of one track nest
  int64_t begin, nanoseconds;  ///< begin: Unix time in nanoseconds
  nlohmann::json arguments = nlohmann::json::object();
};

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

/// The process of the trace is `rank`. Times begin at midnight (UTC), because readers take them as doubles. Each event is one line.
/// All files have the same first and last line, so that files of several ranks can be joined line by line
/// (report/profile_table.hpp).
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

std::set<impl::ActivityType> activities(bool device) {
  std::set<impl::ActivityType> set{impl::ActivityType::CPU};
  if (device) set.insert(impl::ActivityType::CUDA);
  return set;
}

std::string shapes_of(const kineto::KinetoEvent& event) {
  std::string text;
  if (!event.hasShapes()) return text;
  for (const auto& shape : event.shapes())
    if (!shape.empty()) text += fmt::format("{}[{}]", text.empty() ? "" : " ", fmt::join(shape, ", "));
  return text;
}

}  // namespace

OperatorTrace::~OperatorTrace() {
  if (running_) kineto::disableProfiler();
}

void OperatorTrace::start() {
  if (running_) return;
  // Without this, the profiler writes to stderr that there is no GPU.
  ::setenv("KINETO_LOG_LEVEL", "5", /*overwrite=*/0);
  const impl::ProfilerConfig config(impl::ProfilerState::KINETO, /*report_input_shapes=*/true);
  kineto::prepareProfiler(config, activities(device_));
  kineto::enableProfiler(config, activities(device_));
  running_ = true;
}

void OperatorTrace::stop() {
  if (!running_) return;
  running_ = false;
  const auto result = kineto::disableProfiler();
  for (const auto& event : result->events()) {
    if (event.isHiddenEvent()) continue;
    const bool host = event.deviceType() == c10::DeviceType::CPU;
    events_.push_back({.name = event.name(),
                       .track = host ? fmt::format("operators, thread {}", event.startThreadId())
                                     : fmt::format("device stream {}", event.deviceResourceId()),
                       .begin = static_cast<int64_t>(event.startNs()),
                       .nanoseconds = static_cast<int64_t>(event.durationNs()),
                       .shapes = shapes_of(event)});
  }
}

namespace {

/// Waits for the current stream of a device with streams; empty for others.
std::function<void()> wait_for_device(const World& world) {
  if (!world.accelerator.streams) return {};
  return [device = world.device] { c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize(); };
}

/// Nanoseconds from std::chrono::steady_clock to Unix time.
int64_t unix_offset() {
  using std::chrono::nanoseconds, std::chrono::steady_clock, std::chrono::system_clock;
  return std::chrono::duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count() -
         std::chrono::duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

/// "gather" for the instructions that begin and end a gather; other names are unchanged.
std::string collective_name(std::string what) {
  for (const std::string prefix : {"start_", "wait_"})
    if (what.starts_with(prefix)) return what.substr(prefix.size());
  return what;
}

constexpr double second = 1e9;  // nanoseconds

}  // namespace

std::unique_ptr<Profile> Profile::make(const Recipe& recipe, const World& world, const std::filesystem::path& run_dir) {
  if (recipe.run.profiler == "off") return nullptr;
  return std::unique_ptr<Profile>(new Profile(recipe, world, run_dir));
}

Profile::Profile(const Recipe& recipe, const World& world, const std::filesystem::path& run_dir)
    : world_(world),
      wanted_(recipe.run.profile_steps.value_or(std::vector<int64_t>())),
      operators_(world.accelerator.own_memory),
      spans_(wait_for_device(world)) {
  if (recipe.run.profiler == "trace") trace_file_ = run_dir / fmt::format("trace-rank-{}.json", world.rank);
  if (!world.trace) return;
  world.trace->observe([this](const CollectiveCall& call) {
    spans_.collective(name_of(call.operation.kind), static_cast<int64_t>(call.operation.bytes));
  });
}

Profile::~Profile() {
  if (world_.trace) world_.trace->observe(nullptr);
}

bool Profile::records(int64_t step) const {
  if (trace_file_.empty()) return false;
  if (wanted_.empty()) return step == first_step_ + 2 || step == first_step_ + 3;
  return std::ranges::find(wanted_, step) != wanted_.end();
}

void Profile::step_begins(int64_t step) {
  if (first_step_ == 0) first_step_ = counted_ = step;
  // The first step allocates memory and starts threads, so the totals are without it if there are others.
  if (step == first_step_ + 1) {
    spans_.reset_totals();
    counted_ = step;
  }
  last_ = step;
  const bool record = records(step);
  if (record && !recording_) operators_.start();
  if (!record && recording_) {
    operators_.stop();
    write_trace();
  }
  recording_ = record;
  if (record) recorded_.push_back(step);
  spans_.keep_spans(record);
  spans_.set_step(step);
}

void Profile::write_trace() {
  const int64_t offset = unix_offset();
  std::vector<TraceEvent> events;
  for (const auto& span : spans_.spans()) {
    const std::string place = spans_.place(span.name);
    TraceEvent event{.name = span.name.what + (place.empty() ? "" : " " + place),
                     .category = name_of(span.name.phase),
                     .track = span.thread == 0 ? "training" : fmt::format("thread {}", span.thread),
                     .begin = span.begin + offset,
                     .nanoseconds = span.nanoseconds,
                     .arguments = {{"step", span.step}}};
    if (!span.collective.empty()) event.arguments.update({{"collective", span.collective}, {"bytes", span.bytes}});
    events.push_back(std::move(event));
  }
  for (const auto& from : operators_.events()) {
    TraceEvent event{.name = from.name,
                     .category = "operator",
                     .track = from.track,
                     .begin = from.begin,
                     .nanoseconds = from.nanoseconds};
    if (!from.shapes.empty()) event.arguments["shapes"] = from.shapes;
    events.push_back(std::move(event));
  }
  write_trace_file(trace_file_, world_.rank, std::move(events));
  written_ = true;
}

json Profile::totals() const {
  const int64_t steps = last_ - counted_ + 1;
  const double per_step = 1.0 / static_cast<double>(steps);
  std::map<std::string, double> phases;
  std::map<std::string, json> outside;
  std::vector<std::string> block_order;
  std::map<std::string, std::map<std::string, double>> blocks;
  std::map<std::string, json> collectives;
  double step_seconds = 0;
  for (const auto& [name, total] : spans_.totals()) {
    const double seconds = static_cast<double>(total.nanoseconds) / second,
                 own = static_cast<double>(total.own_nanoseconds) / second;
    const std::string phase = name_of(name.phase), place = spans_.place(name);
    if (name.phase == Phase::validation || name.phase == Phase::checkpoint) {
      outside[phase] = {{"times", total.spans}, {"seconds", seconds}};
      continue;
    }
    if (name.phase == Phase::step && place.empty()) step_seconds += seconds * per_step;
    phases[name.phase == Phase::step ? "other" : phase] += own * per_step;
    if (name.block >= 0) {
      if (!blocks.contains(place)) block_order.push_back(place);
      blocks[place][phase] += seconds * per_step;
    }
    if (name.phase != Phase::collective) continue;
    auto& row =
        collectives
            .try_emplace(collective_name(name.what) + " " + place,
                         json{{"name", collective_name(name.what)}, {"of", place}, {"bytes", 0.0}, {"seconds", 0.0}})
            .first->second;
    row["bytes"] = row["bytes"].get<double>() + static_cast<double>(total.bytes) * per_step;
    row["seconds"] = row["seconds"].get<double>() + own * per_step;
  }
  json list = json::array();
  for (const auto& block : block_order)
    list.push_back({{"name", block},
                    {"forward_seconds", blocks[block]["forward"]},
                    {"backward_seconds", blocks[block]["backward"]}});
  json of_collectives = json::array();
  for (const auto& [key, row] : collectives) of_collectives.push_back(row);
  return {{"first_step", counted_}, {"last_step", last_}, {"step_seconds", step_seconds}, {"phases", phases},
          {"outside", outside},     {"blocks", list},     {"collectives", of_collectives}};
}

std::optional<double> Profile::share_of_transfers() const {
  int64_t steps = 0, transfers = 0;
  bool in_pipeline = false;
  for (const auto& [name, total] : spans_.totals()) {
    if (name.phase == Phase::step && spans_.place(name).empty()) steps += total.nanoseconds;
    const std::string_view what = name.what;
    if (!what.starts_with("receive_") && !what.starts_with("send_")) continue;
    in_pipeline = true;
    transfers += total.own_nanoseconds;
  }
  if (!in_pipeline || steps == 0) return std::nullopt;
  return static_cast<double>(transfers) / static_cast<double>(steps);
}

void Profile::finish(EventSink& events) {
  operators_.stop();
  if (recording_) write_trace();
  if (const auto share = first_step_ > 0 ? share_of_transfers() : std::nullopt)
    events.emit("pipeline", {{"wait_share", *share}});
  if (first_step_ > 0 && world_.rank == 0) events.emit("profile", totals());
  if (written_) events.emit("trace", {{"path", trace_file_.string()}, {"steps", recorded_}});
  if (!trace_file_.empty() && !written_ && world_.rank == 0)
    events.emit("note", {{"message", wanted_.empty() ? "there is no trace: the training ended before its third step; "
                                                       "run.profile_steps names other steps"
                                                     : "there is no trace: the training ended before the steps of "
                                                       "run.profile_steps"}});
  recording_ = false;
}

}  // namespace runner
