#include "strategies/hivemind/peer.hpp"

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

}  // namespace runner::swarm
