#include "strategies/hivemind/gossip.hpp"

#include <algorithm>

namespace runner::swarm {

Gossip::Gossip(PeerTable& table, Server& server, const Digest& key, Options options)
    : table_(table), stopping_(server.stopping()), key_(key), options_(std::move(options)) {
  server.on(MessageType::gossip, [this](const Message& message, Channel& channel) {
    take(message, channel.peer_address());
    channel.send(MessageType::gossip, records(), Clock::now() + options_.timeout);
  });
}

void Gossip::start() {
  thread_ = std::thread([this] { run(); });
}

void Gossip::stop() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(leaves_, true)) return;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Gossip::wake() {
  std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

Bytes Gossip::records() const {
  const auto list = table_.to_send(most_records);
  ByteWriter out;
  out.number(static_cast<uint16_t>(list.size()));
  for (const auto& record : list) write(out, record);
  return out.take();
}

/// The first record is that of the sender, which is returned. Only that one may lack its host.
PeerId Gossip::take(const Message& message, const std::string& from) {
  auto in = message.reader();
  const auto count = in.number<uint16_t>();
  if (count == 0 || count > most_records) throw ProtocolError("a message has an impossible number of records");
  std::vector<PeerRecord> list;
  for (size_t i = 0; i < count; ++i) list.push_back(read_record(in));
  in.end();
  const PeerId sender = list[0].id;
  for (auto& record : list) {
    complete_host(record.at, from, record.id == sender);
    if (!record.at.host.empty()) table_.merge(std::move(record));
  }
  return sender;
}

/// Returns who has answered.
PeerId Gossip::exchange(Channel& channel, Deadline deadline) {
  return take(channel.ask(MessageType::gossip, records(), MessageType::gossip, deadline), channel.peer_address());
}

void Gossip::exchange_as(const PeerId& peer, Channel& channel, Deadline deadline) {
  if (exchange(channel, deadline) != peer) throw ConnectionError("another peer has this address now");
}

/// Uses the connection of the last exchange; if that has ended, a new one.
void Gossip::exchange_with(const PeerRecord& peer) {
  const auto deadline = Clock::now() + options_.timeout;
  if (const auto open = channels_.find(peer.id); open != channels_.end()) {
    try {
      exchange_as(peer.id, open->second, deadline);
      return table_.worked(peer.id);
    } catch (const std::runtime_error&) {
      channels_.erase(open);
    }
  }
  try {
    Channel channel = Channel::connect(peer.at, key_, deadline, stopping_);
    exchange_as(peer.id, channel, deadline);
    channels_.emplace(peer.id, std::move(channel));
    table_.worked(peer.id);
  } catch (const std::runtime_error&) {
    table_.failed(peer.id);
  }
}

int Gossip::contact_initial_peers(std::string& why) {
  int answered = 0;
  for (const auto& peer : options_.initial_peers) {
    try {
      const auto deadline = Clock::now() + options_.timeout;
      Channel channel = Channel::connect(peer, key_, deadline, stopping_);
      if (exchange(channel, deadline) != table_.own().id)
        ++answered;
      else
        why = to_text(peer) + " is this peer itself";
    } catch (const std::runtime_error& error) {
      why = error.what();
    }
  }
  return answered;
}

void Gossip::exchange_with_all() {
  std::set<PeerId> asked;
  for (bool more = true; more && !stopping_;) {
    more = false;
    for (const auto& peer : table_.to_contact()) {
      if (stopping_ || !asked.insert(peer.id).second) continue;
      more = true;
      try {
        const auto deadline = Clock::now() + options_.timeout;
        Channel channel = Channel::connect(peer.at, key_, deadline, stopping_);
        exchange_as(peer.id, channel, deadline);
      } catch (const std::runtime_error&) {
        table_.failed(peer.id);
      }
    }
  }
}

void Gossip::make_round(bool contact) {
  auto peers = table_.to_contact();
  std::ranges::shuffle(peers, random_);
  if (peers.size() > options_.partners) peers.resize(options_.partners);
  for (const auto& peer : peers) {
    exchange_with(peer);
    if (stopping_) return;
  }
  std::erase_if(channels_, [&](const auto& open) { return !table_.find(open.first); });
  std::string why;
  if (peers.empty() || contact) contact_initial_peers(why);
}

void Gossip::run() {
  constexpr int rounds_between_contacts = 30;  // joins swarms that have lost sight of each other
  int quiet = 0;
  std::unique_lock lock(mutex_);
  while (!leaves_) {
    const bool changes = std::exchange(woken_, false);
    lock.unlock();
    if (!changes) table_.refresh_own();
    make_round(!changes && ++quiet % rounds_between_contacts == 0);
    lock.lock();
    changed_.wait_for(lock, options_.least_interval, [&] { return leaves_; });
    changed_.wait_for(lock, options_.interval, [&] { return leaves_ || woken_; });
  }
  lock.unlock();
  table_.change_own([](PeerRecord& own) { own.lifetime = 0; });
  make_round(false);
}

}  // namespace runner::swarm
