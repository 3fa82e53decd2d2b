#include "strategies/hivemind/swarm.hpp"

#include <algorithm>
#include <cmath>
#include <system_error>
#include <tuple>

#include "runner/base/error.hpp"
#include "runner/base/loopback.hpp"

namespace runner::swarm {

Progress progress_of(const PeerRecord& own, const std::vector<PeerRecord>& others, int64_t target) {
  Progress progress{.epoch = own.epoch};
  const auto counts = [&](const PeerRecord& peer) { return peer.participates && peer.schema == own.schema; };
  for (const auto& peer : others)
    if (counts(peer)) progress.epoch = std::max(progress.epoch, peer.epoch);
  const auto add = [&](const PeerRecord& peer) {
    if (peer.epoch != progress.epoch) return;
    progress.samples += std::min(peer.samples, target);  // so that no record makes the sum overflow
    progress.rate += peer.rate;
  };
  add(own);
  for (const auto& peer : others) {
    if (!counts(peer)) continue;
    ++progress.peers;
    const int64_t before = progress.samples;
    add(peer);
    progress.others += progress.samples - before;
  }
  progress.reached = progress.samples >= target;
  return progress;
}

bool Readiness::is_ready(const Progress& progress, int64_t own_epoch, Clock::time_point now) {
  if (progress.epoch > own_epoch || progress.reached) return true;
  if (!estimates_ || progress.peers == 1) return false;
  if (progress.epoch != epoch_ || progress.others != others_) {
    epoch_ = progress.epoch;
    others_ = progress.others;
    const auto left = progress.seconds_left(target_);
    constexpr double longest = 1e6;  // seconds
    expected_ = left && *left < longest
                    ? now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(*left))
                    : Clock::time_point::max();
  }
  return progress.samples > 0 && now >= expected_;
}

void Rate::add(int64_t samples, double seconds) {
  if (samples <= 0) return;
  seconds_per_sample_ = alpha_ * seconds / static_cast<double>(samples) + (1 - alpha_) * seconds_per_sample_;
  weight_ = alpha_ + (1 - alpha_) * weight_;
}

namespace {

uint64_t milliseconds_since_1970() {
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<Milliseconds>(since_1970).count());
}

}  // namespace

Swarm::Swarm(SwarmOptions options)
    : options_(std::move(options)),
      key_(swarm_key(options_.secret, options_.run_id)),
      server_(options_.host, options_.port, key_, options_.server),
      table_(own_record(), {.lifetime = options_.record_lifetime}),
      gossip_(table_, server_, key_,
              {.initial_peers = options_.initial_peers,
               .interval = options_.gossip_interval,
               .timeout = std::min(options_.request_timeout, Milliseconds(1000))}),
      matchmaking_(table_, gossip_, server_, key_, {.request_timeout = options_.request_timeout}),
      all_reduce_(server_, key_,
                  {.sender_timeout = options_.sender_timeout, .request_timeout = options_.request_timeout}),
      state_transfer_(table_, server_, key_,
                      {.request_timeout = options_.request_timeout, .load_timeout = options_.load_state_timeout}),
      readiness_(options_.target_samples, options_.estimates),
      rate_(options_.rate_alpha) {
  server_.spare([this](const std::string& address) {
    return is_loopback(address) ||
           std::ranges::any_of(table_.live(), [&](const PeerRecord& peer) { return peer.at.host == address; });
  });
  try {
    server_.start();
    contact_initial_peers();
    gossip_.start();
  } catch (const std::system_error& error) {
    server_.stop();  // its threads use the members that are destroyed before it
    throw environment_error("hivemind: cannot start a thread: {}", error.what());
  } catch (...) {
    server_.stop();
    throw;
  }
}

void Swarm::contact_initial_peers() {
  std::string why;
  const auto limit = Clock::now() + options_.averaging_timeout;
  while (!options_.initial_peers.empty() && gossip_.contact_initial_peers(why) == 0) {
    if (Clock::now() >= limit)
      throw environment_error("none of strategy.initial_peers answers: {}; the first peer of a swarm has none", why);
    std::this_thread::sleep_for(Milliseconds(100));
  }
}

