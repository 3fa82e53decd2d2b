// What peers know of each other: records, progress, bans, and the forms in which values are sent.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include <cmath>
#include <set>
#include <thread>

#include "strategies/hivemind/all_reduce.hpp"
#include "strategies/hivemind/compression.hpp"
#include "strategies/hivemind/peer_table.hpp"
#include "strategies/hivemind/server.hpp"
#include "strategies/hivemind/swarm.hpp"

using namespace runner::swarm;
using Catch::Matchers::WithinAbs;

namespace {

PeerRecord record(uint8_t number, uint64_t sequence = 1) {
  PeerRecord one{.at = {"127.0.0.1", 1000}, .sequence = sequence, .lifetime = 10'000, .participates = true};
  one.id.bytes[0] = number;
  return one;
}

std::vector<float> wavy(size_t count, float scale) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = scale * std::sin(static_cast<float>(i * i % 1009));
  return values;
}

double largest_error(std::span<const float> a, std::span<const float> b) {
  double error = 0;
  for (size_t i = 0; i < a.size(); ++i) error = std::max(error, std::abs(static_cast<double>(a[i]) - b[i]));
  return error;
}

}  // namespace

TEST_CASE("a record is read as it was written, and no shorter or impossible one is") {
  PeerRecord one = record(7, 12);
  one.epoch = 5;
  one.samples = 600;
  one.rate = 1.5;
  one.search = {"gradients 5", 77};
  ByteWriter out;
  write(out, one);
  ByteReader in(out.done());
  const PeerRecord read = read_record(in);
  in.end();
  CHECK(read.id == one.id);
  CHECK(read.at == one.at);
  CHECK(read.search.purpose == "gradients 5");
  CHECK(read.samples == 600);
  for (size_t size = 0; size < out.done().size(); ++size) {
    ByteReader shorter(std::span(out.done()).first(size));
    CHECK_THROWS_AS(read_record(shorter), ProtocolError);
  }
  for (const auto& change : std::vector<void (*)(PeerRecord&)>{
           [](PeerRecord& r) { r.rate = std::nan(""); }, [](PeerRecord& r) { r.epoch = -1; },
           [](PeerRecord& r) { r.samples = INT64_MAX; }, [](PeerRecord& r) { r.target = 0; },
           [](PeerRecord& r) { r.started = UINT64_MAX; }, [](PeerRecord& r) { r.at.port = 0; },
           [](PeerRecord& r) { r.at.host = std::string(300, 'x'); }}) {
    PeerRecord wrong = one;
    change(wrong);
    ByteWriter bytes;
    write(bytes, wrong);
    ByteReader reader(bytes.done());
    CHECK_THROWS_AS(read_record(reader), ProtocolError);
  }
}

TEST_CASE("of a peer's records the newest counts, and a peer that has left does not come back with an old one") {
  PeerTable table(record(1), {.lifetime = Milliseconds(5000)});
  table.merge(record(2, 10));
  table.merge(record(1, 99));  // the own id
  CHECK(table.live().size() == 1);
  auto newer = record(2, 11);
  newer.epoch = 3;
  table.merge(newer);
  table.merge(record(2, 10));
  CHECK(table.live()[0].epoch == 3);
  auto gone = record(2, 12);
  gone.lifetime = 0;
  table.merge(gone);
  table.merge(newer);
  CHECK(table.live().empty());
  CHECK(table.to_send(10).size() == 2);  // others must know it, too
  table.merge(record(2, 13));
  CHECK(table.live().size() == 1);
}

TEST_CASE("records expire, failed peers pause, and the table is bounded") {
  PeerTable table(record(1), {.peers = 3, .lifetime = Milliseconds(80), .first_pause = Milliseconds(30)});
  for (uint8_t i = 2; i < 9; ++i) table.merge(record(i));
  CHECK(table.live().size() == 3);
  const PeerId second = table.live()[0].id;
  table.failed(second);
  CHECK(table.live().size() == 2);
  CHECK(table.to_contact().size() == 2);
  std::this_thread::sleep_for(Milliseconds(35));
  CHECK(table.to_contact().size() == 3);
  CHECK(table.live().size() == 2);
  table.worked(second);
  CHECK(table.live().size() == 3);
  std::this_thread::sleep_for(Milliseconds(60));
  CHECK(table.live().empty());
}

TEST_CASE("progress counts the peers of the newest epoch that train the same model") {
  PeerRecord own = record(1);
  own.epoch = 4;
  own.samples = 10;
  own.rate = 5;
  auto same = own, behind = own, ahead = own, other = own, loads = own;
  behind.epoch = 3;
  ahead.epoch = 5;
  other.schema = 9;
  loads.participates = false;
  auto progress = progress_of(own, {same, behind, other, loads}, 30);
  CHECK(progress.epoch == 4);
  CHECK(progress.samples == 20);
  CHECK(progress.others == 10);
  CHECK(progress.peers == 3);
  CHECK_FALSE(progress.reached);
  CHECK(progress.seconds_left(30) == 1.0);
  progress = progress_of(own, {same, ahead}, 10);
  CHECK(progress.epoch == 5);
  CHECK(progress.samples == 10);
  CHECK(progress.reached);
}

