// From a recipe to a finished run: plan, ledger row, run folder, supervised workers, progress, result.
#include <unistd.h>

#include <cstdio>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/checkpoint.hpp"
#include "runner/commands/run.hpp"
#include "runner/commands/run_record.hpp"
#include "runner/config/config.hpp"
#include "runner/data/data.hpp"
#include "runner/devices/devices.hpp"
#include "runner/launch/cluster.hpp"
#include "runner/launch/supervisor.hpp"
#include "runner/selection/plan.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/collective/shm_layout.hpp"

namespace runner {

namespace {

/// The ranks this supervisor starts, and where they stand in the job.
struct Place {
  Placement placement;
  Topology topology;
  int first_rank = 0, local_size = 1;
  bool keeps_ledger() const { return first_rank == 0; }
};

Place find_place(const Recipe& recipe, const LaunchOptions& options) {
  Place place;
  Facts facts = read_facts();
  auto choice = choose_devices(recipe.devices, facts);
  place.placement = find_placement(recipe.devices.cluster, process_environment());
  auto& placement = place.placement;
  auto& topology = place.topology;
  topology.cuda = choice.accelerator == "cuda";
  topology.cuda_indices = choice.cuda_indices;
  topology.bf16 = topology.cuda;
  for (const auto& device : facts.cuda)
    for (int index : choice.cuda_indices) topology.bf16 = topology.bf16 && (device.index != index || device.bf16());
  topology.cores = facts.cores;
  topology.device_reason = choice.reason;
  if (placement.launched) {
    bool asked = recipe.devices.devices.kind != DeviceRequest::Kind::automatic;
    topology.devices_per_node = placement.local_size;
    topology.num_nodes = placement.num_nodes;
    bool nodes_asked = recipe.origin("devices.num_nodes").kind != Origin::Kind::default_value;
    check_placement(placement, asked ? choice.count : placement.local_size,
                    nodes_asked ? static_cast<int>(recipe.devices.num_nodes) : placement.num_nodes);
    place.first_rank = placement.rank;
    place.local_size = 1;
    return place;
  }
  topology.devices_per_node = choice.count;
  topology.num_nodes = static_cast<int>(recipe.devices.num_nodes);
  placement.node_rank = options.node_rank.value_or(0);
  if (topology.num_nodes > 1) {
    if (!options.node_rank || options.master_addr.empty())
      throw usage_error("num_nodes = {}: run the same command on each node with --node-rank 0..{} and --master-addr ADDRESS (of node 0) "
                        "--master-port PORT, or start it with srun, torchrun or mpirun", topology.num_nodes, topology.num_nodes - 1);
    if (placement.node_rank < 0 || placement.node_rank >= topology.num_nodes)
      throw usage_error("--node-rank {} is not one of 0 to {} (num_nodes = {})", placement.node_rank, topology.num_nodes - 1, topology.num_nodes);
    if (options.master_port == 0) throw usage_error("num_nodes = {}: --master-port PORT must be given, the same on each node", topology.num_nodes);
    placement.master_addr = options.master_addr;
    placement.master_port = options.master_port;
  }
  place.local_size = choice.count;
  place.first_rank = placement.node_rank * choice.count;
  return place;
}

std::string worker_binary() {
  fs::path path = fs::read_symlink("/proc/self/exe").parent_path() / "runner-worker";
  if (!fs::exists(path)) throw environment_error("{} is missing: build it, or reinstall runner", path.string());
  return path.string();
}

WorkerGroup make_group(const Plan& plan, const Place& place, const fs::path& run_dir, const std::string& cache_dir,
                       const std::string& checkpoint) {
  const auto& recipe = plan.recipe;
  WorkerGroup group;
  group.worker = worker_binary();
  group.arguments = {"--run-dir", run_dir.string(), "--cache-dir", cache_dir};
  if (!checkpoint.empty()) group.arguments.insert(group.arguments.end(), {"--resume", checkpoint});
  group.first_rank = place.first_rank;
  group.local_size = place.local_size;
  group.world_size = place.topology.world_size();
  group.local_rank_offset = place.placement.launched ? place.placement.local_rank : 0;
  group.node_rank = place.placement.node_rank;
  group.num_nodes = place.topology.num_nodes;
  group.master_addr = place.placement.master_addr;
  group.master_port = place.placement.master_port;
  auto threads = std::to_string(recipe.devices.threads_per_rank.value_or(1));
  group.environment = {{"OMP_NUM_THREADS", threads}, {"MKL_NUM_THREADS", threads}, {"OMP_WAIT_POLICY", "passive"}};
  group.log_dir = (run_dir / "logs").string();
  bool shared_memory = !place.topology.cuda && place.local_size == group.world_size && group.world_size > 1 &&
                       recipe.devices.process_group_backend.value_or("shm") == "shm";
  if (shared_memory) group.shm_bytes = static_cast<int64_t>(shm_segment_bytes(place.local_size));
  group.grace_time = recipe.train.grace_time;
  group.max_restarts = recipe.train.max_restarts;
  return group;
}

/// Replaces `--resume X` in a group's arguments.
void set_resume(WorkerGroup& group, const std::string& checkpoint) {
  auto& arguments = group.arguments;
  auto found = std::find(arguments.begin(), arguments.end(), "--resume");
  if (found != arguments.end()) arguments.erase(found, found + 2);
  if (!checkpoint.empty()) arguments.insert(arguments.end(), {"--resume", checkpoint});
}

/// A folder that goes away with the object: home of runs that keep nothing, and of ranks that keep no ledger.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (fs::temp_directory_path() / "runner-XXXXXX").string();
    if (!::mkdtemp(pattern.data())) throw environment_error("cannot make a folder in {}", fs::temp_directory_path().string());
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write_run_folder(const fs::path& run_dir, const Recipe& recipe, const Plan& plan) {
  fs::create_directories(run_dir / "logs");
  write_file_atomic(run_dir / "recipe.toml", print_recipe(recipe));
  write_file_atomic(run_dir / "resolved.toml", print_recipe(plan.recipe));
  write_file_atomic(run_dir / "plan.json", plan.to_json().dump(2) + "\n");
}

std::string describe(const Plan& plan) {
  return fmt::format("{} {} parameters, {} on {} {}, {}: {} x {} x {} = {} sequences of {} tokens a step", plan.recipe.model.name,
                     format_count(static_cast<double>(plan.model->parameter_count())), plan.entry->name, plan.job.world_size,
                     plan.job.cuda ? "GPU(s)" : "CPU rank(s)", plan.recipe.precision.mode, plan.job.micro_batch_size,
                     plan.job.world_size, plan.job.accumulation,
                     plan.job.micro_batch_size * plan.job.world_size * plan.job.accumulation, plan.seq_len);
}

}  // namespace

ExitCode launch_run(const LaunchOptions& options) {
  double started = steady_seconds();
  Recipe recipe = load_whole_recipe(options.recipe_file, options.overrides);
  Place place = find_place(recipe, options);
  if (place.local_size != place.topology.world_size())
    throw usage_error("runs of several supervisors (num_nodes > 1, or one rank each under {}) do not work yet: they have no common run folder; "
                      "start `runner run` once on one node and let it start the ranks", place.placement.cluster);
  bool keep = recipe.run.fast_dev_run == 0 && place.keeps_ledger();
  std::optional<ScratchFolder> scratch;
  if (!keep) scratch.emplace();
  std::string home = keep ? ledger_home() : scratch->path().string();
  std::string cache_dir = (fs::path(ledger_home()) / "cache").string();
  prepare_data(recipe.data, cache_dir);
  Plan plan = make_plan(recipe, place.topology, tokenizer_vocab_size(recipe.data, cache_dir));
  for (const auto& note : plan.notes) log::info("note: {}", note);
  log::info("{}", describe(plan));
  if (plan.rule != "named") log::info("strategy {}: {}", plan.entry->name, plan.reason);

  RunRecord record(home, recipe, plan, options, started);
  fs::path run_dir = record.run_dir();
  write_run_folder(run_dir, recipe, plan);
  auto note = [](const std::string& text) { log::warning("{}", text); };
  auto newest = [&]() -> std::string {
    auto found = newest_good_checkpoint(run_dir / "checkpoints", note);
    return found ? found->string() : "";
  };
  std::string checkpoint = options.resume_checkpoint;
  if (!options.resume_run.empty() && checkpoint.empty()) checkpoint = newest();
  if (!options.resume_run.empty()) log::info("{}", checkpoint.empty() ? "no checkpoint yet: starting from the beginning" : "continuing from " + checkpoint);

  WorkerGroup group = make_group(plan, place, run_dir, cache_dir, checkpoint);
  record.begin(checkpoint);
  SupervisorHooks hooks;
  hooks.on_event = [&](const nlohmann::json& event) { record.on_event(event); };
  hooks.on_tick = [&] { record.on_tick(); };
  hooks.on_restart = [&](WorkerGroup& again, int attempt, const std::string& why) {
    auto from = newest();
    set_resume(again, from);
    record.on_restart(attempt, why, from);
  };
  Outcome outcome = supervise(group, hooks);
  record.finish(outcome);
  return outcome.code;
}

}  // namespace runner
