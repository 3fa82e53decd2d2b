#include "strategies/hivemind/channel.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace runner::swarm {

namespace {

constexpr std::array<uint8_t, 4> protocol_mark = {'R', 'S', 'W', '1'};
constexpr size_t code_size = 16, head_size = 5;
using Greeting = std::array<uint8_t, 4 + std::tuple_size_v<Nonce>>;

Greeting new_greeting() {
  Greeting greeting{};
  std::ranges::copy(protocol_mark, greeting.begin());
  std::ranges::copy(new_nonce(), greeting.begin() + protocol_mark.size());
  return greeting;
}

Greeting read_greeting(Socket& socket, Deadline deadline) {
  Greeting greeting{};
  socket.read(greeting, deadline);
  if (!std::ranges::equal(protocol_mark, std::span(greeting).first(4)))
    throw ProtocolError("the other end is no peer of this version");
  return greeting;
}

}  // namespace

Digest swarm_key(const std::string& secret, const std::string& run_id) {
  Hmac hmac(bytes_of_text(secret));
  hmac.add(bytes_of_text("swarm " + run_id));
  return hmac.finish();
}

Channel Channel::connect(const Endpoint& to, const Digest& key, Deadline deadline, const Stop& stop) {
  Socket socket = connect_to(to, deadline, stop);
  const Greeting server = read_greeting(socket, deadline), client = new_greeting();
  socket.write(client, deadline);
  return {std::move(socket), key_of_direction(key, "to server", server, client),
          key_of_direction(key, "to client", server, client), false};
}

Channel Channel::accept(Socket socket, const Digest& key, Deadline deadline) {
  const Greeting server = new_greeting();
  socket.write(server, deadline);
  const Greeting client = read_greeting(socket, deadline);
  return {std::move(socket), key_of_direction(key, "to client", server, client),
          key_of_direction(key, "to server", server, client), true};
}

Digest Channel::code_of(Hmac& hmac, uint64_t number, std::span<const uint8_t> head, std::span<const uint8_t> payload) {
  hmac.add(ByteWriter().number(number).done());
  hmac.add(head);
  hmac.add(payload);
  return hmac.finish();
}

void Channel::send(MessageType type, std::span<const uint8_t> payload, Deadline deadline) {
  if (payload.size() > (!accepted_ && sent_ == 0 ? first_payload_limit : payload_limit))
    throw std::length_error(fmt::format("a message of {} bytes is too long", payload.size()));
  const auto head = ByteWriter().number(static_cast<uint32_t>(payload.size())).number(type_number(type)).take();
  const Digest code = code_of(out_, sent_++, head, payload);
  Bytes message;
  message.reserve(head.size() + payload.size() + code_size);
  message.insert(message.end(), head.begin(), head.end());
  message.insert(message.end(), payload.begin(), payload.end());
  message.insert(message.end(), code.begin(), code.begin() + code_size);
  socket_.write(message, deadline);
}

/// An end that claims many bytes and sends few gets little memory.
Bytes Channel::read_payload(size_t size, Deadline deadline) {
  constexpr size_t step = 64 << 10;
  Bytes payload;
  while (payload.size() < size) {
    const size_t before = payload.size();
    payload.resize(std::min(size, before + step));
    socket_.read(std::span(payload).subspan(before), deadline);
  }
  return payload;
}

Message Channel::receive(Deadline deadline, size_t most) {
  std::array<uint8_t, head_size> head{};
  socket_.read(head, deadline);
  ByteReader fields(head);
  const size_t size = fields.number<uint32_t>();
  if (accepted_ && received_ == 0) most = std::min(most, first_payload_limit);
  if (size > most) throw ProtocolError(fmt::format("a message claims {} bytes; {} are allowed", size, most));
  Message message{.type = static_cast<MessageType>(fields.number<uint8_t>())};
  message.payload = read_payload(size, deadline);
  std::array<uint8_t, code_size> given{};
  socket_.read(given, deadline);
  const Digest code = code_of(in_, received_, head, message.payload);
  if (!equal_in_constant_time(given, std::span(code).first(code_size)))
    throw ProtocolError(received_ == 0 ? "a message is not authentic: the peers have different secrets or run ids"
                                       : "a message is not authentic");
  ++received_;
  return message;
}

Message Channel::receive(MessageType type, Deadline deadline, size_t most) {
  Message message = receive(deadline, most);
  if (message.type != type)
    throw ProtocolError(
        fmt::format("a message has type {} instead of {}", type_number(message.type), type_number(type)));
  return message;
}

}  // namespace runner::swarm
