#include "strategies/hivemind/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "runner/base/error.hpp"
#include "runner/base/loopback.hpp"

namespace runner {

namespace {

using Type = Option::Type;
using Options = HivemindOptions;

/// "/ip4/10.0.0.1/tcp/1440/p2p/ID", as hivemind writes addresses, to "10.0.0.1:1440".
std::string from_multiaddress(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 1; begin <= text.size();) {
    const size_t end = std::min(text.find('/', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  const bool known = text.starts_with('/') && parts.size() >= 4 && parts[2] == "tcp" &&
                     (parts[0] == "ip4" || parts[0] == "ip6" || parts[0] == "dns4" || parts[0] == "dns");
  if (!known) return text;
  return parts[0] == "ip6" ? "[" + parts[1] + "]:" + parts[3] : parts[1] + ":" + parts[3];
}

std::optional<std::string> check_peers(nlohmann::json& value) {
  std::vector<std::string> peers;
  for (const auto& given : value) {
    std::string list = given.get<std::string>() + ",";
    for (size_t begin = 0, comma = 0; (comma = list.find(',', begin)) != std::string::npos; begin = comma + 1) {
      const std::string peer = from_multiaddress(list.substr(begin, comma - begin));
      if (!swarm::parse_endpoint(peer))
        return fmt::format("a peer is \"HOST:PORT\" with a port from 1 to 65535, not \"{}\"", peer);
      peers.push_back(peer);
    }
  }
  value = peers;
  return std::nullopt;
}

std::optional<std::string> check_announced(nlohmann::json& value) {
  value = from_multiaddress(value.get<std::string>());
  if (value == "" || swarm::parse_endpoint(value.get<std::string>())) return std::nullopt;
  return fmt::format("must be \"HOST:PORT\" with a port from 1 to 65535, not {}", value.dump());
}

std::optional<std::string> check_statistics(nlohmann::json& value) {
  for (const auto& name : value)
    if (name.get<std::string>().find('/') != std::string::npos)
      return fmt::format("names the kinds of state of the optimizer, such as \"exp_avg_sq\", not {}", name.dump());
  return std::nullopt;
}

void add_addresses(OptionTable<Options>& table) {
  table
      .add({.name = "run_id", .help = "The name of the swarm. Only peers with the same name train together."},
           &Options::run_id)
      .add(
          {.name = "host",
           .help = "Address at which this peer listens. The default is for peers on this machine; \"0.0.0.0\" is every "
                   "address."},
          &Options::host)
      .add({.name = "port",
            .help = "TCP port at which this peer listens; 0: a free one, which a note names.",
            .minimum = 0,
            .maximum = 65535},
           &Options::port)
      .add({.name = "announce",
            .help = "Where other peers reach this one, if a router forwards a port to it: \"HOST:PORT\".",
            .fits = check_announced},
           &Options::announce)
      .add({.name = "initial_peers",
            .help =
                "Some peers of the swarm, as \"HOST:PORT\". They are the first contact, and may leave afterwards. The "
                "first peer of a swarm has none.",
            .fits = check_peers},
           &Options::initial_peers)
      .add({.name = "key_variable",
            .help = "Environment variable with the secret that all peers of the swarm have, of 16 characters or more. "
                    "Peers on one machine may do without."},
           &Options::key_variable);
}

void add_times(OptionTable<Options>& table) {
  const auto seconds = [&](const char* name, const char* help, auto Options::*value, bool zero = false) {
    table.add({.name = name, .help = help, .minimum = 0, .maximum = 86'400, .above_minimum = !zero}, value);
  };
  seconds("wait_for_peers",
          "Seconds that a peer waits after its batch for the others to reach target_batch_size with it, instead of "
          "computing its next batch at once.",
          &Options::wait_for_peers, true);
  seconds("matchmaking_time", "Seconds for finding a group. It ends at once when all peers have joined.",
          &Options::matchmaking_time);
  seconds("averaging_timeout",
          "Seconds for finding a group and averaging. A peer keeps its own values for what has not arrived by then.",
          &Options::averaging_timeout);
  seconds("allreduce_timeout", "Seconds for averaging in a group that is found; unset: averaging_timeout.",
          &Options::allreduce_timeout);
  seconds("next_chunk_timeout",
          "A peer that sends nothing for so many seconds is left out of the average. Unset: matchmaking_time.",
          &Options::next_chunk_timeout);
  seconds("request_timeout", "Seconds for the answer to a message.", &Options::request_timeout);
  seconds("load_state_timeout",
          "Seconds in which a peer must begin to send its state, which it does between two steps.",
          &Options::load_state_timeout);
}

void add_averages(OptionTable<Options>& table) {
  const auto compression = [&](const char* name, const char* help, std::string Options::*value) {
    table.add({.name = name,
               .type = Type::choice,
               .help = help,
               .choices = {"none", "float16", "uniform_8bit", "blockwise_8bit"},
               .spellings = {{"nocompression", "none"},
                             {"float16compression", "float16"},
                             {"fp16", "float16"},
                             {"uniform8bitquantization", "uniform_8bit"},
                             {"blockwisequantization", "blockwise_8bit"}}},
              value);
  };
  compression("grad_compression", "How gradients are sent.", &Options::grad_compression);
  compression("state_averaging_compression", "How parameters and optimizer state are sent when they are averaged.",
              &Options::state_averaging_compression);
  table
      .add({.name = "average_state_every",
            .help = "Updates after which peers average parameters; 0: never.",
            .minimum = 0},
           &Options::average_state_every)
      .add({.name = "average_opt_statistics",
            .help = "Kinds of optimizer state that are averaged with the parameters, for example \"exp_avg_sq\".",
            .fits = check_statistics},
           &Options::average_opt_statistics)
      .add({.name = "use_local_updates",
            .help = "Each step updates with the peer's own gradients, and only parameters are averaged."},
           &Options::use_local_updates)
      .add({.name = "performance_ema_alpha",
            .help = "Weight of the last step in the moving average of a peer's samples per second.",
            .minimum = 0,
            .maximum = 1,
            .above_minimum = true},
           &Options::performance_ema_alpha)
      .add({.name = "verbose", .help = "A note for each update says how many peers took part."}, &Options::verbose);
}

void add_fixed(OptionTable<Options>& table) {
  const auto only_false = [&](const char* name, bool Options::*value, const std::string& why) {
    table.add({.name = name,
               .help = "Not supported: must be false.",
               .refuses = [why](const nlohmann::json& given) { return given == true ? why : std::string(); }},
              value);
  };
  only_false("delay_state_averaging", &Options::delay_state_averaging,
             "averages are made between two steps; a larger average_state_every makes them less often");
  only_false("delay_optimizer_step", &Options::delay_optimizer_step,
             "updates are made between two steps; use_local_updates = true does not wait for other peers");
  only_false("delay_grad_averaging", &Options::delay_grad_averaging,
             "averages are made between two steps; use_local_updates = true does not average gradients");
  only_false(
      "offload_optimizer", &Options::offload_optimizer,
      "the optimizer's state stays on the device; deepspeed_stage_1_offload moves it, with a fixed set of ranks");
  only_false("client_mode", &Options::client_mode, "each peer accepts connections; `announce` is for a forwarded port");
  only_false("auxiliary", &Options::auxiliary, "each peer trains");
  table.add({.name = "reuse_grad_buffers",
             .help = "Gradients of steps are always summed in one buffer.",
             .note = "nothing to do: gradients of steps are summed in one buffer"},
            &Options::reuse_grad_buffers);
}

/// Whether a checked address is a loopback address.
bool is_local_endpoint(const std::string& text) {
  return is_loopback(swarm::parse_endpoint(text).value_or(swarm::Endpoint()).host);
}

swarm::Milliseconds milliseconds(double seconds) {
  return swarm::Milliseconds(std::max<int64_t>(1, static_cast<int64_t>(seconds * 1000)));
}

}  // namespace

const OptionTable<HivemindOptions>& hivemind_options() {
  static const auto table = [] {
    OptionTable<Options> made;
    made.add(
        {.name = "target_batch_size",
         .help = "Samples of an update, summed over all peers. Each peer computes train.global_batch_size of them in "
                 "a step.",
         .minimum = 1,
         .required = true},
        &Options::target_batch_size);
    add_addresses(made);
    add_times(made);
    add_averages(made);
    add_fixed(made);
    return made;
  }();
  return table;
}

std::optional<std::string> refuse_together(const HivemindOptions& options) {
  if (options.matchmaking_time >= options.averaging_timeout)
    return fmt::format(
        "strategy.matchmaking_time = {:g} must be less than strategy.averaging_timeout = {:g}: the second one is for "
        "finding a group and averaging",
        options.matchmaking_time, options.averaging_timeout);
  if (!is_loopback(options.host) || !options.announce.empty()) return std::nullopt;
  for (const auto& peer : options.initial_peers)
    if (!is_local_endpoint(peer))
      return fmt::format(
          "strategy.initial_peers has \"{}\" on another machine, but other machines cannot reach strategy.host = "
          "\"{}\": set strategy.host = \"0.0.0.0\", or strategy.announce if a port is forwarded to this peer",
          peer, options.host);
  return std::nullopt;
}

bool is_local(const HivemindOptions& options) {
  return is_loopback(options.host) && (options.announce.empty() || is_local_endpoint(options.announce)) &&
         std::ranges::all_of(options.initial_peers, is_local_endpoint);
}

std::string secret_of(const HivemindOptions& options) {
  const char* value = std::getenv(options.key_variable.c_str());
  return value ? value : "";
}

std::optional<std::string> refuse_secret(const HivemindOptions& options) {
  constexpr size_t least = least_secret;
  const std::string secret = secret_of(options);
  if (secret.empty() && is_local(options)) return std::nullopt;
  if (secret.empty())
    return fmt::format(
        "a peer that other machines reach, or that reaches them, needs a secret: set the environment variable {} "
        "(strategy.key_variable) to the same text of {} characters or more for every peer; without it, peers have host "
        "= \"127.0.0.1\" and initial_peers and announce on this machine",
        options.key_variable, least);
  if (secret.size() < least)
    return fmt::format("the secret in {} has {} characters; {} or more are needed", options.key_variable, secret.size(),
                       least);
  return std::nullopt;
}

swarm::SwarmOptions swarm_options(const HivemindOptions& options, uint64_t schema) {
  if (const auto why = refuse_secret(options)) throw usage_error("{}", *why);
  swarm::SwarmOptions made{
      .run_id = options.run_id,
      .secret = secret_of(options),
      .host = options.host,
      .port = static_cast<uint16_t>(options.port),
      .announced = swarm::parse_endpoint(options.announce).value_or(swarm::Endpoint()),
      .schema = schema,
      .target_samples = options.target_batch_size,
      .estimates = options.wait_for_peers == 0,
      .rate_alpha = options.performance_ema_alpha,
      .matchmaking_time = milliseconds(options.matchmaking_time),
      .averaging_timeout = milliseconds(options.averaging_timeout),
      .reduce_timeout = milliseconds(options.allreduce_timeout.value_or(options.averaging_timeout)),
      .request_timeout = milliseconds(options.request_timeout),
      .sender_timeout = milliseconds(options.next_chunk_timeout.value_or(options.matchmaking_time)),
      .load_state_timeout = milliseconds(options.load_state_timeout)};
  for (const auto& peer : options.initial_peers) made.initial_peers.push_back(*swarm::parse_endpoint(peer));
  return made;
}

swarm::CollectorOptions collector_options(const HivemindOptions& options) {
  return {.wait_for_peers = swarm::Milliseconds(static_cast<int64_t>(options.wait_for_peers * 1000)),
          .gradients = swarm::compression_of(options.grad_compression),
          .state = swarm::compression_of(options.state_averaging_compression),
          .average_state_every = options.average_state_every,
          .local_updates = options.use_local_updates};
}

}  // namespace runner