Swarm::~Swarm() {
  server_.wait_until_quiet(Clock::now() + options_.request_timeout);
  gossip_.stop();
  server_.stop();
}

PeerRecord Swarm::own_record() const {
  return {.id = id_,
          .at = {.host = options_.announced.host,
                 .port = options_.announced.port != 0 ? options_.announced.port : server_.port()},
          .schema = options_.schema,
          .target = options_.target_samples,
          .sequence = 1};
}

void Swarm::report(int64_t epoch, int64_t samples, int64_t stepped, double seconds) {
  if (seconds > 0) rate_.add(stepped, seconds);
  table_.change_own([&](PeerRecord& own) {
    own.epoch = epoch;
    own.samples = samples;
    own.rate = rate_.value();
  });
  gossip_.wake();
}

Progress Swarm::progress() const { return progress_of(table_.own(), table_.live(), options_.target_samples); }

bool Swarm::is_ready() { return readiness_.is_ready(progress(), table_.own().epoch, Clock::now()); }

bool Swarm::wait_until_ready(Milliseconds patience) {
  const auto limit = Clock::now() + patience;
  while (!is_ready()) {
    if (Clock::now() >= limit) return false;
    serve_state();
    std::this_thread::sleep_for(Milliseconds(2));
  }
  return true;
}

AverageResult Swarm::average(const std::string& purpose, std::span<float> values, double weight,
                             Compression compression) {
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); })) return {};
  const auto deadline = Clock::now() + options_.averaging_timeout;
  const auto group = matchmaking_.find_group(purpose, std::min(deadline, Clock::now() + options_.matchmaking_time),
                                             [this] { serve_state(); });
  if (!group) return {};
  const auto reduced =
      all_reduce_.run(*group, values, weight, compression, std::min(deadline, Clock::now() + options_.reduce_timeout));
  AverageResult result{.members = reduced.members};
  for (const size_t member : reduced.excluded) result.excluded.push_back(group->members[member].id);
  for (const size_t member : reduced.failed) {
    result.failed.push_back(group->members[member].id);
    table_.failed(group->members[member].id);
  }
  return result;
}

void Swarm::enter() {
  table_.take_place(milliseconds_since_1970());
  gossip_.exchange_with_all();
}

void Swarm::participate() {
  if (table_.own().started == 0) enter();
  state_transfer_.set_available(true);
  table_.change_own([](PeerRecord& own) { own.participates = true; });
  gossip_.wake();
}

void Swarm::serve_state() {
  if (make_state_ && state_transfer_.is_wanted()) state_transfer_.give(make_state_());
}

/// All compare in the same way, so no two peers wait for each other's state.
std::vector<PeerRecord> Swarm::sources(int64_t epoch, std::vector<PeerRecord> peers) const {
  const auto rank_of = [](int64_t updates, const PeerRecord& peer) {
    return std::tuple(-updates, peer.started, peer.id);
  };
  const PeerRecord own = table_.own();
  std::erase_if(peers, [&](const PeerRecord& peer) {
    return peer.started == 0 || peer.schema != own.schema || rank_of(peer.epoch, peer) >= rank_of(epoch, own);
  });
  std::ranges::sort(peers, {}, [&](const PeerRecord& peer) { return rank_of(peer.epoch, peer); });
  return peers;
}

std::optional<State> Swarm::load_state(int64_t epoch, const std::vector<TensorSize>& like, std::string& why) {
  return state_transfer_.load(sources(epoch, table_.live()), like, why);
}

std::optional<State> Swarm::load_first_state(int64_t epoch, const std::vector<TensorSize>& like) {
  std::string why = "none can be reached";
  const auto limit = Clock::now() + options_.load_state_timeout;
  while (!sources(epoch, table_.valid()).empty()) {
    if (auto state = load_state(epoch, like, why)) return state;
    if (Clock::now() >= limit)
      throw environment_error(
          "this peer could not load the state of another one in {:g} s (strategy.load_state_timeout), and would train "
          "other parameters than the swarm: {}",
          std::chrono::duration<double>(options_.load_state_timeout).count(), why);
    std::this_thread::sleep_for(Milliseconds(100));
  }
  return std::nullopt;
}

}  // namespace runner::swarm
