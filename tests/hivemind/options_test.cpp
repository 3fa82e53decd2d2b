// The options of hivemind, under the names of Lightning and hivemind too, and what is refused.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/config/config.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/hivemind/options.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

std::vector<Diagnostic> diagnostics_of(json options) {
  Recipe recipe;
  recipe.strategy.name = "HivemindStrategy";
  recipe.strategy.options = std::move(options);
  std::vector<Diagnostic> diagnostics;
  resolve_strategy(recipe, diagnostics);
  return diagnostics;
}

std::string message_of(json options) {
  options["target_batch_size"] = 64;
  const auto list = diagnostics_of(std::move(options));
  return list.size() == 1 ? list[0].message : std::to_string(list.size()) + " messages";
}

HivemindOptions read(json options) {
  options["target_batch_size"] = 64;
  for (const auto& option : hivemind_options().options())
    if (auto found = options.find(option.name); found != options.end()) check_option(option, *found);
  return hivemind_options().read(options);
}

}  // namespace

TEST_CASE("hivemind needs a target and has the defaults of Lightning") {
  CHECK(diagnostics_of({{"target_batch_size", 64}}).empty());
  REQUIRE(diagnostics_of(json::object()).size() == 1);
  CHECK_THAT(diagnostics_of(json::object())[0].message, ContainsSubstring("target_batch_size"));
  const auto options = read(json::object());
  CHECK(options.matchmaking_time == 5);
  CHECK(options.averaging_timeout == 30);
  CHECK(options.run_id == "lightning_run");
  CHECK_FALSE(options.delay_state_averaging);
}

TEST_CASE("addresses of peers are checked, and hivemind's form of them is read") {
  CHECK(read({{"initial_peers", "10.0.0.1:1440,/ip4/10.0.0.2/tcp/99/p2p/QmXYZ"}}).initial_peers ==
        std::vector<std::string>{"10.0.0.1:1440", "10.0.0.2:99"});
  CHECK(read({{"initial_peers", {"/ip6/::1/tcp/80", "host:7"}}}).initial_peers ==
        std::vector<std::string>{"[::1]:80", "host:7"});
  CHECK_THAT(message_of({{"initial_peers", "host"}}), ContainsSubstring("\"HOST:PORT\""));
  CHECK_THAT(message_of({{"announce", "host:0"}}), ContainsSubstring("\"HOST:PORT\""));
  CHECK_THAT(message_of({{"port", 70'000}}), ContainsSubstring("65535"));
  CHECK_THAT(message_of({{"average_opt_statistics", {"optimizer/exp_avg"}}}), ContainsSubstring("exp_avg_sq"));
}

TEST_CASE("options without an equivalent are refused with what works instead") {
  CHECK_THAT(message_of({{"delay_state_averaging", true}}), ContainsSubstring("average_state_every"));
  CHECK_THAT(message_of({{"delay_optimizer_step", true}}), ContainsSubstring("use_local_updates"));
  CHECK_THAT(message_of({{"offload_optimizer", true}}), ContainsSubstring("deepspeed_stage_1_offload"));
  CHECK_THAT(message_of({{"client_mode", true}}), ContainsSubstring("announce"));
  CHECK_THAT(message_of({{"grad_compression", "quantile_8bit"}}), ContainsSubstring("cannot be \"quantile_8bit\""));
  CHECK(diagnostics_of({{"target_batch_size", 64}, {"delay_grad_averaging", false}, {"reuse_grad_buffers", true}})
            .empty());
  CHECK(diagnostics_of({{"target_batch_size", 64}, {"grad_compression", "Float16Compression"}}).empty());
}

TEST_CASE("addresses and times that cannot work together are refused with the keys and what works") {
  CHECK_FALSE(refuse_together(read(json::object())));
  CHECK_THAT(*refuse_together(read({{"matchmaking_time", 30}})),
             ContainsSubstring("strategy.matchmaking_time = 30 must be less than strategy.averaging_timeout = 30"));
  const json far = {{"initial_peers", {"127.0.0.1:7", "10.0.0.1:1440"}}};
  CHECK_THAT(*refuse_together(read(far)), ContainsSubstring("\"10.0.0.1:1440\" on another machine") &&
                                              ContainsSubstring("strategy.host = \"0.0.0.0\""));
  auto reachable = far, forwarded = far;
  reachable["host"] = "0.0.0.0";
  forwarded["announce"] = "10.0.0.2:1440";
  CHECK_FALSE(refuse_together(read(reachable)));
  CHECK_FALSE(refuse_together(read(forwarded)));
}

TEST_CASE("a peer that others can reach over a network needs a secret") {
  ::unsetenv("SECRET_OF_TEST");
  const json named = {{"key_variable", "SECRET_OF_TEST"}};
  CHECK_FALSE(refuse_secret(read(named)));
  auto open = named, joining = named, announced = named;
  announced["announce"] = "10.0.0.2:1440";
  open["host"] = "0.0.0.0";
  joining["initial_peers"] = "10.0.0.1:1440";
  for (const auto& options : {open, joining, announced}) {
    REQUIRE(refuse_secret(read(options)));
    CHECK_THAT(*refuse_secret(read(options)), ContainsSubstring("set the environment variable SECRET_OF_TEST"));
    CHECK_THROWS_AS(swarm_options(read(options), 0), Error);
  }
  ::setenv("SECRET_OF_TEST", "too short", 1);
  CHECK_THAT(*refuse_secret(read(open)), ContainsSubstring("has 9 characters; 16 or more"));
  ::setenv("SECRET_OF_TEST", "long enough for a swarm", 1);
  CHECK_FALSE(refuse_secret(read(open)));
  CHECK(swarm_options(read(open), 0).secret == "long enough for a swarm");
  ::unsetenv("SECRET_OF_TEST");
}
