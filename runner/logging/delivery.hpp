// Messages to commands and servers outside: a thread delivers them, tries again with growing pauses, and never holds up the training.
#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runner/logging/patience.hpp"

namespace runner {

/// The tries for one message. Pauses between them: 1 s, 2 s, 4 s ...
struct Retries {
  int tries = 5;
  std::chrono::milliseconds first_pause{1000};
};

/// Delivers messages to one place, in order.
class Delivery {
 public:
  /// The result of a try.
  struct Result {
    std::string problem;  ///< "Could not connect to server"; empty: delivered
    bool again = false;   ///< a later try may succeed
  };
  using Send = std::function<Result(const std::string& message)>;

  /// `place`: for messages, "the webhook at https://localhost". `send` is called on the thread. `stop` ends a call in progress.
  Delivery(std::string place, Send send, std::function<void()> stop, Retries retries = {});
  ~Delivery();  ///< gives up what is not delivered
  Delivery(const Delivery&) = delete;

  /// If 64 messages wait, the oldest one is left out.
  void add(std::string message);
  /// Waits until everything is delivered or given up. What is left when the patience is over is given up, with a warning. Nothing is
  /// delivered after that.
  void finish(const Patience& patience);
  /// What has been warned of since the last call.
  std::vector<std::string> take_problems();

 private:
  void loop();
  void warn(const std::string& problem);
  /// One warning until a message is delivered again.
  void failed(const std::string& problem, int tries);
  void delivered();
  bool pause(std::unique_lock<std::mutex>& lock, std::chrono::milliseconds time);

  const std::string place_;
  const Send send_;
  const std::function<void()> stop_sending_;
  const Retries retries_;
  std::mutex mutex_;  ///< guards the members below
  std::condition_variable changed_;
  std::deque<std::string> queue_;  ///< the first one is being delivered
  std::vector<std::string> problems_;
  bool stop_ = false, failing_ = false;
  std::thread thread_;  ///< last, because it uses the others
};

}  // namespace runner
