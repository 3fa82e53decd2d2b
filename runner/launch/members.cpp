// The leader's side of the protocol: accepts other supervisors and controls their workers.
#include "runner/launch/members.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <random>

#include "runner/base/clock.hpp"
#include "runner/base/descriptor_limit.hpp"
#include "runner/base/files.hpp"
#include "runner/base/text.hpp"
#include "runner/launch/shared_resources.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr double kill_answer_seconds = 5;  ///< after this time, a supervisor that does not report a kill counts as lost
constexpr double farewell_seconds = 5;

json end_message(const Outcome& outcome) {
  return {{"say", "end"},
          {"code", static_cast<int>(outcome.code)},
          {"status", outcome.status},
          {"first_cause", outcome.first_cause}};
}

Outcome refusal(ExitCode code, const std::string& why) { return {code, "failed", why}; }

}  // namespace

/// One supervisor with its unread messages, sorted by rank.
struct Members::Member {
  struct Inbox {
    std::vector<json> events;
    std::optional<WorkerExit> exit;
  };

  MessageSocket socket;
  Introduction introduction;
  std::string address;           ///< at which other hosts reach it
  std::map<int, Inbox> inboxes;  ///< by the first rank of a worker
  int ranks_of_worker = 1;
  std::vector<int> signals;

  void receive() {
    try {
      while (auto message = socket.receive()) sort(*message);
    } catch (const json::exception&) {
      socket.close();  // the peer does not follow the protocol
    }
  }

  void sort(json& message) {
    if (message.contains("event")) {
      const int rank = message.at("rank").get<int>();
      inboxes[rank - rank % ranks_of_worker].events.push_back(std::move(message));
      return;
    }
    std::string said = message.at("say");
    if (said == "signal") signals.push_back(message.at("signal"));
    if (said != "exit") return;
    WorkerExit exit;
    message.at("code").get_to(exit.code);
    message.at("signal").get_to(exit.signal);
    message.at("oom_suspected").get_to(exit.oom_suspected);
    message.at("log_tail").get_to(exit.log_tail);
    inboxes[message.at("rank").get<int>()].exit = exit;
  }
};

namespace {

/// A worker of another supervisor.
class RemoteWorker final : public Worker {
 public:
  RemoteWorker(Members::Member& member, int rank, std::string log_file)
      : member_(member), rank_(rank), log_file_(std::move(log_file)) {}

  int rank() const override { return rank_; }
  bool running() const override { return running_; }
  int event_fd() const override { return member_.socket.fd(); }
  const std::string& log_file() const override { return log_file_; }

