// The leader's side of the protocol: accepts other supervisors and controls their workers.
#include "runner/launch/members.hpp"

#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/loopback.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/base/text.hpp"
#include "runner/launch/arrivals.hpp"
#include "runner/launch/member.hpp"

namespace runner {

using nlohmann::json;

namespace {

constexpr double farewell_seconds = 5;

Outcome refusal(ExitCode code, const std::string& why) { return {code, "failed", why}; }

/// How a user starts the process that runs `rank`.
std::string how_to_start(const Placement& place, int rank) {
  if (place.launched) return "see the launcher's output about them";
  if (place.plugin)
    return fmt::format("start the same command there, where {} gives node_rank = {}", place.cluster,
                       rank / place.local_size);
  return fmt::format("start the same command there with --node-rank {} --master-addr {} --master-port {}",
                     rank / place.local_size, place.master_addr, place.master_port);
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

void Members::meet(const Introduction& leader, std::chrono::seconds deadline) {
  const Placement& place = leader.placement;
  const int supervisors = place.world_size / leader.rank_count();
  raise_descriptor_limit(32 + supervisors, fmt::format("the supervisor of rank 0 of {}", place.world_size));
  Arrivals arrivals(place.master_addr, place.master_port, leader.secret, Arrivals::WhenFull::fail,
                    Arrivals::strangers_of_run + static_cast<size_t>(supervisors));
  double until = steady_seconds() + static_cast<double>(deadline.count());
  for (auto missing = missing_ranks(leader); !missing.empty(); missing = missing_ranks(leader)) {
    double left = until - steady_seconds();
    if (left <= 0)
      throw environment_error(
          "rendezvous at {}:{}: {} did not connect within {}: {}, or allow more time (devices.rendezvous_timeout){}",
          place.master_addr, place.master_port, name_ranks(missing, place.world_size, place.local_size),
          write_duration(deadline), how_to_start(place, missing.front()),
          turned_away_.empty() ? "" : "; turned away: " + turned_away_);
    std::vector<pollfd> watched;
    arrivals.watch(watched);
    for (const auto& member : members_) watched.push_back({member->socket.fd(), POLLIN, 0});
    ::poll(watched.data(), watched.size(), static_cast<int>(std::min(left, 1.0) * 1000) + 1);
    for (auto& arrival : arrivals.take()) admit(arrival.socket, leader, arrival.hello);
    for (auto& member : members_) member->receive();
    std::erase_if(members_, [](const auto& member) { return !member->socket.is_open(); });  // it may connect again
  }
  // This check comes last, so that all members receive the error.
  for (const auto& member : members_)
    if (auto why = disagreement(leader, member->introduction); !why.empty()) throw usage_error("{}", why);
}

/// Moves `socket` into a new member if it belongs to this run, otherwise closes it: anybody may connect to the port.
void Members::admit(MessageSocket& socket, const Introduction& leader, const json& hello) {
  auto member = member_of(hello);
  if (!member) return socket.close();
  const Introduction& other = member->introduction;
  auto refuse = [&](const std::string& why) {
    if (why != turned_away_) log::warning("turned away: {}", why);
    turned_away_ = why;
    turn_away(socket, refusal(ExitCode::usage, why));
  };
  if (other.placement.job_id != leader.placement.job_id)
    return refuse(fmt::format("port {} of {} belongs to another job: set another {}", leader.placement.master_port,
                              leader.placement.master_addr, leader.placement.plugin ? "main_port" : "MASTER_PORT"));
  if (auto why = taken_place(leader, other); !why.empty()) return refuse(why);
  if (auto why = misplacement(leader, other); !why.empty()) return refuse(why);
  member->socket = std::exchange(socket, {});
  member->socket.send({{"say", "welcome"}});
  members_.push_back(std::move(member));
}

/// Why `other` cannot have its place; "" if nobody has it. Who has a place keeps it, and the message names the address.
std::string Members::taken_place(const Introduction& leader, const Introduction& other) const {
  const std::string twice = fmt::format("it was started twice, or two nodes have the same {}",
                                        leader.placement.plugin ? "node_rank" : "--node-rank");
  if (other.first_rank() == 0) return fmt::format("{} has already joined: {}", describe(other), twice);
  const auto holder = std::ranges::find_if(
      members_, [&](const auto& known) { return known->introduction.first_rank() == other.first_rank(); });
  if (holder == members_.end()) return "";
  const std::string stranger =
      leader.secret.empty()
          ? fmt::format(", or a stranger has its place ({} keeps strangers out)", nodes_secret_variable)
          : "";
  return fmt::format("{} has already joined, from {} (host {}): {}{}", describe(other),
                     (*holder)->socket.peer_address(), (*holder)->introduction.host, twice, stranger);
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
  own_address_.clear();
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
    const Introduction& who = member->introduction;
    member->socket.send({{"say", "start"},
                         {"arguments", group.arguments},
                         {"environment", group.environment},
                         {"ranks_of_worker", group.ranks_of_worker},
                         {"log_dir", group.log_dir},
                         {"proof", proof},
                         {"store_port", store_port},
                         {"node_address", member->address},
                         {"first_rank", who.first_rank()},
                         {"world_size", who.placement.world_size},
                         {"node_rank", who.placement.node_rank},
                         {"num_nodes", who.placement.num_nodes}});
    for (int rank = who.first_rank(); rank < who.first_rank() + who.rank_count(); rank += group.ranks_of_worker)
      workers.push_back(remote_worker(*member, rank, log_file_of(group, rank)));
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
      member->drop_received();
    }
}

}  // namespace runner
