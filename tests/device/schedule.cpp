#include "tests/device/schedule.hpp"

#include <c10/util/Exception.h>

#include <algorithm>

namespace runner::simulated {

std::string Stream::name() const {
  std::string of_device = "device " + std::to_string(device);
  return index == 0 ? of_device + " default stream" : of_device + " stream " + std::to_string(index);
}

Schedule::Schedule(int devices) {
  for (int device = 0; device < devices; ++device) {
    devices_.emplace_back();
    for (size_t i = 0; i < 1 + pool_size; ++i) add_stream(device);
  }
}

void Schedule::set_policy(Policy policy) {
  policy_ = policy;
  for (size_t d = 0; d < devices_.size(); ++d) {
    devices_[d].random.seed(policy.seed * 977 + d);
    devices_[d].next_in_pool = 0;
  }
}

// ---- time

void Schedule::set_speeds(const Speeds& speeds) {
  speeds_ = speeds;
  for (auto& device : devices_) {
    device.host_time = 0;
    for (auto& stream : device.streams) stream.time = stream.busy = 0;
  }
}

TimeStatistics Schedule::time(int device) const {
  const auto& streams = devices_.at(static_cast<size_t>(device)).streams;
  TimeStatistics statistics{.end = streams.front().time, .computed = streams.front().busy};
  for (size_t i = 1; i < streams.size(); ++i) statistics.communicated += streams[i].busy;
  return statistics;
}

/// The task is its stream's next one, and what it waits for has passed.
void Schedule::arrive(Stream& stream, const Task& task) {
  stream.time = std::max({stream.time, task.entered, task.after ? task.after->time : 0});
}

void Schedule::end(Stream& stream, const Task& task) {
  if (task.meeting) stream.time = std::max(stream.time, task.meeting->begin);
  stream.time += task.seconds;
  stream.busy += task.seconds;
  if (!task.ends) return;
  task.ends->passed = true;
  task.ends->time = stream.time;
}

// ---- streams

Stream& Schedule::add_stream(int device) {
  auto& streams = devices_.at(static_cast<size_t>(device)).streams;
  size_t index = streams.size();
  return streams.emplace_back(Stream{.device = device, .index = index, .id = static_cast<c10::StreamId>(index)});
}

Stream& Schedule::pool_stream(int device) {
  Device& of = devices_.at(static_cast<size_t>(device));
  return of.streams[1 + of.next_in_pool++ % pool_size];
}

Stream& Schedule::stream(const c10::Stream& stream) {
  return devices_.at(static_cast<size_t>(stream.device_index())).streams.at(static_cast<size_t>(stream.id()));
}

Stream& Schedule::take_stream(int device) {
  auto& unused = devices_.at(static_cast<size_t>(device)).unused;
  if (unused.empty()) return add_stream(device);
  Stream& stream = *unused.back();
  unused.pop_back();
  return stream;
}

void Schedule::give_back(Stream& stream) { devices_[static_cast<size_t>(stream.device)].unused.push_back(&stream); }

// ---- entering

uint64_t Schedule::enter(Stream& stream, Task task) {
  stream.clock.join(host_clock(stream.device));
  task.entered = devices_[static_cast<size_t>(stream.device)].host_time;
  if (task.after && task.after->stream->device == stream.device) stream.clock.join(task.after->clock);
  uint64_t number = stream.clock.tick(stream.index);
  if (task.ends) {
    task.ends->stream = &stream;
    task.ends->clock = stream.clock;
  }
  bool nothing_to_do = !task.kernel && !task.meeting && (!task.after || task.after->passed);
  if (stream.tasks.empty() && nothing_to_do) {
    arrive(stream, task);
    end(stream, task);
  } else {
    stream.tasks.push_back(std::move(task));
  }
  return number;
}

MomentPtr Schedule::record(Stream& stream) {
  auto moment = std::make_shared<Moment>();
  enter(stream, {.ends = moment});
  return moment;
}

void Schedule::wait(Stream& stream, MomentPtr moment) { enter(stream, {.after = std::move(moment)}); }

// ---- running

/// Runs the stream's first task if that may run. `force`: what it waits for is run first.
bool Schedule::run_next(Stream& stream, bool force) {
  Task& task = stream.tasks.front();
  if (task.after && !task.after->passed) {
    auto after = task.after;
    if (!force || !run_until(*after->stream, [&] { return after->passed; })) return false;
  }
  arrive(stream, task);
  if (task.meeting && !meet(task, force)) return false;
  if (auto kernel = std::exchange(task.kernel, {})) kernel();
  end(stream, task);
  stream.tasks.pop_front();
  return true;
}

/// The task is its stream's next one: true when its meeting is over.
bool Schedule::meet(Task& task, bool force) {
  auto meeting = task.meeting;
  meeting->seats[task.seat].at_head = true;
  for (auto& seat : meeting->seats) {
    if (meeting->over || seat.at_head) continue;
    if (!force || !seat.stream || !run_until(*seat.stream, [&] { return meeting->over || seat.at_head; })) return false;
  }
  if (meeting->over) return true;
  meeting->over = true;
  for (const auto& seat : meeting->seats) meeting->begin = std::max(meeting->begin, seat.stream->time);
  wake();
  if (!meeting->aborted) meeting->work();
  return true;
}

/// Runs the stream's tasks in their order, and what they wait for, until `done`; false if something is missing.
bool Schedule::run_until(Stream& stream, const std::function<bool()>& done) {
  if (done()) return true;
  if (stream.running) return false;
  stream.running = true;
  struct Stop {
    Stream& stream;
    ~Stop() { stream.running = false; }
  } stop{stream};
  while (!done()) {
    if (stream.tasks.empty()) return false;
    Task& next = stream.tasks.front();
    bool reached = next.meeting && (!next.after || next.after->passed);
    if (reached) {
      arrive(stream, next);
      next.meeting->seats[next.seat].at_head = true;
    }
    if (reached && done()) return true;  // another rank's stream waited for this one to come here
    if (!run_next(stream, true)) return false;
  }
  return true;
}

void Schedule::run_all_possible(int device, const Stream* but) {
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& stream : devices_[static_cast<size_t>(device)].streams)
      while (&stream != but && !stream.tasks.empty() && run_next(stream, false)) moved = true;
  }
}

