#include "strategies/hivemind/all_reduce.hpp"

#include <algorithm>
#include <cmath>
#include <system_error>

namespace runner::swarm {

std::shared_ptr<const std::vector<float>> PartAverage::contribute(size_t member, size_t piece,
                                                                  std::vector<float> values, double weight,
                                                                  Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (excluded_.contains(member)) throw ConnectionError("this member is excluded from the average");
  if (next_.at(member)++ != piece) throw ProtocolError("a member sends a piece out of order");
  auto& entry = pieces_[piece];
  if (!entry) {
    entry = std::make_shared<Piece>();
    entry->first = Clock::now();
  }
  const auto own = entry;
  if (!own->arrived.empty() && own->arrived.begin()->second.values.size() != values.size())
    throw ProtocolError("a piece has another size");
  own->arrived[member] = {std::move(values), weight};
  while (!own->average) {
    if (is_complete(*own)) {
      complete(*own);
      pieces_.erase(piece);
      changed_.notify_all();
      break;
    }
    if (changed_.wait_until(lock, std::min(deadline, own->first + patience_)) == std::cv_status::no_timeout) continue;
    if (own->average) break;
    if (Clock::now() >= deadline) throw ConnectionError("the time of the averaging is over");
    for (size_t other = 0; other < members_; ++other)
      if (!own->arrived.contains(other)) excluded_.insert(other);
  }
  return own->average;
}

void PartAverage::exclude(size_t member) {
  std::lock_guard lock(mutex_);
  excluded_.insert(member);
  changed_.notify_all();
}

std::set<size_t> PartAverage::excluded() const {
  std::lock_guard lock(mutex_);
  return excluded_;
}

bool PartAverage::is_complete(const Piece& piece) const {
  for (size_t member = 0; member < members_; ++member)
    if (!piece.arrived.contains(member) && !excluded_.contains(member)) return false;
  return true;
}

/// Without any weight the average is that of equal weights.
void PartAverage::complete(Piece& piece) {
  double total = 0;
  for (const auto& [member, one] : piece.arrived) total += one.weight;
  std::vector<double> sums(piece.arrived.begin()->second.values.size());
  for (const auto& [member, one] : piece.arrived) {
    const double weight = total > 0 ? one.weight / total : 1.0 / static_cast<double>(piece.arrived.size());
    if (weight == 0) continue;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += weight * static_cast<double>(one.values[i]);
  }
  auto average = std::make_shared<std::vector<float>>(sums.size());
  std::ranges::transform(sums, average->begin(), [](double sum) { return static_cast<float>(sum); });
  piece.average = std::move(average);
  piece.arrived.clear();
}

namespace {

bool are_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

Bytes answer_of(Compression compression, std::span<const float> average, std::vector<float> sent) {
  if (compression == Compression::none) return compress(compression, average);
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = average[i] - sent[i];
  return compress(compression, sent);
}

void take_answer(Compression compression, std::span<float> own, std::span<const uint8_t> bytes) {
  const auto answer = decompress(compression, bytes, own.size());
  if (!are_finite(answer)) throw ProtocolError("an average that is not finite");
  for (size_t i = 0; i < own.size(); ++i) own[i] = compression == Compression::none ? answer[i] : own[i] + answer[i];
}

}  // namespace

AllReduce::AllReduce(Server& server, const Digest& key, Options options)
    : stopping_(server.stopping()), key_(key), options_(options) {
  server.on(MessageType::reduce, [this](const Message& message, Channel& channel) { on_reduce(message, channel); });
}

AllReduce::Range AllReduce::part_of(size_t values, size_t members, size_t member) {
  return {values * member / members, values * (member + 1) / members};
}

AllReduce::Range AllReduce::piece_of(const Range& part, size_t piece) const {
  const size_t begin = part.begin + piece * options_.piece;
  return {begin, std::min(begin + options_.piece, part.end)};
}

// ---- the side that averages

/// A member may begin before this peer knows of the group.
std::shared_ptr<AllReduce::Round> AllReduce::wait_for_round(const PeerId& group) {
  std::unique_lock lock(mutex_);
  const auto limit = Clock::now() + options_.request_timeout;
  while (!rounds_.contains(group)) {
    if (stopping_ || Clock::now() >= limit) throw ConnectionError("no such group");
    changed_.wait_for(lock, Milliseconds(50));
  }
  return rounds_.at(group);
}

void AllReduce::on_reduce(const Message& message, Channel& channel) {
  auto in = message.reader();
  const PeerId group = read_id(in);
  const auto member = in.number<uint16_t>();
  const auto values = in.number<uint64_t>();
  const auto compression = in.number<uint8_t>();
  const auto weight = in.number<double>();
  in.end();
  if (!(weight >= 0 && std::isfinite(weight))) throw ProtocolError("a weight that is none");
  const auto round = wait_for_round(group);
  if (member >= round->group.members.size() || member == round->group.own)
    throw ProtocolError("no such member of the group");
  if (values != round->values || compression != static_cast<uint8_t>(round->compression))
    throw ProtocolError("a member has other values than the group");
  try {
    serve_member(*round, member, weight, channel);
  } catch (...) {
    round->part.exclude(member);
    throw;
  }
}

void AllReduce::serve_member(Round& round, size_t member, double weight, Channel& channel) {
  const Range part = part_of(round.values, round.group.members.size(), round.group.own);
  for (size_t piece = 0; piece < pieces_in(part); ++piece) {
    const auto arrives = std::min(round.deadline, Clock::now() + options_.sender_timeout);
    const Message message = channel.receive(MessageType::values, arrives, most_bytes_of_piece());
    auto sent = decompress(round.compression, message.payload, piece_of(part, piece).size());
    if (!are_finite(sent)) throw ProtocolError("values that are not finite");
    const auto average = round.part.contribute(member, piece, sent, weight, round.deadline);
    channel.send(MessageType::average, answer_of(round.compression, *average, std::move(sent)),
                 std::min(round.deadline, Clock::now() + options_.request_timeout));
  }
}

// ---- the side that sends

/// Own values are rounded as those of other members are, so that values which are equal on all members stay as they are.
bool AllReduce::average_own_part(Round& round, std::span<float> values, double weight) {
  const Range part = part_of(round.values, round.group.members.size(), round.group.own);
  try {
    for (size_t piece = 0; piece < pieces_in(part); ++piece) {
      const Range range = piece_of(part, piece);
      const auto own = values.subspan(range.begin, range.size());
      auto sent = decompress(round.compression, compress(round.compression, own), own.size());
      const auto average = round.part.contribute(round.group.own, piece, sent, weight, round.deadline);
      take_answer(round.compression, own, answer_of(round.compression, *average, std::move(sent)));
    }
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

bool AllReduce::send_part(const Round& round, size_t member, std::span<float> values, double weight) const {
  const Range part = part_of(round.values, round.group.members.size(), member);
  if (part.size() == 0) return true;
  try {
    const auto soon = [&](Milliseconds time) { return std::min(round.deadline, Clock::now() + time); };
    Channel channel = Channel::connect(round.group.members[member].at, key_, soon(options_.request_timeout), stopping_);
    ByteWriter head;
    write(head, round.group.id);
    head.number(static_cast<uint16_t>(round.group.own)).number(static_cast<uint64_t>(round.values));
    head.number(static_cast<uint8_t>(round.compression)).number(weight);
    channel.send(MessageType::reduce, head.done(), soon(options_.request_timeout));
    for (size_t piece = 0; piece < pieces_in(part); ++piece) {
      const Range range = piece_of(part, piece);
      const auto own = values.subspan(range.begin, range.size());
      channel.send(MessageType::values, compress(round.compression, own), soon(options_.request_timeout));
      const Message message =
          channel.receive(MessageType::average, soon(options_.sender_timeout + 2 * options_.request_timeout));
      take_answer(round.compression, own, message.payload);
    }
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

ReduceResult AllReduce::run(const Group& group, std::span<float> values, double weight, Compression compression,
                            Deadline deadline) {
  const auto round = std::make_shared<Round>(group, values.size(), compression, deadline, options_.sender_timeout);
  {
    std::lock_guard lock(mutex_);
    rounds_[group.id] = round;
    changed_.notify_all();
  }
  ReduceResult result{.members = group.members.size()};
  std::vector<uint8_t> worked(group.members.size(), 1);
  std::vector<std::thread> threads;
  threads.reserve(group.members.size());
  for (size_t member = 0; member < group.members.size(); ++member) {
    if (member == group.own) continue;
    try {
      threads.emplace_back([&, member] { worked[member] = send_part(*round, member, values, weight) ? 1 : 0; });
    } catch (const std::system_error&) {  // the system gives no more threads
      worked[member] = 0;
    }
  }
  worked[group.own] = average_own_part(*round, values, weight) ? 1 : 0;
  for (auto& thread : threads) thread.join();
  for (size_t member = 0; member < worked.size(); ++member)
    if (worked[member] == 0) result.failed.insert(member);
  result.excluded = round->part.excluded();
  std::lock_guard lock(mutex_);
  rounds_.erase(group.id);
  return result;
}

}  // namespace runner::swarm
