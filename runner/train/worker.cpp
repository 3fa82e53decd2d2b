#include "runner/train/worker.hpp"

#include <unistd.h>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "runner/base/contention.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/hang_limit.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/adapter_files.hpp"
#include "runner/checkpoint/fit.hpp"
#include "runner/checkpoint/hf.hpp"
#include "runner/checkpoint/stored_model.hpp"
#include "runner/config/config.hpp"
#include "runner/config/model_families.hpp"
#include "runner/data/data_meaning.hpp"
#include "runner/data/order.hpp"
#include "runner/lua/hook_places.hpp"
#include "runner/models/adapters.hpp"
#include "runner/models/models.hpp"
#include "runner/models/module.hpp"
#include "runner/models/plugin/spec.hpp"
#include "runner/selection/memory_advice.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/pipeline_plan.hpp"
#include "runner/selection/plan.hpp"
#include "runner/selection/script_optimizer.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/train/compiled_memory.hpp"
#include "runner/train/course.hpp"
#include "runner/train/failure_report.hpp"
#include "runner/train/hooks/training_hooks.hpp"
#include "runner/train/optimizer_settings.hpp"
#include "runner/train/parts/accelerator.hpp"
#include "runner/train/parts/precision.hpp"
#include "runner/train/strategies/script.hpp"
#include "runner/train/trainer.hpp"
#include "strategies/contract/initialize.hpp"
#include "strategies/pjrt/plugin.hpp"

namespace runner {

namespace {

std::atomic<bool> stop_requested{false};

/// SIGTERM requests a checkpoint at the next step boundary. The worker ignores SIGINT: the supervisor handles Ctrl-C.
void install_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_requested.store(true); };
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGPIPE, SIG_IGN);
}

Topology topology_of(const Recipe& recipe, const WorldOptions& world) {
  Topology topology;
  if (world.accelerator.own_memory) topology.accelerator = world.accelerator;  // CPU ranks drive a PJRT platform
  topology.num_nodes = world.num_nodes;
  topology.devices_per_node = world.size / world.num_nodes;
  topology.sizes = recipe.devices.mesh.value_or(MeshSizes());
  return topology;
}

WorldOptions with_settings_of(const Recipe& recipe, const Accelerator& accelerator, WorldOptions options) {
  options.backend = recipe.devices.process_group_backend.value_or("");
  options.accelerator = accelerator;
  options.timeout = recipe.train.timeout;
  options.rendezvous_timeout = recipe.devices.rendezvous_timeout;
  options.late_after = hang_limit(recipe.train.timeout);
  return options;
}

/// Initial values from the folders of a base model and of an adapter, or random ones from the seed. A checkpoint replaces them except
/// those of the base, so the others are random if `resumes`: the folders may be gone. `spec`: of the whole model.
ParameterSource parameter_source(const Recipe& recipe, const ModelSpec& spec, bool resumes) {
  const auto specs = spec.stored();
  const bool reads_base = recipe.model.init_from && (!resumes || std::ranges::any_of(specs, &ParameterSpec::of_base));
  std::shared_ptr<HfSource> base;
  std::vector<size_t> base_slots(specs.size(), SIZE_MAX);
  if (reads_base) {
    const auto base_spec = make_base_spec(recipe, spec.vocab_size, spec.seq_len);
    base = std::make_shared<HfSource>(*recipe.model.init_from, recipe.model, base_spec);
    for (size_t slot = 0; slot < specs.size(); ++slot)
      if (adapted_matrix(specs[slot]->name).empty()) base_slots[slot] = base_spec.stored_index(specs[slot]->name);
  }
  std::shared_ptr<AdapterFolder> adapter;
  if (recipe.fine_tune.adapts() && recipe.fine_tune.adapter && !resumes)
    adapter = std::make_shared<AdapterFolder>(*recipe.fine_tune.adapter, recipe, spec);
  const auto initial =
      with_row_norms(spec, [=, seed = recipe.run.seed](size_t slot, int64_t offset, std::span<float> out) {
        if (base_slots[slot] != SIZE_MAX && base->has(base_slots[slot]))
          return base->read(base_slots[slot], offset, out);
        initialize_slice(*specs[slot], seed, offset, out);
      });
  return [=](size_t slot, int64_t offset, std::span<float> out) {
    if (adapter && adapter->has(slot)) return adapter->read(slot, offset, out);
    initial(slot, offset, out);
  };
}

/// Adds what uses the memory, and possible remedies, to an out-of-memory failure.
struct OutOfMemory {
  const Job& job;
  const Entry& entry;

  void during(const std::function<void()>& work) const {
    try {
      work();
    } catch (const c10::OutOfMemoryError& error) {
      advise(error.what_without_backtrace());
    } catch (const pjrt::OutOfMemory& error) {
      advise(error.what());
    }
  }

 private:
  [[noreturn]] void advise(const std::string& message) const {
    TORCH_CHECK_WITH(OutOfMemoryError, false, first_line(message), "\n", memory_advice(entry, job));
    RUNNER_CHECK(false, "unreachable");
  }
};