  std::vector<json> read_events() override {
    member_.receive();
    return std::exchange(member_.inboxes[rank_].events, {});
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

  Members::Member& member_;
  int rank_;
  std::string log_file_;
  bool running_ = true;
  double killed_at_ = 0;
};

}  // namespace

namespace {

/// Accepts a connection; the result is closed if the peer has disconnected already. Throws Error(environment) if this
/// process has no free descriptors or memory, because otherwise the other supervisors would be reported as missing.
Descriptor accept_on(const Descriptor& listener) {
  Descriptor connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const bool exhausted = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
  if (connection.is_open() || !exhausted) return connection;
  const int reason = errno;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  throw environment_error(
      "the supervisor of rank 0 cannot accept another connection: {}; it may open {} files (ulimit -n), and needs one "
      "for each other supervisor",
      std::strerror(reason), limit.rlim_cur);
}

}  // namespace

Members::Members(const Introduction& leader, std::chrono::seconds deadline) {
  try {
    meet(leader, deadline);
  } catch (const Error& error) {
    end(refusal(error.code(), error.what()));
    throw;
  }
  settle_addresses();
}

Members::~Members() = default;

void Members::meet(const Introduction& leader, std::chrono::seconds deadline) {
  const Placement& place = leader.placement;
  raise_descriptor_limit(32 + place.world_size / leader.rank_count(),
                         fmt::format("the supervisor of rank 0 of {}", place.world_size));
  int port = place.master_port;
  Descriptor listener = listen_on(place.master_addr, port);
  std::deque<MessageSocket> strangers;  // connected, but have not sent a hello yet
  double until = steady_seconds() + static_cast<double>(deadline.count());
  for (auto missing = missing_ranks(leader); !missing.empty(); missing = missing_ranks(leader)) {
    double left = until - steady_seconds();
    if (left <= 0)
      throw environment_error(
          "rendezvous at {}:{}: {} did not connect within {}: {}, or allow more time (devices.rendezvous_timeout)",
          place.master_addr, port, name_ranks(missing, place.world_size, place.local_size), write_duration(deadline),
          place.launched ? "see the launcher's output about them"
                         : fmt::format("start the same command there with --node-rank {} --master-addr {} "
                                       "--master-port {}",
                                       missing.front() / place.local_size, place.master_addr, port));
    std::vector<pollfd> watched{{listener.get(), POLLIN, 0}};
    for (const auto& socket : strangers) watched.push_back({socket.fd(), POLLIN, 0});
    for (const auto& member : members_) watched.push_back({member->socket.fd(), POLLIN, 0});
    ::poll(watched.data(), watched.size(), static_cast<int>(std::min(left, 1.0) * 1000) + 1);
    if (watched.front().revents)
      if (auto connection = accept_on(listener); connection.is_open()) strangers.emplace_back(std::move(connection));
    for (auto& socket : strangers)
      if (auto hello = socket.receive()) admit(socket, leader, *hello);
    std::erase_if(strangers, [](const MessageSocket& socket) { return !socket.is_open(); });
    for (auto& member : members_) member->receive();
    std::erase_if(members_, [](const auto& member) { return !member->socket.is_open(); });  // it may connect again
  }
  // This check comes last, so that all members receive the error.
  for (const auto& member : members_)
    if (auto why = disagreement(leader, member->introduction); !why.empty()) throw usage_error("{}", why);
}

/// Moves `socket` into a new member if it belongs to this run, otherwise closes it. Throws Error(usage) if its world
/// differs from the leader's.
void Members::admit(MessageSocket& socket, const Introduction& leader, const json& hello) {
  auto member = std::make_unique<Member>();
  try {
    if (hello.at("say") != "hello") return socket.close();
    member->introduction = introduction_from_json(hello);
  } catch (const json::exception&) {
    return socket.close();
  }
  const Introduction& other = member->introduction;
  auto turn_away = [&](const std::string& why) {
    socket.send(end_message(refusal(ExitCode::usage, why)));
    socket.close();
  };
  if (other.placement.job_id != leader.placement.job_id)
    return turn_away(fmt::format("port {} of {} belongs to another job: set another MASTER_PORT",
                                 leader.placement.master_port, leader.placement.master_addr));
  bool ours = other.first_rank() == 0;
  for (const auto& known : members_) ours = ours || known->introduction.first_rank() == other.first_rank();
  if (ours)
    return turn_away(
        fmt::format("{} has already joined: it was started twice, or two nodes have the same "
                    "--node-rank",
                    describe(other)));
  if (auto why = misplacement(leader, other); !why.empty()) {
    turn_away(why);
    throw usage_error("{}", why);
  }
  member->socket = std::exchange(socket, {});
  member->socket.send({{"say", "welcome"}});
  members_.push_back(std::move(member));
}

std::vector<int> Members::missing_ranks(const Introduction& leader) const {
  std::vector<bool> here(static_cast<size_t>(leader.placement.world_size));
  auto mark = [&](const Introduction& who) {
    for (int i = 0; i < who.rank_count(); ++i) here.at(static_cast<size_t>(who.first_rank() + i)) = true;
  };
  mark(leader);
  for (const auto& member : members_) mark(member->introduction);
  std::vector<int> missing;
  for (size_t rank = 0; rank < here.size(); ++rank)
    if (!here[rank]) missing.push_back(static_cast<int>(rank));
  return missing;
}

/// Members on this host connected over the loopback address, at which other hosts cannot reach them. They get this host's
/// address.
void Members::settle_addresses() {
  for (const auto& member : members_)
    if (std::string address = member->socket.own_address(); own_address_.empty() || !is_loopback(address))
      own_address_ = address;
  for (auto& member : members_) {
    std::string address = member->socket.peer_address();
    member->address = is_loopback(address) ? own_address_ : address;
  }
}

std::vector<std::unique_ptr<Worker>> Members::start(const WorkerGroup& group, int store_port) {
  std::string proof = fmt::format("{:x}{:x}", std::random_device()(), std::random_device()());
  proof_file_ = (std::filesystem::path(group.log_dir) / proof_file_name).string();
  write_file_atomic(proof_file_, proof);
  std::vector<std::unique_ptr<Worker>> workers;
  for (auto& member : members_) {
    member->inboxes.clear();
    member->ranks_of_worker = group.ranks_of_worker;
    member->socket.send({{"say", "start"},
                         {"arguments", group.arguments},
                         {"environment", group.environment},
                         {"ranks_of_worker", group.ranks_of_worker},
                         {"log_dir", group.log_dir},
                         {"proof", proof},
                         {"store_port", store_port},
                         {"node_address", member->address}});
    const Introduction& who = member->introduction;
    for (int rank = who.first_rank(); rank < who.first_rank() + who.rank_count(); rank += group.ranks_of_worker)
      workers.push_back(std::make_unique<RemoteWorker>(*member, rank, log_file_of(group, rank)));
  }
  return workers;
}

std::vector<int> Members::take_signals() {
  std::vector<int> signals;
  for (auto& member : members_) {
    signals.insert(signals.end(), member->signals.begin(), member->signals.end());
    member->signals.clear();
  }
  return signals;
}

bool Members::anyone_gone() const {
  return std::any_of(members_.begin(), members_.end(), [](const auto& member) { return !member->socket.is_open(); });
}

void Members::end(const Outcome& outcome) {
  std::error_code ignored;
  if (!proof_file_.empty()) std::filesystem::remove(proof_file_, ignored);
  for (auto& member : members_) member->socket.send(end_message(outcome));
  // Wait until the members close their connections. Closing a socket that has unread data could discard the end message.
  double until = steady_seconds() + farewell_seconds;
  for (auto& member : members_)
    while (member->socket.is_open() && steady_seconds() < until) {
      pollfd readable{member->socket.fd(), POLLIN, 0};
      ::poll(&readable, 1, 100);
      while (member->socket.receive()) {
      }
    }
}

}  // namespace runner
