#include "strategies/hivemind/peer_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "runner/base/loopback.hpp"

namespace runner::swarm {

PeerId random_peer_id() {
  std::random_device source;
  PeerId id;
  for (auto& byte : id.bytes) byte = static_cast<uint8_t>(source());
  return id;
}

std::string to_text(const PeerId& id) {
  std::string text;
  for (size_t i = 0; i < 4; ++i) text += fmt::format("{:02x}", id.bytes[i]);
  return text;
}

void complete_host(Endpoint& at, const std::string& from, bool own_record) {
  const bool lacks = own_record && at.host.empty();
  if (lacks || (is_loopback(at.host) && !is_loopback(from))) at.host = from;
}

void write(ByteWriter& out, const PeerId& id) { out.bytes(id.bytes); }

PeerId read_id(ByteReader& in) {
  PeerId id;
  std::ranges::copy(in.take(id.bytes.size()), id.bytes.begin());
  return id;
}

void write(ByteWriter& out, const PeerRecord& record) {
  write(out, record.id);
  out.text(record.at.host).number(record.at.port).number(record.schema);
  out.number(record.target).number(record.started);
  out.number(record.sequence).number(record.lifetime).number(static_cast<uint8_t>(record.participates));
  out.number(record.epoch).number(record.samples).number(record.rate);
  out.text(record.search.purpose).number(record.search.expiry);
}

PeerRecord read_record(ByteReader& in) {
  PeerRecord record;
  record.id = read_id(in);
  record.at.host = in.text(host_limit);
  record.at.port = in.number<uint16_t>();
  record.schema = in.number<uint64_t>();
  record.target = in.number<int64_t>();
  record.started = in.number<uint64_t>();
  record.sequence = in.number<uint64_t>();
  record.lifetime = in.number<uint32_t>();
  record.participates = in.number<uint8_t>() != 0;
  record.epoch = in.number<int64_t>();
  record.samples = in.number<int64_t>();
  record.rate = in.number<double>();
  record.search.purpose = in.text(purpose_limit);
  record.search.expiry = in.number<uint64_t>();
  constexpr int64_t most = int64_t{1} << 48;
  if (record.at.port == 0 || record.target < 1 || record.started > uint64_t{most} || record.epoch < 0 ||
      record.epoch > most || record.samples < 0 || record.samples > most ||
      !(record.rate >= 0 && std::isfinite(record.rate)))
    throw ProtocolError("a record of a peer has an impossible value");
  return record;
}

namespace {

uint32_t left_until(Clock::time_point until, Clock::time_point now) {
  return static_cast<uint32_t>(std::max<int64_t>(1, std::chrono::ceil<Milliseconds>(until - now).count()));
}

}  // namespace

PeerTable::PeerTable(PeerRecord own, Limits limits) : limits_(limits), own_(std::move(own)) {
  own_.lifetime = static_cast<uint32_t>(limits_.lifetime.count());
}

PeerRecord PeerTable::own() const {
  std::lock_guard lock(mutex_);
  return own_;
}

void PeerTable::change_own(const std::function<void(PeerRecord&)>& change) {
  std::lock_guard lock(mutex_);
  change(own_);
  ++own_.sequence;
}

void PeerTable::take_place(uint64_t now) {
  std::lock_guard lock(mutex_);
  if (own_.started != 0) return;
  own_.started = now;
  for (const auto& [id, entry] : entries_)
    if (entry.record.schema == own_.schema) own_.started = std::max(own_.started, entry.record.started + 1);
  ++own_.sequence;
}

void PeerTable::refresh_own() {
  std::lock_guard lock(mutex_);
  ++own_.sequence;
}

/// The record of a peer that has left stays for a lifetime, so that older records do not bring it back.
void PeerTable::merge(PeerRecord record) {
  std::lock_guard lock(mutex_);
  if (record.id == own_.id) return;
  const auto now = Clock::now();
  const auto found = entries_.find(record.id);
  if (found != entries_.end() && found->second.record.sequence >= record.sequence && now < found->second.until) return;
  if (found == entries_.end()) {
    forget_expired();
    if (entries_.size() >= limits_.peers) return;
  }
  Entry& entry = entries_[record.id];
  const auto valid = record.lifetime == 0 ? limits_.lifetime : Milliseconds(record.lifetime);
  entry.until = now + std::min(valid, limits_.lifetime);
  entry.record = std::move(record);
}

template <typename Condition>
std::vector<PeerRecord> PeerTable::select(const Condition& condition) const {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::vector<PeerRecord> list;
  for (const auto& [id, entry] : entries_)
    if (entry.record.lifetime > 0 && now < entry.until && condition(entry, now)) list.push_back(entry.record);
  return list;
}

std::vector<PeerRecord> PeerTable::valid() const {
  return select([](const Entry&, auto) { return true; });
}
std::vector<PeerRecord> PeerTable::live() const {
  return select([](const Entry& entry, auto) { return entry.failures == 0; });
}
std::vector<PeerRecord> PeerTable::to_contact() const {
  return select([](const Entry& entry, auto now) { return now >= entry.paused; });
}

std::vector<PeerRecord> PeerTable::to_send(size_t most) const {
  std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  std::vector<PeerRecord> list{own_};
  for (const auto& [id, entry] : entries_) {
    if (now >= entry.until) continue;
    list.push_back(entry.record);
    if (list.back().lifetime > 0) list.back().lifetime = left_until(entry.until, now);
  }
  if (list.size() <= most) return list;
  static thread_local std::mt19937_64 random{std::random_device{}()};
  std::shuffle(list.begin() + 1, list.end(), random);
  list.resize(most);
  return list;
}

std::optional<PeerRecord> PeerTable::find(const PeerId& id) const {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end() || found->second.record.lifetime == 0 || Clock::now() >= found->second.until)
    return std::nullopt;
  return found->second.record;
}

void PeerTable::failed(const PeerId& id) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  const auto pause = limits_.first_pause * (int64_t{1} << std::min(entry.failures++, 20));
  entry.paused = Clock::now() + std::min<Milliseconds>(pause, limits_.longest_pause);
}

void PeerTable::worked(const PeerId& id) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(id);
  if (found == entries_.end()) return;
  found->second.failures = 0;
  found->second.paused = {};
}

void PeerTable::forget_expired() {
  const auto now = Clock::now();
  std::erase_if(entries_, [&](const auto& entry) { return now >= entry.second.until; });
}

}  // namespace runner::swarm
