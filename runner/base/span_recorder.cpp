#include "runner/base/span_recorder.hpp"

#include <algorithm>
#include <chrono>
#include <exception>

#include "runner/base/error.hpp"

namespace runner {

namespace {

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool outside_steps(Phase phase) { return phase == Phase::validation || phase == Phase::checkpoint; }
bool on_device(Phase phase) {
  return phase == Phase::forward || phase == Phase::backward || phase == Phase::collective || phase == Phase::update ||
         phase == Phase::program;
}

}  // namespace

const char* name_of(Phase phase) {
  constexpr const char* names[] = {"step",   "data",    "forward", "backward",   "collective",
                                   "update", "program", "hooks",   "validation", "checkpoint"};
  return names[static_cast<size_t>(phase)];
}

SpanRecorder::Thread& SpanRecorder::mine() {
  return threads_.try_emplace(std::this_thread::get_id(), Thread{.index = threads_.size()}).first->second;
}

void SpanRecorder::begin(const SpanName& name) {
  const std::lock_guard lock(mutex_);
  mine().open.push_back({.name = name, .begin = now()});
}

void SpanRecorder::collective(const char* kind, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  auto& open = mine().open;
  if (open.empty()) return;
  auto& span = open.back();
  span.bytes += bytes;
  if (span.collective.find(kind) == std::string::npos)
    span.collective += (span.collective.empty() ? "" : ", ") + std::string(kind);
}

void SpanRecorder::end() {
  const bool mine_alone = std::this_thread::get_id() == rank_thread_;
  std::unique_lock lock(mutex_);
  Thread& thread = mine();
  RUNNER_CHECK(!thread.open.empty());
  if (wait_ && mine_alone && std::uncaught_exceptions() == 0 && on_device(thread.open.back().name.phase)) {
    lock.unlock();  // other threads may use the recorder meanwhile; the map keeps `thread` in place
    wait_();
    lock.lock();
  }
  const Open span = std::move(thread.open.back());
  thread.open.pop_back();
  const int64_t took = now() - span.begin;
  if (keep_)
    spans_.push_back({.name = span.name,
                      .thread = thread.index,
                      .begin = span.begin,
                      .nanoseconds = took,
                      .collective = span.collective,
                      .bytes = span.bytes,
                      .step = step_});
  // Time inside validation and checkpoints is not added to the phases of a step.
  const auto whole = [](const Open& open) { return outside_steps(open.name.phase); };
  const bool in_step = (thread.open.empty() ? span : thread.open.front()).name.phase == Phase::step;
  if (!mine_alone || std::ranges::any_of(thread.open, whole) || (!in_step && !whole(span))) return;
  if (!thread.open.empty()) thread.open.back().inside += took;
  auto& total = totals_[span.name];
  ++total.spans;
  total.nanoseconds += took;
  total.own_nanoseconds += took - (whole(span) ? 0 : span.inside);
  total.bytes += span.bytes;
}

void SpanRecorder::set_names(std::vector<std::string> blocks, std::vector<std::string> units) {
  const std::lock_guard lock(mutex_);
  blocks_ = std::move(blocks);
  units_ = std::move(units);
}

std::string SpanRecorder::place(const SpanName& name) const {
  const std::lock_guard lock(mutex_);
  if (name.block >= 0) return blocks_.at(static_cast<size_t>(name.block));
  return name.unit >= 0 ? units_.at(static_cast<size_t>(name.unit)) : "";
}

}  // namespace runner