void Schedule::run_random(Device& device, uint64_t count) {
  while (count-- > 0) {
    std::vector<Stream*> waiting;
    for (auto& stream : device.streams)
      if (!stream.tasks.empty()) waiting.push_back(&stream);
    if (waiting.empty()) return;
    run_next(*waiting[device.random() % waiting.size()], false);
  }
}

void Schedule::run_some(int device) {
  Device& of = devices_[static_cast<size_t>(device)];
  if (policy_.order == Order::eager) run_all_possible(device, nullptr);
  if (policy_.order == Order::random) run_random(of, of.random() % 4);
}

// ---- waiting

void Schedule::wait_on_host(Lock& lock, const MomentPtr& moment) {
  Stream& stream = *moment->stream;
  auto passed = [&] { return moment->passed; };
  auto deadline = std::chrono::steady_clock::now() + patience;
  if (policy_.order == Order::others_first && !passed()) run_all_possible(stream.device, &stream);
  while (!passed()) {
    if (policy_.order == Order::random) run_random(devices_[static_cast<size_t>(stream.device)], 8);
    if (run_until(stream, passed)) break;
    changed_.wait_for(lock, std::chrono::milliseconds(20));
    TORCH_CHECK(
        std::chrono::steady_clock::now() < deadline, "work on ", stream.name(),
        " does not end: some rank does not call `",
        !stream.tasks.empty() && stream.tasks.front().meeting ? stream.tasks.front().meeting->name : "a collective",
        "`, or ranks call collectives in different orders");
  }
  seen(moment);
}

void Schedule::seen(const MomentPtr& moment) {
  auto& device = devices_[static_cast<size_t>(moment->stream->device)];
  device.host.join(moment->clock);
  device.host_time = std::max(device.host_time, moment->time);
}

void Schedule::wait_for_device(Lock& lock, int device) {
  auto& streams = devices_.at(static_cast<size_t>(device)).streams;
  for (size_t i = 0; i < streams.size(); ++i)
    wait_on_host(lock, record(streams[i]));  // others may add streams meanwhile
}

}  // namespace runner::simulated
