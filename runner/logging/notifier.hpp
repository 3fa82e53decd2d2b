// Tells people outside that a run has ended or needs attention (logging.notify): by a command, or by a request to a server.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runner/config/recipe.hpp"
#include "runner/logging/run_listener.hpp"

namespace runner {

// Messages to commands and servers outside: a thread delivers them, tries again with growing pauses, and never holds up the training.

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
  /// The problems that were warned of since the last call.
  std::vector<std::string> take_problems();

 private:
  void loop();
  void warn(const std::string& problem);
  /// Warns once until a message is delivered again.
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

/// A notification is one line of JSON:
///   {"schema": 1, "kind": "end" | "failure" | "alert", "run", "name", "host", "folder", "text", "content",
///    "status", "message", "steps", "metrics"}     of end and failure; message: why it ended
///   {..., "event": {"event": kind, ...}}          of alert: the event as in the ledger
/// Notifications of a sweep are described at notify_sweep(). `text` is a sentence. Slack, Mattermost and Teams show it; Discord shows
/// `content`, which is the same. A command, run by /bin/sh, reads the line from its standard input; it is tried again unless its exit
/// code says that it cannot run (2, 126, 127). A webhook gets the line by POST. ${env:NAME} in both is the variable's value, which is in no
/// record and no message.
class Notifier final : public RunListener {
 public:
  /// `ledger`: knows the run's name at each time, and gets an event for what could not be delivered. `retries`: of each notification.
  Notifier(const std::vector<Recipe::Logging::Notify>& targets, Ledger& ledger, const std::string& run,
           const fs::path& folder, Retries retries = {});

  std::string title() const override { return "notifications"; }
  void begin(const AttemptStart& attempt) override;
  void points(const PointGroup& group) override;
  void event(const std::string& kind, const nlohmann::json& fields) override;
  void tick() override { record_problems(); }
  /// Waits until all notifications are delivered, as long as RunEnd::patience.
  void end(const RunEnd& end) override;

 private:
  struct Target {
    std::vector<std::string> on;
    std::unique_ptr<Delivery> delivery;
  };
  void send(Target& target, const char* kind, const std::string& text, const nlohmann::json& more);
  /// "NAME (ID)" of the run, which may have a new name.
  std::string who();
  void record_problems();

  Ledger& ledger_;
  std::vector<Target> targets_;
  nlohmann::json run_;                                 ///< the fields that all notifications have
  nlohmann::json metrics_ = nlohmann::json::object();  ///< the last values of loss and of the metrics of validation
  int64_t step_ = 0;
};

/// The targets of `notify` that want the notifications of a sweep's trials, too.
std::vector<Recipe::Logging::Notify> of_trials(std::vector<Recipe::Logging::Notify> targets);

/// The end of a sweep, for one notification to each target that wants the end or the failure.
struct SweepEnd {
  std::string sweep, name, folder, status, message;
  bool failed = false;                               ///< the sweep, or all of its trials
  nlohmann::json counts = nlohmann::json::object();  ///< status -> number of trials
  nlohmann::json best = nullptr;                     ///< {trial, run, metric, value}
};
/// {"schema": 1, "kind": "end" | "failure", "sweep", "name", "host", "folder", "text", "content", "status", "message", "trials": counts,
/// "best"}. Waits until all are delivered, at most 20 s.
void notify_sweep(const std::vector<Recipe::Logging::Notify>& targets, const SweepEnd& end, Retries retries = {});
/// Throws Error(environment) if a webhook needs libcurl, which is not installed.
void check_targets(const std::vector<Recipe::Logging::Notify>& targets);

}  // namespace runner
