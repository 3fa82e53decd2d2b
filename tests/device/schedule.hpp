// Streams as queues of tasks. There is no thread behind a stream: tasks run in the host thread that waits for some of
// them, in an order that the policy chooses among those that streams and events allow.
#pragma once
#include <c10/core/Stream.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "tests/device/clock.hpp"
#include "tests/device/policy.hpp"
#include "tests/device/speeds.hpp"

namespace runner::simulated {

struct Stream;

/// A moment in a stream's work, as an event records it.
struct Moment {
  Stream* stream = nullptr;
  Clock clock = {};  ///< the tasks that come before it
  bool passed = false;
  double time = 0;  ///< simulated; once it has passed
};
using MomentPtr = std::shared_ptr<Moment>;

/// A task of several streams, one a device: a collective. It runs when it is the next task of each of them.
struct Meeting {
  struct Seat {
    Stream* stream = nullptr;  ///< null until its rank has called the collective
    bool at_head = false;
  };
  std::string name = {};
  std::vector<Seat> seats = {};
  std::function<void()> work = {};
  bool over = false;
  bool aborted = false;  ///< a rank has failed; `work` is left out
  double begin = 0;      ///< simulated time; once it is over
};

struct Task {
  std::function<void()> kernel = {};  ///< may be empty
  MomentPtr after = {};               ///< it cannot run before this has passed
  MomentPtr ends = {};                ///< passes when it has run
  std::shared_ptr<Meeting> meeting = {};
  size_t seat = 0;
  double seconds = 0;  ///< that it takes, simulated
  double entered = 0;  ///< simulated time at which the host entered it
};

struct Stream {
  int device = 0;
  size_t index = 0;  ///< on its device, and in clocks
  c10::StreamId id = 0;
  Clock clock = {};  ///< the tasks that come before the next one
  std::deque<Task> tasks = {};
  bool running = false;
  double time = 0;  ///< simulated: until then it is busy or waits
  double busy = 0;  ///< the seconds of its tasks

  /// "device 0 default stream", "device 0 stream 3".
  std::string name() const;
};

/// Held by the caller of everything below.
using Lock = std::unique_lock<std::mutex>;

class Schedule {
 public:
  explicit Schedule(int devices);

  /// Also begins again with the first stream of the pools.
  void set_policy(Policy policy);
  /// Time begins again.
  void set_speeds(const Speeds& speeds);
  const Speeds& speeds() const { return speeds_; }
  TimeStatistics time(int device) const;

  // ---- streams
  Stream& default_stream(int device) { return devices_.at(static_cast<size_t>(device)).streams.front(); }
  /// The next stream of the device's pool, round robin.
  Stream& pool_stream(int device);
  Stream& stream(const c10::Stream& stream);
  /// A stream for one owner, e.g. a communicator.
  Stream& take_stream(int device);
  void give_back(Stream& stream);

  // ---- what host threads enter; nothing waits here
  /// Returns the task's number in its stream. It comes after all that the device's host threads have waited for.
  uint64_t enter(Stream& stream, Task task);
  MomentPtr record(Stream& stream);
  void wait(Stream& stream, MomentPtr moment);
  /// After a call has entered its tasks: runs what the policy wants to run now.
  void run_some(int device);

  // ---- what host threads wait for
  /// Runs tasks until `moment` has passed; releases the lock while another rank's call is missing. Throws if it never
  /// comes.
  void wait_on_host(Lock& lock, const MomentPtr& moment);
  void wait_for_device(Lock& lock, int device);
  /// The host has seen that `moment` has passed.
  void seen(const MomentPtr& moment);
  /// What the device's host threads know to have ended.
  const Clock& host_clock(int device) const { return devices_.at(static_cast<size_t>(device)).host; }
  /// Another thread has entered a collective, or has given up.
  void wake() { changed_.notify_all(); }

 private:
  struct Device {
    std::deque<Stream> streams;  ///< the default stream, the pool, and those of single owners
    std::vector<Stream*> unused;
    size_t next_in_pool = 0;
    Clock host;
    double host_time = 0;  ///< simulated: of the latest moment that its threads have waited for
    std::mt19937_64 random;
  };

  static void arrive(Stream& stream, const Task& task);
  static void end(Stream& stream, const Task& task);
  bool run_next(Stream& stream, bool force);
  bool meet(Task& task, bool force);
  bool run_until(Stream& stream, const std::function<bool()>& done);
  void run_all_possible(int device, const Stream* but);
  void run_random(Device& device, uint64_t count);
  Stream& add_stream(int device);

  static constexpr size_t pool_size = 8;
  static constexpr std::chrono::seconds patience{60};
  Policy policy_;
  Speeds speeds_;
  std::deque<Device> devices_;
  std::condition_variable changed_;
};

}  // namespace runner::simulated
