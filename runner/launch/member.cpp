// Reads the messages of another supervisor and controls its workers.
#include "runner/launch/member.hpp"

#include <signal.h>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runner/base/clock.hpp"
#include "runner/base/text.hpp"
#include "runner/launch/lines.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr size_t differences_max = 8;
constexpr int ranks_max = 1 << 20;

/// "train.max_steps is 40 there and 50 here", for every key whose values differ.
std::vector<std::string> differences(const json& here, const json& there) {
  std::vector<std::string> found;
  auto look = [&](const json& keys, bool both) {
    for (const auto& [section, entries] : keys.items())
      for (const auto& [key, value] : entries.items()) {
        auto pointer = json::json_pointer() / section / key;
        bool in_here = here.contains(pointer), in_there = there.contains(pointer);
        if ((in_here && in_there) != both || (both && here[pointer] == there[pointer])) continue;
        auto write = [&](const json& side, bool present) { return present ? side[pointer].dump() : "not set"; };
        found.push_back(
            fmt::format("{}.{} is {} there and {} here", section, key, write(there, in_there), write(here, in_here)));
      }
  };
  look(here, true);
  look(here, false);
  look(there, false);
  return found;
}

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

json to_json(const Introduction& introduction) {
  const Placement& p = introduction.placement;
  return {{"job", p.job_id},
          {"launched", p.launched},
          {"elastic", p.elastic},
          {"rank", p.rank},
          {"world_size", p.world_size},
          {"local_size", p.local_size},
          {"node_rank", p.node_rank},
          {"num_nodes", p.num_nodes},
          {"host", introduction.host},
          {"alike", introduction.alike}};
}

Introduction introduction_from_json(const json& json) {
  Introduction introduction;
  Placement& p = introduction.placement;
  p.job_id = text_in(json, "job");
  p.launched = flag_in(json, "launched");
  p.elastic = json.contains("elastic") && flag_in(json, "elastic");
  p.world_size = number_in(json, "world_size", 1, ranks_max);
  p.local_size = number_in(json, "local_size", 1, p.world_size);
  p.num_nodes = number_in(json, "num_nodes", 1, p.world_size);
  // Nodes that join an elastic run have the place of a second node, whatever its size is.
  p.rank = number_in(json, "rank", 0, p.elastic ? ranks_max : p.world_size - 1);
  p.node_rank = number_in(json, "node_rank", 0, p.elastic ? ranks_max : p.num_nodes - 1);
  introduction.host = text_in(json, "host");
  introduction.alike = json.value("alike", nlohmann::json());
  const auto& alike = introduction.alike;
  if (!alike.is_object() || !std::ranges::all_of(alike, [](const auto& section) { return section.is_object(); }))
    throw BadMessage("alike");
  return introduction;
}

std::string describe(const Introduction& introduction) {
  if (introduction.placement.elastic) return fmt::format("the node {}", introduction.host);
  return fmt::format("rank {} (node {}, host {})", introduction.first_rank(), introduction.placement.node_rank,
                     introduction.host);
}

std::string misplacement(const Introduction& leader, const Introduction& other) {
  const Placement &here = leader.placement, &there = other.placement;
  if (here.elastic != there.elastic)
    return fmt::format(
        "{} was started for {} run, rank 0 for {} one: every node needs the same devices.min_nodes and max_nodes",
        describe(other), there.elastic ? "an elastic" : "a fixed", here.elastic ? "an elastic" : "a fixed");
  if (here.elastic && here.local_size == there.local_size) return "";
  if (here.num_nodes != there.num_nodes || here.local_size != there.local_size || here.world_size != there.world_size)
    return fmt::format(
        "{} was started for {} x {}, rank 0 for {} x {}: every node needs the same number of ranks (devices.devices, "
        "or devices.cpu_processes on CPU)",
        describe(other), counted(there.num_nodes, "node"), counted(there.local_size, "rank"),
        counted(here.num_nodes, "node"), counted(here.local_size, "rank"));
  if (here.launched != there.launched || (!there.launched && there.rank != there.node_rank * there.local_size))
    return fmt::format("{} does not have the place of a node of this run", describe(other));
  if (there.rank + other.rank_count() > there.world_size)
    return fmt::format("{} is beyond the {} ranks of the run", describe(other), there.world_size);
  return "";
}

std::string disagreement(const Introduction& leader, const Introduction& other) {
  auto found = differences(leader.alike, other.alike);
  if (found.empty()) return "";
  size_t more = found.size() > differences_max ? found.size() - differences_max : 0;
  found.resize(found.size() - more);
  return fmt::format("{} was not started like rank 0: {}{}; every node needs the same command, recipe and version",
                     describe(other), join(found, ", "), more ? fmt::format(", and {} more", more) : "");
}

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
