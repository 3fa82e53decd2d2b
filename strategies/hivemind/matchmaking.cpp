#include "strategies/hivemind/matchmaking.hpp"

#include <algorithm>

namespace runner::swarm {

namespace {

uint64_t wall_milliseconds_at(Deadline deadline) {
  const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch() + left;
  return static_cast<uint64_t>(std::chrono::duration_cast<Milliseconds>(since_1970).count());
}

std::pair<uint64_t, PeerId> rank_of(const Search& search, const PeerId& id) { return {search.expiry, id}; }

Bytes bytes_of(const Group& group) {
  ByteWriter out;
  write(out, group.id);
  out.number(static_cast<uint16_t>(group.members.size()));
  for (const auto& member : group.members) {
    write(out, member.id);
    out.text(member.at.host).number(member.at.port);
  }
  return out.take();
}

}  // namespace

Matchmaking::Matchmaking(PeerTable& table, Gossip& gossip, Server& server, const Digest& key, Options options)
    : table_(table), gossip_(gossip), stopping_(server.stopping()), key_(key), options_(options) {
  server.on(MessageType::join, [this](const Message& message, Channel& channel) { on_join(message, channel); });
}

// ---- the side that is asked

std::optional<Matchmaking::Refusal> Matchmaking::refusal_of(const PeerRecord& asking) const {
  if (own_.purpose.empty() || own_.purpose != asking.search.purpose) return Refusal::not_searching;
  const PeerRecord own = table_.own();
  if (asking.schema != own.schema) return Refusal::other_schema;
  if (asked_) return Refusal::redirected;
  if (rank_of(asking.search, asking.id) <= rank_of(own_, own.id)) return Refusal::earlier;
  if (is_full()) return Refusal::full;
  if (followers_.contains(asking.id)) return Refusal::duplicate;
  return std::nullopt;
}

void Matchmaking::refuse(Channel& channel, Refusal why, const PeerId& redirect) const {
  ByteWriter out;
  out.number(static_cast<uint8_t>(why));
  write(out, redirect);
  channel.send(MessageType::rejected, out.done(), Clock::now() + options_.request_timeout);
}

void Matchmaking::on_join(const Message& message, Channel& channel) {
  auto in = message.reader();
  PeerRecord asking = read_record(in);
  in.end();
  if (asking.search.purpose.empty()) throw ProtocolError("a request to join without a purpose");
  complete_host(asking.at, channel.peer_address(), true);
  table_.merge(asking);
  Lock lock(mutex_);
  if (const auto why = refusal_of(asking)) {
    const PeerId redirect = asked_.value_or(PeerId());
    lock.unlock();
    return refuse(channel, *why, redirect);
  }
  followers_[asking.id] = {.id = asking.id, .at = asking.at};
  const auto outcome = outcome_;
  const auto expiry = own_.expiry, now = wall_milliseconds_at(Clock::now());
  const auto left = static_cast<uint32_t>(expiry > now ? expiry - now : 0);
  changed_.notify_all();
  lock.unlock();
  channel.send(MessageType::accepted, ByteWriter().number(left).done(), Clock::now() + options_.request_timeout);
  lock.lock();
  const auto limit = Clock::now() + Milliseconds(left) + options_.request_timeout;
  while (!outcome->decided && Clock::now() < limit && !stopping_) {
    changed_.wait_for(lock, Milliseconds(50));
    if (outcome->decided || !channel.closed_by_peer()) continue;
    if (outcome == outcome_) followers_.erase(asking.id);
    return;
  }
  const Outcome decided = *outcome;
  lock.unlock();
  if (!decided.group) return refuse(channel, Refusal::disbanded, decided.better);
  channel.send(MessageType::begin, bytes_of(*decided.group), Clock::now() + options_.request_timeout);
}

// ---- the side that looks

std::optional<Group> Matchmaking::find_group(const std::string& purpose, Deadline deadline,
                                             const std::function<void()>& while_waiting) {
  const Search search{.purpose = purpose, .expiry = wall_milliseconds_at(deadline)};
  const auto announce = [&](const Search& value) {
    table_.change_own([&](PeerRecord& own) { own.search = value; });
    gossip_.wake();
  };
  {
    Lock lock(mutex_);
    own_ = search;
    outcome_ = std::make_shared<Outcome>();
    followers_.clear();
    avoided_.clear();
  }
  announce(search);
  Lock lock(mutex_);
  auto group = lead_or_follow(lock, deadline, while_waiting);
  if (!group) disband(PeerId());
  own_ = {};
  asked_.reset();
  lock.unlock();
  announce({});
  return group;
}

std::optional<Group> Matchmaking::lead_or_follow(Lock& lock, Deadline deadline,
                                                 const std::function<void()>& while_waiting) {
  constexpr Milliseconds pause{10}, avoidance{200};
  std::optional<PeerId> redirect;
  while (!stopping_) {
    auto leader = redirect ? table_.find(*std::exchange(redirect, {})) : earlier_peer();
    if (leader && !followers_.empty()) disband(leader->id);
    if (leader) {
      asked_ = leader->id;
      lock.unlock();
      Answer answer = ask(*leader, deadline);
      lock.lock();
      asked_.reset();
      if (answer.group) return answer.group;
      redirect = answer.redirect;
      avoided_[leader->id] = Clock::now() + avoidance;
      if (redirect && avoided_.contains(*redirect)) redirect.reset();
    }
    const bool over = Clock::now() >= deadline;
    if (!leader && !followers_.empty() && (over || is_full() || everybody_has_joined())) return close_group();
    if (over || (!leader && everybody_has_joined())) return std::nullopt;
    changed_.wait_for(lock, pause);
    if (!while_waiting) continue;
    lock.unlock();
    while_waiting();
    lock.lock();
  }
  return std::nullopt;
}

/// The first of the peers that look for the same, if it comes before this peer.
std::optional<PeerRecord> Matchmaking::earlier_peer() const {
  const PeerRecord own = table_.own();
  std::optional<PeerRecord> best;
  auto first = rank_of(own_, own.id);
  for (auto& peer : table_.live()) {
    if (peer.search.purpose != own_.purpose || peer.schema != own.schema) continue;
    const auto avoided = avoided_.find(peer.id);
    if (avoided != avoided_.end() && Clock::now() < avoided->second) continue;
    if (const auto rank = rank_of(peer.search, peer.id); rank < first) {
      first = rank;
      best = std::move(peer);
    }
  }
  return best;
}

/// Whether all peers that train and are not further than this one have joined; true if there is no other one.
bool Matchmaking::everybody_has_joined() const {
  const PeerRecord own = table_.own();
  return std::ranges::all_of(table_.live(), [&](const PeerRecord& peer) {
    return !peer.participates || peer.schema != own.schema || peer.epoch > own.epoch || followers_.contains(peer.id);
  });
}

Group Matchmaking::close_group() {
  const PeerRecord own = table_.own();
  Group group{.id = random_peer_id()};
  auto members = followers_;
  members[own.id] = {.id = own.id, .at = own.at};
  for (const auto& [id, member] : members) {
    if (id == own.id) group.own = group.members.size();
    group.members.push_back(member);
  }
  outcome_->group = group;
  outcome_->decided = true;
  changed_.notify_all();
  return group;
}

void Matchmaking::disband(const PeerId& better) {
  outcome_->better = better;
  outcome_->decided = true;
  outcome_ = std::make_shared<Outcome>();
  followers_.clear();
  changed_.notify_all();
}

Matchmaking::Answer Matchmaking::ask(const PeerRecord& leader, Deadline own_deadline) const {
  try {
    const auto deadline = Clock::now() + options_.request_timeout;
    Channel channel = Channel::connect(leader.at, key_, deadline, stopping_);
    ByteWriter out;
    write(out, table_.own());
    channel.send(MessageType::join, out.done(), deadline);
    Message message = channel.receive(deadline);
    if (message.type == MessageType::accepted) {
      const auto begins = Clock::now() + Milliseconds(message.reader().number<uint32_t>());
      message = channel.receive(std::min(begins, own_deadline) + options_.request_timeout);
    }
    if (message.type == MessageType::begin) return {.group = read_group(message)};
    if (message.type != MessageType::rejected) throw ProtocolError("no answer to a request to join");
    auto in = message.reader();
    const auto why = static_cast<Refusal>(in.number<uint8_t>());
    const PeerId redirect = read_id(in);
    const bool redirected = (why == Refusal::redirected || why == Refusal::disbanded) && redirect != PeerId();
    if (!redirected || redirect == table_.own().id) return {};
    return {.redirect = redirect};
  } catch (const std::runtime_error&) {
    table_.failed(leader.id);
    return {};
  }
}

/// The leader does not know its own host: it is the one to which this peer has connected.
Group Matchmaking::read_group(const Message& message) const {
  auto in = message.reader();
  const PeerId own = table_.own().id;
  Group group{.id = read_id(in)};
  const auto count = in.number<uint16_t>();
  if (count < 2 || count > options_.most_members) throw ProtocolError("a group has an impossible size");
  bool found = false;
  for (size_t i = 0; i < count; ++i) {
    Member member{.id = read_id(in)};
    member.at.host = in.text(host_limit);
    member.at.port = in.number<uint16_t>();
    if (i > 0 && !(group.members.back().id < member.id)) throw ProtocolError("the members of a group have no order");
    if (member.id == own) {
      group.own = i;
      found = true;
    } else if (const auto known = table_.find(member.id)) {
      member.at = known->at;
    } else if (member.at.host.empty() || member.at.port == 0) {
      throw ProtocolError("a member of a group has no address");
    }
    group.members.push_back(std::move(member));
  }
  in.end();
  if (!found) throw ProtocolError("a group without this peer");
  return group;
}

}  // namespace runner::swarm