TEST_CASE("an update is due when the samples are there, the time has passed, or another peer is ahead") {
  const auto now = Clock::now();
  Progress progress{.epoch = 2, .samples = 50, .rate = 100, .peers = 2};
  Readiness waits(100, true), counts(100, false);
  CHECK_FALSE(waits.is_ready(progress, 2, now));
  CHECK_FALSE(waits.is_ready(progress, 2, now + Milliseconds(400)));
  CHECK(waits.is_ready(progress, 2, now + Milliseconds(501)));
  CHECK_FALSE(counts.is_ready(progress, 2, now + Milliseconds(5000)));
  CHECK(waits.is_ready(progress, 1, now));
  auto lonely = progress;
  lonely.peers = 1;
  CHECK_FALSE(waits.is_ready(lonely, 2, now + Milliseconds(5000)));
  progress.samples = 100;
  progress.reached = true;
  CHECK(counts.is_ready(progress, 2, now));
  Readiness unknown(100, true);
  CHECK_FALSE(unknown.is_ready({.epoch = 2, .samples = 50, .peers = 2}, 2, now));
  CHECK_FALSE(unknown.is_ready({.epoch = 2, .samples = 50, .peers = 2}, 2, now + Milliseconds(1'000'000)));
}

TEST_CASE("own steps do not move the time at which an update is expected, and reports of others do") {
  const auto now = Clock::now();
  Readiness readiness(100, true);
  const auto ready = [&](int64_t own, int64_t others, int after) {
    const Progress progress{.epoch = 2, .samples = own + others, .others = others, .rate = 100, .peers = 2};
    return readiness.is_ready(progress, 2, now + Milliseconds(after));
  };
  CHECK_FALSE(ready(0, 40, 0));  // expected after 600 ms
  for (int step = 1; step < 6; ++step) CHECK_FALSE(ready(5 * step, 40, 100 * step));
  CHECK(ready(30, 40, 601));        // the other peer has become silent
  CHECK_FALSE(ready(30, 50, 602));  // and reports again: expected after 200 ms more
  CHECK(ready(30, 50, 803));
}

TEST_CASE("the rate of the first step is that step's") {
  Rate rate(0.1);
  CHECK(rate.value() == 0);
  rate.add(10, 2);
  CHECK_THAT(rate.value(), WithinAbs(5, 1e-9));
  for (int i = 0; i < 100; ++i) rate.add(10, 1);
  CHECK_THAT(rate.value(), WithinAbs(10, 0.01));
}

TEST_CASE("bans begin after some offences, double, and are bounded in number") {
  BanList bans({.offences_before = 2, .first = Milliseconds(1000), .longest = Milliseconds(3000), .addresses = 10});
  const auto now = Clock::now();
  bans.offend("a", now);
  bans.offend("a", now);
  CHECK_FALSE(bans.is_banned("a", now));
  bans.offend("a", now);
  CHECK(bans.is_banned("a", now + Milliseconds(999)));
  CHECK_FALSE(bans.is_banned("a", now + Milliseconds(1000)));
  bans.offend("a", now);
  CHECK(bans.is_banned("a", now + Milliseconds(1999)));
  for (int i = 0; i < 50; ++i) bans.offend("a", now);
  CHECK_FALSE(bans.is_banned("a", now + Milliseconds(3000)));
  bans.forgive("a");
  CHECK(bans.is_banned("a", now));
  bans.offend("a", now);
  CHECK_FALSE(bans.is_banned("a", now + Milliseconds(3000)));
  for (int i = 0; i < 100; ++i) bans.offend("address " + std::to_string(i), now);
  CHECK(bans.size() == 10);
  CHECK(bans.is_banned("a", now));  // the longest ban is kept
}

TEST_CASE("an address that peers have too is refused for the rest of a second only, and not after a few offences") {
  BanList bans({.offences_before = 2, .shared_per_second = 5});
  const auto now = Clock::now();
  for (int i = 0; i < 5; ++i) bans.offend("a", now, true);
  CHECK_FALSE(bans.is_banned("a", now, true));
  bans.offend("a", now + Milliseconds(400), true);
  CHECK(bans.is_banned("a", now + Milliseconds(999), true));
  CHECK_FALSE(bans.is_banned("a", now + Milliseconds(1000), true));
  for (int i = 0; i < 5; ++i) bans.offend("a", now + Milliseconds(1500), true);
  CHECK_FALSE(bans.is_banned("a", now + Milliseconds(1500), true));
  CHECK_FALSE(bans.is_banned("a", now + Milliseconds(1500)));
}

TEST_CASE("a peer that knows places of others takes a later one, whatever its clock says") {
  PeerTable table(record(1), {.lifetime = Milliseconds(5000)});
  auto other = record(2);
  other.started = 5'000'000;
  table.merge(other);
  auto foreign = record(3);
  foreign.schema = 9;
  foreign.started = 9'000'000;
  table.merge(foreign);
  table.take_place(77);
  CHECK(table.own().started == 5'000'001);
  table.take_place(8'000'000);  // it keeps the place
  CHECK(table.own().started == 5'000'001);
  PeerTable first(record(4), {.lifetime = Milliseconds(5000)});
  first.take_place(77);
  CHECK(first.own().started == 77);
}

