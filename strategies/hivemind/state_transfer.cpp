#include "strategies/hivemind/state_transfer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/error.hpp"

namespace runner::swarm {

namespace {

constexpr size_t most_tensors = 100'000, name_limit = 1024, scalars_limit = 65'535, sent_at_once = 1 << 20;

/// The peer works, and cannot give its state now.
struct NoStateYet : ConnectionError {
  using ConnectionError::ConnectionError;
};

/// The head of a state: what load() checks before it takes any bytes.
Bytes head_of(const State& state) {
  ByteWriter out;
  out.number(state.epoch).text(state.scalars).number(static_cast<uint32_t>(state.tensors.size()));
  for (const auto& tensor : state.tensors) out.text(tensor.name).number(static_cast<uint64_t>(tensor.bytes.size()));
  return out.take();
}

}  // namespace

void check_head(const std::vector<TensorSize>& tensors) {
  size_t bytes = sizeof(int64_t) + sizeof(uint16_t) + scalars_limit + sizeof(uint32_t);
  for (const auto& tensor : tensors) {
    if (tensor.name.size() > name_limit)
      throw usage_error("hivemind: the name of a tensor has {} bytes, and {} are possible: `{}`", tensor.name.size(),
                        name_limit, tensor.name);
    bytes += sizeof(uint16_t) + tensor.name.size() + sizeof(uint64_t);
  }
  if (tensors.size() > most_tensors || bytes > payload_limit)
    throw usage_error(
        "hivemind: a list of the model's {} tensors has {} bytes; peers send at most {} tensors and {} bytes of it",
        tensors.size(), bytes, most_tensors, payload_limit);
}

StateTransfer::StateTransfer(PeerTable& table, Server& server, const Digest& key, Options options)
    : table_(table), stopping_(server.stopping()), key_(key), options_(options) {
  server.on(MessageType::want_state, [this](const Message& message, Channel& channel) { on_want(message, channel); });
}

void StateTransfer::give(State state) {
  std::lock_guard lock(mutex_);
  if (waiting_ > 0) given_ = std::make_shared<const State>(std::move(state));
  ++gifts_;
  changed_.notify_all();
}

/// A state that was given before the request is old.
std::shared_ptr<const State> StateTransfer::wait_for_state(Channel& channel) {
  ++waiting_;
  struct Waiting {
    std::atomic<int>& count;
    ~Waiting() { --count; }
  } const waiting{waiting_};
  std::unique_lock lock(mutex_);
  const auto limit = Clock::now() + options_.load_timeout;
  for (const int64_t before = gifts_; gifts_ == before;) {
    if (stopping_ || Clock::now() >= limit || channel.closed_by_peer()) throw ConnectionError("no state");
    changed_.wait_for(lock, Milliseconds(50));
  }
  return given_;
}

void StateTransfer::on_want(const Message& message, Channel& channel) {
  auto in = message.reader();
  const auto schema = in.number<uint64_t>();
  in.end();
  const auto soon = [&] { return Clock::now() + options_.request_timeout; };
  if (!available_ || schema != table_.own().schema) return channel.send(MessageType::rejected, {}, soon());
  struct Release {  // also if sending fails
    StateTransfer& of;
    ~Release() {
      std::lock_guard lock(of.mutex_);
      if (of.waiting_ == 0) of.given_.reset();
    }
  } const release{*this};
  const auto state = wait_for_state(channel);
  channel.send(MessageType::state, head_of(*state), soon());
  for (const auto& tensor : state->tensors)
    for (size_t begin = 0; begin < tensor.bytes.size(); begin += sent_at_once)
      channel.send(MessageType::state_bytes,
                   std::span(tensor.bytes).subspan(begin, std::min(sent_at_once, tensor.bytes.size() - begin)), soon());
}

State StateTransfer::load_from(const PeerRecord& peer, const std::vector<TensorSize>& like) const {
  auto deadline = Clock::now() + options_.request_timeout;
  Channel channel = Channel::connect(peer.at, key_, deadline, stopping_);
  channel.send(MessageType::want_state, ByteWriter().number(peer.schema).done(), deadline);
  const Message head = channel.receive(Clock::now() + options_.load_timeout);
  if (head.type == MessageType::rejected) throw NoStateYet("it has no state for this model yet");
  if (head.type != MessageType::state) throw ProtocolError("no answer to a request for the state");
  auto in = head.reader();
  State state{.epoch = in.number<int64_t>()};
  state.scalars = in.text(scalars_limit);
  const auto count = in.number<uint32_t>();
  if (state.epoch < 0 || count != like.size() || count > most_tensors)
    throw ProtocolError("the state of the peer has other tensors");
  for (const auto& expected : like) {
    const std::string name = in.text(name_limit);
    const auto size = in.number<uint64_t>();
    if (name != expected.name || size != expected.bytes)
      throw ProtocolError(fmt::format("the state of the peer has `{}` with {} bytes instead of `{}` with {}", name,
                                      size, expected.name, expected.bytes));
    state.tensors.push_back({.name = name, .bytes = Bytes(size)});
  }
  in.end();
  for (auto& tensor : state.tensors)
    for (size_t done = 0; done < tensor.bytes.size();) {
      const Message part = channel.receive(MessageType::state_bytes, Clock::now() + options_.request_timeout);
      if (part.payload.empty() || part.payload.size() > tensor.bytes.size() - done)
        throw ProtocolError("the peer sends another number of bytes than it said");
      std::ranges::copy(part.payload, tensor.bytes.begin() + static_cast<std::ptrdiff_t>(done));
      done += part.payload.size();
    }
  return state;
}

std::optional<State> StateTransfer::load(const std::vector<PeerRecord>& from, const std::vector<TensorSize>& like,
                                         std::string& why) const {
  for (const auto& peer : from) {
    try {
      return load_from(peer, like);
    } catch (const std::runtime_error& error) {
      why = fmt::format("peer {} at {}: {}", to_text(peer.id), to_text(peer.at), error.what());
      if (!dynamic_cast<const NoStateYet*>(&error)) table_.failed(peer.id);
    }
  }
  return std::nullopt;
}

}  // namespace runner::swarm