void resume(Trainer& trainer, const Checkpoint& checkpoint, EventSink& events) {
  trainer.resume(checkpoint);
  fault_point("resumed");
  events.emit("resumed", {{"step", checkpoint.step()}, {"bytes_read", checkpoint.bytes_read()}});
}

/// Multiplies the recipe's learning rates by Entry::rate_factor.
void scale_rates(Recipe& recipe, const Entry& entry, const Job& job) {
  const double factor = entry.rate_factor ? entry.rate_factor(job) : 1;
  recipe.optimizer.lr *= factor;
  for (auto& group : recipe.optimizer.groups)
    if (group.lr) *group.lr *= factor;
}

bool keeps_state_on_disk(const Entry& entry, const Job& job) {
  if (!entry.plan) return false;
  const auto use = entry.plan(job).swap_use();
  return use.state || use.master;
}

ExitCode train(const WorkerOptions& options, Recipe recipe, const WorldOptions& place, World& world, EventSink& events,
               const FailureReport& failures, const PeakMemory& peak_memory) {
  int64_t vocab = outputs_of(recipe.model).value(), seq_len = recipe.data.seq_len.value_or(1);
  std::optional<Checkpoint> checkpoint;  // the supervisor has verified it
  if (!options.resume_from.empty()) checkpoint = Checkpoint::on_demand(options.resume_from);
  const auto learned =
      checkpoint ? checkpoint->state().at("data").value("learned", nlohmann::json()) : nlohmann::json();
  auto training =
      with_scripted_order(open_dataset(recipe.data, Split::train, seq_len, vocab, options.cache_dir, learned), recipe);
  auto validation = open_dataset(recipe.data, Split::validation, seq_len, vocab, options.cache_dir, learned);
  const Topology topology = topology_of(recipe, place);
  const auto conversion = open_precision(recipe);
  const auto whole = std::make_shared<const ModelSpec>(make_spec(recipe, vocab, seq_len));
  const ModelSpec& spec = *whole;
  const Mesh mesh = topology.mesh();
  const auto divided = part_of_rank(recipe, whole, mesh, world.rank);
  const auto first = part_of_rank(recipe, whole, mesh);  // all ranks with the same blocks make the same plan
  auto model = build_model(recipe.model, *divided);
  Job job = make_job(recipe, *first, topology);
  std::shared_ptr<const ModelSpec> stage;  // what `job` points into
  if (mesh.size(Axis::pipeline) > 1) {
    model = stage_of(std::move(model), *stage_of_rank(recipe, *divided, mesh, world.rank));
    stage = stage_of_rank(recipe, *first, mesh, world.rank);
    job = job_of_stage(std::move(job), *stage);
  }
  const Entry* script = script_entry(recipe);
  const Entry& entry = script ? *script : *find_strategy(recipe.strategy.name)->entry;
  if (!job.accelerator.own_memory && keeps_state_on_disk(entry, job)) return_large_blocks();
  scale_rates(recipe, entry, job);
  set_program_cache(job, entry, options.cache_dir);
  const Recipe given = recipe;  // without changes of the script, as a recipe that a checkpoint is compared with
  recipe = with_script_optimizer(given, entry, job.options, spec);
  set_optimizers(recipe.optimizer, job);
  const auto& clip = recipe.train;
  bool by_norm = clip.gradient_clip_algorithm == "norm";
  // The profiler of operators is one for the process, so that of ranks which are threads records the first one.
  const bool is_first = !entry.ranks_are_threads || world.rank % job.local_size == 0;
  const auto profile = is_first ? Profile::make(recipe, world, options.run_dir) : nullptr;
  StrategySetup setup{.world = world,
                      .model = *model,
                      .job = job,
                      .optimizer = optimizer_config(recipe),
                      .source = parameter_source(recipe, spec, !options.resume_from.empty()),
                      .clip_norm = by_norm ? clip.gradient_clip_val : std::nullopt,
                      .clip_value = by_norm ? std::nullopt : clip.gradient_clip_val,
                      .skip_nonfinite = clip.on_nonfinite == "skip",
                      .reducer = make_script_comm_hook(recipe, world),
                      .conversion = conversion,
                      .note =
                          [&events](const std::string& text) {
                            events.emit("note", {{"message", text}});
                          },
                      .spans = profile ? &profile->spans() : nullptr};
  auto strategy =
      script ? make_script_strategy(recipe, std::move(setup)) : make_strategy(recipe.strategy.name, std::move(setup));
  OutOfMemory out_of_memory{job, entry};
  out_of_memory.during([&] { strategy->module_to_device(); });
  nlohmann::json ready{{"pid", ::getpid()}, {"device", world.device.str()}, {"threads", at::get_num_threads()}};
  int64_t steps = planned_steps(recipe, strategy->data_ranks(), *training,
                                checkpoint ? start_of(checkpoint->state()) : TrainingStart());
  if (steps != INT64_MAX) ready["steps"] = steps;
  events.emit("ready", ready);

  auto hooks = make_training_hooks({.recipe = recipe,
                                    .world = world,
                                    .strategy = *strategy,
                                    .model = spec,
                                    .events = events,
                                    .run_dir = options.run_dir,
                                    .cache_dir = options.cache_dir});
  TrainerSetup training_setup{.recipe = recipe,
                              .world = world,
                              .engine = *strategy,
                              .train = *training,
                              .validation = validation.get(),
                              .hooks = *hooks,
                              .events = events,
                              .run_dir = options.run_dir,
                              .task = spec.task,
                              .model_sizes = {{"vocab_size", vocab}, {"seq_len", seq_len}},
                              .stop = &stop_requested,
                              .memory_bytes = peak_memory,
                              .attempt = options.attempt,
                              .group_rates = rates_by_group(spec, optimizer_config(recipe)),
                              .accept_changed_data = options.accept_changed_data,
                              .profile = profile.get()};
  if (world.rank == 0) {
    training_setup.data_meaning =
        data_meaning(recipe, global_batch_size(recipe, strategy->data_ranks(), 0), options.cache_dir);
    training_setup.data_meaning.update(validation_meaning(recipe.data, options.cache_dir));
    training_setup.settings = settings_of_tensors(given);
    const auto& base = recipe.model.init_from;  // a run that resumes may have lost it
    events.emit("inputs", {{"data", short_meaning(training_setup.data_meaning)},
                           {"init_from",
                            base && fs::exists(*base) ? weight_digests(*base, options.cache_dir) : nlohmann::json()}});
  }
  Trainer trainer(std::move(training_setup));
  return failures.during([&] {
    if (checkpoint) resume(trainer, *checkpoint, events);
    TrainerResult result;
    const Contention before = read_contention();
    out_of_memory.during([&] { result = trainer.run(); });
    events.emit("memory", {{"peak_bytes", peak_memory()},
                           {"rss_peak_bytes", peak_resident_bytes() / place.ranks_of_process},
                           {"lost_share", lost_share(before, read_contention())}});
    strategy->barrier();
    strategy->teardown();
    return result.stopped ? ExitCode::preempted : ExitCode::done;
  });
}