TEST_CASE("of more records than a message has, each is sent in time") {
  PeerTable table(record(1), {.lifetime = Milliseconds(5000)});
  for (uint8_t i = 2; i <= 30; ++i) table.merge(record(i));
  std::set<PeerId> sent;
  for (int round = 0; round < 200; ++round) {
    const auto list = table.to_send(10);
    REQUIRE(list.size() == 10);
    REQUIRE(list[0].id == record(1).id);
    for (const auto& one : list) sent.insert(one.id);
  }
  CHECK(sent.size() == 30);
}

TEST_CASE("a loopback address from another machine means that machine") {
  Endpoint at{"127.0.0.1", 7}, none{"", 7}, far{"10.0.0.9", 7};
  complete_host(at, "127.0.0.1", false);
  CHECK(at.host == "127.0.0.1");
  complete_host(at, "10.0.0.1", false);
  CHECK(at.host == "10.0.0.1");
  complete_host(none, "10.0.0.1", false);
  CHECK(none.host.empty());
  complete_host(none, "10.0.0.1", true);
  CHECK(none.host == "10.0.0.1");
  complete_host(far, "10.0.0.1", true);
  CHECK(far.host == "10.0.0.9");
}

TEST_CASE("values that are sent as they are keep their bits, and others are near") {
  for (const size_t count : {0, 1, 5000}) {
    const auto values = wavy(count, 0.01f);
    INFO(count << " values");
    CHECK(decompress(Compression::none, compress(Compression::none, values), count) == values);
    const auto near = [&](Compression kind) {
      return largest_error(decompress(kind, compress(kind, values), count), values);
    };
    CHECK(near(Compression::float16) < 0.01 * 0x1p-11);
    CHECK(near(Compression::blockwise_8bit) <= 0.01 / 254 * 1.001);
    CHECK(near(Compression::uniform_8bit) < 6 * 0.0072 / 256);
  }
  CHECK(decompress(Compression::float16, compress(Compression::float16, std::vector<float>{1e9f}), 1)[0] == 65504);
  for (const auto kind : {Compression::uniform_8bit, Compression::blockwise_8bit})
    CHECK(decompress(kind, compress(kind, std::vector<float>(100, 0.0f)), 100) == std::vector<float>(100, 0.0f));
}

TEST_CASE("compressed values take fewer bytes, and bytes of another number of values are refused") {
  const auto values = wavy(100'000, 1);
  CHECK(compress(Compression::none, values).size() == 400'000);
  CHECK(compress(Compression::float16, values).size() == 200'000);
  CHECK(compress(Compression::uniform_8bit, values).size() == 100'000 + 1024);
  CHECK(compress(Compression::blockwise_8bit, values).size() == 100'000 + 4 * 25);
  for (const auto kind :
       {Compression::none, Compression::float16, Compression::uniform_8bit, Compression::blockwise_8bit}) {
    auto bytes = compress(kind, values);
    CHECK_THROWS_AS(decompress(kind, bytes, values.size() + 1), ProtocolError);
    CHECK_THROWS_AS(decompress(kind, bytes, values.size() - 1), ProtocolError);
  }
}

TEST_CASE("a part is averaged with weights, and members that are silent are left out") {
  const auto deadline = Clock::now() + Milliseconds(5000);
  PartAverage part(3, Milliseconds(100));
  std::vector<std::vector<float>> results(2);
  std::thread other([&] { results[1] = *part.contribute(1, 0, {4, 8}, 3, deadline); });
  results[0] = *part.contribute(0, 0, {0, 4}, 1, deadline);
  other.join();
  CHECK(results[0] == std::vector<float>{3, 7});
  CHECK(results[1] == results[0]);
  CHECK(part.excluded() == std::set<size_t>{2});
  CHECK_THROWS_AS(part.contribute(2, 0, {1, 1}, 1, deadline), ConnectionError);
  CHECK_THROWS_AS(part.contribute(0, 5, {1, 1}, 1, deadline), ProtocolError);  // out of order
}

TEST_CASE("equal values stay equal bits under any weights") {
  const float value = GENERATE(0.1f, 3.3333e-7f, -7.7e12f);
  PartAverage part(1, Milliseconds(100));
  CHECK((*part.contribute(0, 0, {value}, 0.37, Clock::now() + Milliseconds(100)))[0] == value);
  PartAverage two(2, Milliseconds(1000));
  float other_result = 0;
  std::thread other(
      [&] { other_result = (*two.contribute(1, 0, {value}, 0.7, Clock::now() + Milliseconds(2000)))[0]; });
  CHECK((*two.contribute(0, 0, {value}, 12.9, Clock::now() + Milliseconds(2000)))[0] == value);
  other.join();
  CHECK(other_result == value);
}
