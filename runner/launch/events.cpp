// Both ends of the event pipe: the worker's queue and writer thread, and the supervisor's line reader.
#include "runner/launch/events.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/clock.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr size_t quoted_bytes_max = 200;
constexpr auto patience = std::chrono::milliseconds(100);

int fd_from_environment(const char* variable) {
  const char* text = std::getenv(variable);
  int fd = text ? std::atoi(text) : -1;
  if (fd >= 0) ::fcntl(fd, F_SETFD, FD_CLOEXEC);  // child processes of the worker must not keep it open
  return fd;
}

}  // namespace

struct EventSink::Impl {
  int fd, settled_fd;
  std::mutex mutex;
  std::condition_variable wake, drained;
  struct Event {
    int rank;
    std::string kind;
    double time;
    std::function<json()> fields;
  };
  std::vector<Event> queue;  ///< the writer thread formats the events, which saves time on the emitting thread
  bool writing = false, hurry = false, closing = false, gone = false;
  std::thread writer;

  Impl(int fd, int settled_fd) : fd(fd), settled_fd(settled_fd) {
    if (fd < 0) return;
    BlockedSignals blocked;
    writer = std::thread([this] { run(); });
  }

  ~Impl() {
    if (!writer.joinable()) return;
    {
      std::lock_guard lock(mutex);
      closing = true;
    }
    wake.notify_one();
    writer.join();
  }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      wake.wait_for(lock, patience, [&] { return closing || hurry; });
      hurry = false;
      if (queue.empty() && closing) return;
      if (queue.empty()) continue;
      auto events = std::exchange(queue, {});
      writing = true;
      lock.unlock();
      std::string lines;
      for (const auto& event : events) lines += line_of(event);
      bool written = write_all(lines);
      lock.lock();
      writing = false;
      gone = gone || !written;
      drained.notify_all();
    }
  }

  std::string line_of(const Event& event) const {
    json fields = event.fields();
    fields["event"] = event.kind;
    fields["rank"] = event.rank;
    fields["time"] = event.time;
    return to_line(std::move(fields));
  }

  void add(Event event, bool in_hurry) {
    if (fd < 0) return;
    {
      std::lock_guard lock(mutex);
      if (gone) return;
      queue.push_back(std::move(event));
      hurry = hurry || in_hurry;
    }
    if (in_hurry) wake.notify_one();
  }

  bool write_all(std::string_view bytes) const {
    while (!bytes.empty()) {
      ssize_t n = ::write(fd, bytes.data(), bytes.size());
      if (n >= 0) {
        bytes.remove_prefix(static_cast<size_t>(n));
      } else if (errno == EAGAIN) {
        pollfd writable{fd, POLLOUT, 0};
        ::poll(&writable, 1, -1);
      } else if (errno != EINTR) {
        return false;
      }
    }
    return true;
  }
};

EventSink::EventSink(int rank)
    : rank_(rank),
      impl_(std::make_shared<Impl>(fd_from_environment("RUNNER_EVENT_FD"), fd_from_environment("RUNNER_SETTLED_FD"))) {}
EventSink::EventSink(int rank, int fd) : rank_(rank), impl_(std::make_shared<Impl>(fd, -1)) {}
EventSink::EventSink(int rank, const EventSink& first) : rank_(rank), impl_(first.impl_) {}

EventSink::~EventSink() = default;

void EventSink::emit(const std::string& kind, json fields) {
  auto given = [fields = std::move(fields)]() mutable { return std::move(fields); };
  impl_->add({rank_, kind, wall_seconds(), std::move(given)}, /*in_hurry=*/true);
}

void EventSink::emit_soon(const std::string& kind, std::function<json()> fields) {
  impl_->add({rank_, kind, wall_seconds(), std::move(fields)}, /*in_hurry=*/false);
}

void EventSink::record(const std::string& kind, json fields) {
  fields["saved"] = saved_.load();
  emit(kind, std::move(fields));
}

void EventSink::snapshot_taken(double step) { saved_ = step; }

void EventSink::settle() {
  if (impl_->fd < 0 || impl_->settled_fd < 0) return;
  emit("settle");
  uint64_t answers = 0;
  while (::read(impl_->settled_fd, &answers, sizeof answers) < 0 && errno == EINTR) {
  }
}

void EventSink::flush() {
  std::unique_lock lock(impl_->mutex);
  impl_->hurry = true;
  impl_->wake.notify_one();
  impl_->drained.wait(lock, [&] { return impl_->gone || (impl_->queue.empty() && !impl_->writing); });
}

json EventReader::parse(std::string_view line) const {
  json event = from_line(line).value_or(json());
  if (!event.contains("event") || !event["event"].is_string()) {
    std::string quoted(line.substr(0, quoted_bytes_max));
    if (line.size() > quoted_bytes_max) quoted += "...";
    event = {{"event", "note"}, {"message", "not an event: " + quoted}};
  }
  if (!event.contains("time") || !event["time"].is_number()) event["time"] = wall_seconds();
  const auto rank = event.find("rank");
  const bool own = rank != event.end() && rank->is_number_integer() && *rank >= rank_ && *rank < rank_ + ranks_;
  if (!own) event["rank"] = rank_;
  return event;
}

std::vector<json> EventReader::feed(std::string_view bytes) {
  std::vector<json> events;
  for (const std::string& line : lines_.feed(bytes)) events.push_back(parse(line));
  return events;
}

std::vector<json> EventReader::finish() {
  std::string rest = lines_.finish();
  return rest.empty() ? std::vector<json>() : std::vector<json>{parse(rest)};
}

}  // namespace runner