/// Runs one rank of this process.
ExitCode run_rank(const WorkerOptions& options, const WorldOptions& place, EventSink& events) {
  World world;
  FailureReport failures(events, world);
  return failures.during([&] {
    static std::once_flag once;
    std::call_once(once, keep_plugin_descriptions, options.cache_dir);
    Recipe recipe = load_recipe((fs::path(options.run_dir) / "resolved.toml").string());
    lua::restore_hook_places(recipe, options.run_dir);
    keep_trained_tokenizer(recipe.data, options.run_dir);
    const OpenDevices devices = open_devices(recipe);
    WorldOptions options_of_world = with_settings_of(recipe, devices.accelerator, place);
    const PeakMemory peak_memory = devices.prepare(place.device_index, place.ranks_of_process);
    at::set_num_threads(static_cast<int>(recipe.devices.threads_per_rank.value_or(1)));
    at::globalContext().setDeterministicAlgorithms(recipe.run.deterministic, /*warn_only=*/false);
    at::globalContext().setBenchmarkCuDNN(recipe.run.benchmark);
    options_of_world.on_diverged = [&](const std::string& verdict) {
      std::_Exit(static_cast<int>(failures.failed("error", verdict, ExitCode::run_failed)));
    };
    options_of_world.on_late = [&](const std::string& text) { events.emit("note", {{"message", text}}); };
    world = make_world(options_of_world);
    return train(options, recipe, options_of_world, world, events, failures, peak_memory);
  });
}

/// All ranks of this process, each in a thread. If one rank fails, others may wait for it in a collective. So its thread ends the process,
/// after a time in which others that have failed too can report it.
ExitCode run_threads(const WorkerOptions& options, const std::vector<WorldOptions>& places, const EventSink& events) {
  constexpr auto patience = std::chrono::milliseconds(1500);
  std::vector<ExitCode> codes(places.size(), ExitCode::done);
  std::mutex mutex;
  std::condition_variable ended;
  size_t running = places.size();
  std::vector<std::thread> threads;
  for (size_t i = 0; i < places.size(); ++i)
    threads.emplace_back([&, i] {
      EventSink own(places[i].rank, events);
      codes[i] = run_rank(options, places[i], own);
      std::unique_lock lock(mutex);
      --running;
      ended.notify_all();
      if (codes[i] == ExitCode::done || codes[i] == ExitCode::preempted) return;
      ended.wait_for(lock, patience, [&] { return running == 0; });
      std::_Exit(static_cast<int>(codes[i]));
    });
  for (auto& thread : threads) thread.join();
  return codes.front();
}

}  // namespace

ExitCode run_worker(const WorkerOptions& options) {
  install_signals();
  const auto places = world_options_of_threads();
  EventSink events(places.front().rank);
  if (places.size() == 1) return run_rank(options, places.front(), events);
  return run_threads(options, places, events);
}

}  // namespace runner
