// Reads the messages of another supervisor and controls its workers.
#include "runner/launch/member.hpp"

#include <signal.h>

#include <utility>

#include "runner/base/clock.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr double kill_answer_seconds = 5;  ///< after this time, a supervisor that does not report a kill counts as lost

int stop_signal_in(const json& message) {
  const int signal = number_in(message, "signal", 1, NSIG);
  if (signal != SIGINT && signal != SIGTERM && signal != SIGHUP) throw BadMessage("signal");
  return signal;
}

/// A worker of another supervisor.
class RemoteWorker final : public Worker {
 public:
  RemoteWorker(Member& member, int rank, std::string log_file)
      : member_(member), rank_(rank), log_file_(std::move(log_file)) {}

  int rank() const override { return rank_; }
  bool running() const override { return running_; }
  int event_fd() const override { return member_.socket.fd(); }
  const std::string& log_file() const override { return log_file_; }

  std::vector<json> read_events() override {
    member_.receive();
    auto& inbox = member_.inboxes[rank_];
    inbox.bytes = 0;
    return std::exchange(inbox.events, {});
  }

  /// Only rank 0 emits `settle`, and rank 0 is never remote.
  std::function<void()> answer() override {
    return [] {};
  }

  std::optional<WorkerExit> poll_exit() override {
    if (!running_) return std::nullopt;
    auto exit = std::exchange(member_.inboxes[rank_].exit, {});
    if (!exit && killed_at_ > 0 && steady_seconds() - killed_at_ > kill_answer_seconds) member_.socket.close();
    if (!exit && !member_.socket.is_open()) {
      exit.emplace();
      exit->code = -1;
      exit->gone_with = member_.introduction.host;
    }
    running_ = !exit;
    return exit;
  }

  void send(int signal) override { tell(signal, false); }
  void send_group(int signal) override {
    tell(signal, true);
    if (signal == SIGKILL) killed_at_ = steady_seconds();
  }

 private:
  void tell(int signal, bool group) {
    if (running_) member_.socket.send({{"say", "send"}, {"rank", rank_}, {"signal", signal}, {"group", group}});
  }

  Member& member_;
  int rank_;
  std::string log_file_;
  bool running_ = true;
  double killed_at_ = 0;
};

}  // namespace

namespace {

/// Gives `take` the messages that have arrived, up to the bounds of Member::receive().
template <typename Take>
void take_some(MessageSocket& socket, Take&& take) {
  size_t bytes = 0;
  for (size_t i = 0; i < Member::messages_at_once && bytes < Member::bytes_at_once; ++i) {
    auto message = socket.receive();
    if (!message) return;
    bytes += socket.received_bytes();
    take(*message);
  }
}

}  // namespace

void Member::receive() {
  try {
    take_some(socket, [this](json& message) { sort(message); });
  } catch (const std::exception&) {
    socket.close();  // the peer does not follow the protocol
  }
}

void Member::drop_received() {
  take_some(socket, [](const json&) {});
}

void Member::keep(int worker, json event) {
  Inbox& inbox = inboxes[worker];
  inbox.bytes += socket.received_bytes();
  if (inbox.events.size() >= events_of_inbox || inbox.bytes > bytes_of_inbox) throw BadMessage("event");
  inbox.events.push_back(std::move(event));
}

int Member::rank_in(const json& message) const {
  const int first = introduction.first_rank();
  return number_in(message, "rank", first, first + introduction.rank_count() - 1);
}

void Member::sort(json& message) {
  if (message.contains("event")) {
    const int rank = rank_in(message);
    text_in(message, "event");
    return keep(rank - rank % ranks_of_worker, std::move(message));
  }
  const std::string said = text_in(message, "say");
  if (said == "signal" && signals.size() < signals_kept) signals.push_back(stop_signal_in(message));
  if (said == "leave") leaving = stop_signal_in(message);
  if (said != "exit") return;
  WorkerExit exit;
  exit.code = number_in(message, "code", -1, 255);
  exit.signal = number_in(message, "signal", 0, NSIG);
  exit.oom_suspected = flag_in(message, "oom_suspected");
  message.at("log_tail").get_to(exit.log_tail);
  inboxes[rank_in(message)].exit = exit;
}

std::unique_ptr<Member> member_of(const json& hello) {
  auto member = std::make_unique<Member>();
  try {
    if (text_in(hello, "say") != "hello") return nullptr;
    member->introduction = introduction_from_json(hello);
  } catch (const BadMessage&) {
    return nullptr;
  }
  return member;
}

std::unique_ptr<Worker> remote_worker(Member& member, int rank, std::string log_file) {
  return std::make_unique<RemoteWorker>(member, rank, std::move(log_file));
}

Outcome outcome_of_leaving(int signal) {
  const bool interrupted = signal == SIGINT;
  return {interrupted ? ExitCode::interrupted : ExitCode::preempted, interrupted ? "interrupted" : "preempted", ""};
}

json end_message(const Outcome& outcome) {
  return {{"say", "end"},
          {"code", static_cast<int>(outcome.code)},
          {"status", outcome.status},
          {"first_cause", outcome.first_cause}};
}

void turn_away(MessageSocket& socket, const Outcome& outcome) {
  socket.send(end_message(outcome));
  socket.close();
}

}  // namespace runner
