// Accepts, numbers and ends the other supervisors of an elastic run.
#include "runner/launch/elastic_members.hpp"

#include <poll.h>
#include <algorithm>

#include "runner/base/clock.hpp"
#include "runner/base/log.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/launch/first_cause.hpp"
#include "runner/launch/member.hpp"

namespace runner {

namespace {

constexpr double parting_seconds = 5;

bool stays(const std::unique_ptr<Member>& member) { return member->socket.is_open() && member->leaving == 0; }

std::string numbered(const Member& member) {
  return fmt::format("node {} ({})", member.introduction.placement.node_rank, member.introduction.host);
}

void tell(Member& member, const std::string& text) { member.socket.send({{"say", "tell"}, {"text", text}}); }

}  // namespace

ElasticMembers::ElasticMembers(Introduction leader)
    : leader_(std::move(leader)),
      arrivals_(leader_.placement.master_addr, leader_.placement.master_port, leader_.secret, Arrivals::WhenFull::warn),
      last_arrival_(steady_seconds()) {
  constexpr int descriptors = 1024;  // how many nodes will come is not known
  raise_descriptor_limit(descriptors, "the supervisor of rank 0 of an elastic run");
}

void ElasticMembers::look() {
  for (auto& arrival : arrivals_.take()) admit(std::move(arrival));
  for (auto& member : members_) member->receive();
  for (auto& member : waiting_) {
    member->receive();
    if (member->leaving == 0) continue;
    const Outcome outcome = outcome_of_leaving(member->leaving);
    part_with(std::move(member), outcome);
  }
  std::erase_if(waiting_, [](const auto& member) { return !member || !member->socket.is_open(); });
  for (auto& [member, since] : parting_) {
    member->receive();
    if (steady_seconds() - since > parting_seconds) member->socket.close();
  }
  std::erase_if(parting_, [](const Parting& parting) { return !parting.member->socket.is_open(); });
}

void ElasticMembers::wait(double seconds, int descriptor) const {
  std::vector<pollfd> watched;
  arrivals_.watch(watched);
  for (const auto* members : {&members_, &waiting_})
    for (const auto& member : *members)
      if (member->socket.fd() >= 0) watched.push_back({member->socket.fd(), POLLIN, 0});
  if (descriptor >= 0) watched.push_back({descriptor, POLLIN, 0});
  ::poll(watched.data(), watched.size(), static_cast<int>(seconds * 1000) + 1);
}

void ElasticMembers::admit(Arrival arrival) {
  auto member = member_of(arrival.hello);
  if (!member) return arrival.socket.close();
  const Introduction& other = member->introduction;
  std::string why;
  if (other.placement.job_id != leader_.placement.job_id)
    why = fmt::format("port {} of {} belongs to another job: set another --master-port", leader_.placement.master_port,
                      leader_.placement.master_addr);
  if (why.empty() && other.placement.elastic && other.first_rank() == 0)
    why = fmt::format("{} was started with --node-rank 0, which the run has already: leave it out", describe(other));
  if (why.empty()) why = misplacement(leader_, other);
  if (why.empty()) why = disagreement(leader_, other);
  if (!why.empty()) {
    log::warning("turned away: {}", why);
    return turn_away(arrival.socket, {ExitCode::usage, "failed", why});
  }
  member->socket = std::move(arrival.socket);
  member->socket.send({{"say", "welcome"}});
  last_arrival_ = steady_seconds();
  waiting_.push_back(std::move(member));
}

/// Sends the end. The connection stays open for a while, because closing it with unread data could discard the message.
void ElasticMembers::part_with(std::unique_ptr<Member> member, const Outcome& outcome) {
  member->socket.send(end_message(outcome));
  parting_.push_back({std::move(member), steady_seconds()});
}

int ElasticMembers::there() const {
  return 1 + static_cast<int>(std::ranges::count_if(members_, stays) + std::ranges::count_if(waiting_, stays));
}

std::string ElasticMembers::leaving() const {
  for (const auto& member : members_)
    if (member->leaving != 0) return fmt::format("{} leaves ({})", numbered(*member), signal_name(member->leaving));
  return "";
}

void ElasticMembers::tell_waiting(const std::string& why) {
  for (auto& member : waiting_)
    if (!std::exchange(member->told_to_wait, true)) tell(*member, why);
}

void ElasticMembers::part_with_leaving() {
  for (auto& member : members_) {
    if (member->leaving == 0) continue;
    left_.push_back(fmt::format("{} left ({})", numbered(*member), signal_name(member->leaving)));
    const Outcome outcome = outcome_of_leaving(member->leaving);
    part_with(std::move(member), outcome);
  }
  std::erase(members_, nullptr);
}

bool ElasticMembers::end_newcomer(int rank, const Outcome& failure) {
  const auto found = std::ranges::find_if(members_, [&](const auto& member) {
    const Introduction& who = member->introduction;
    return member->newcomer && rank >= who.first_rank() && rank < who.first_rank() + who.rank_count();
  });
  if (found == members_.end()) return false;
  left_.push_back(fmt::format("{} was ended ({})", numbered(**found), failure.first_cause));
  part_with(std::move(*found), failure);
  members_.erase(found);
  return true;
}

std::vector<std::string> ElasticMembers::take_part(int nodes) {
  part_with_leaving();
  std::vector<std::string> changes = std::exchange(left_, {});
  std::vector<std::unique_ptr<Member>> all;
  for (auto& member : members_) {
    if (stays(member))
      all.push_back(std::move(member));
    else
      changes.push_back(numbered(*member) + " was lost");
  }
  const size_t before = all.size(), wanted = static_cast<size_t>(nodes - 1);
  for (auto& member : waiting_) all.push_back(std::move(member));
  members_.clear();
  waiting_.clear();
  for (size_t i = 0; i < all.size(); ++i) {
    auto& member = all[i];
    const std::string host = member->introduction.host;
    if (i >= wanted) {
      member->told_to_wait = false;
      if (i < before) changes.push_back(host + " waits");
      waiting_.push_back(std::move(member));
      continue;
    }
    if (i >= before) changes.push_back(host + " joined");
    member->newcomer = trains_ && i >= before;
    Placement& place = member->introduction.placement;
    place.node_rank = static_cast<int>(i) + 1;
    place.num_nodes = nodes;
    place.rank = place.node_rank * place.local_size;
    place.world_size = nodes * place.local_size;
    tell(*member, fmt::format("this is node {} of {} now", place.node_rank, nodes));
    members_.push_back(std::move(member));
  }
  trains_ = true;
  settle_addresses();
  return changes;
}

void ElasticMembers::end(const Outcome& outcome) {
  for (auto& arrival : arrivals_.take()) admit(std::move(arrival));
  for (auto& member : waiting_) members_.push_back(std::move(member));
  waiting_.clear();
  Members::end(outcome);
}

}  // namespace runner
