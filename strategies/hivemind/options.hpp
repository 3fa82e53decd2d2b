// The options of hivemind: those of Lightning's HivemindStrategy and of hivemind's Optimizer, and where to listen. This header is
// torch-free.
#pragma once
#include "runner/base/option_table.hpp"
#include "strategies/hivemind/collector.hpp"

namespace runner {

struct HivemindOptions {
  int64_t target_batch_size = 0;
  std::string run_id = "lightning_run";
  std::string host = "127.0.0.1", announce = "";
  int64_t port = 0;
  std::vector<std::string> initial_peers = {};
  std::string key_variable = "RUNNER_SWARM_SECRET";
  double wait_for_peers = 0;  ///< seconds, as the times below
  double matchmaking_time = 5, averaging_timeout = 30, request_timeout = 3, load_state_timeout = 600;
  std::optional<double> allreduce_timeout = {}, next_chunk_timeout = {};
  int64_t average_state_every = 1;
  bool use_local_updates = false;
  std::vector<std::string> average_opt_statistics = {};
  std::string grad_compression = "none", state_averaging_compression = "none";
  double performance_ema_alpha = 0.1;
  bool verbose = false;
  bool delay_state_averaging = false, delay_optimizer_step = false, delay_grad_averaging = false;
  bool offload_optimizer = false, client_mode = false, auxiliary = false, reuse_grad_buffers = false;
};
const OptionTable<HivemindOptions>& hivemind_options();

/// Why these addresses or times cannot work together; nullopt if they can.
std::optional<std::string> refuse_together(const HivemindOptions& options);
/// Whether the peer can only be reached from this machine, and reaches only this machine.
bool is_local(const HivemindOptions& options);
/// The secret from the environment; "" if the variable is not set.
std::string secret_of(const HivemindOptions& options);
/// Why the secret cannot be used; nullopt if it can. A local swarm needs none.
std::optional<std::string> refuse_secret(const HivemindOptions& options);
/// `schema`: SwarmOptions::schema. Throws Error(usage) for what refuse_secret() says.
swarm::SwarmOptions swarm_options(const HivemindOptions& options, uint64_t schema);
swarm::CollectorOptions collector_options(const HivemindOptions& options);

}  // namespace runner
