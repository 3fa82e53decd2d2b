#include "runner/selection/plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "runner/base/text.hpp"
#include "runner/data/data.hpp"
#include "runner/models/models.hpp"
#include "runner/selection/backend.hpp"
#include "runner/selection/batch.hpp"
#include "runner/selection/data_fit.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/mesh_search.hpp"
#include "runner/selection/parameter_patterns.hpp"
#include "runner/selection/pipeline_plan.hpp"
#include "runner/selection/precision_part.hpp"
#include "runner/selection/recompute.hpp"
#include "runner/selection/script_optimizer.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/selection/strategy_options.hpp"
#include "runner/selection/what_if.hpp"

namespace runner {

namespace {

void resolve_precision(Recipe& recipe, const Topology& topology, std::vector<Diagnostic>& diagnostics,
                       std::vector<std::string>& notes) {
  auto& mode = recipe.precision.mode;
  if (mode == "auto") {
    const bool mixed = topology.bf16;
    mode = mixed ? "bf16-mixed" : "32-true";
    recipe.origins["precision.mode"] = decided(
        topology.on_devices() ? fmt::format("these {}s have {}bf16", topology.accelerator.noun(), mixed ? "" : "no ")
                              : "the devices are CPUs");
  }
  if (topology.on_devices() && !topology.bf16 && mode.starts_with("bf16"))
    diagnostics.push_back({.place = recipe.origin("precision.mode"),
                           .code = "needs",
                           .message = fmt::format("this {} has no bf16", topology.accelerator.noun()),
                           .allowed = {"16-mixed", "32-true"}});
  if (!topology.on_devices() && mode == "16-mixed")
    notes.push_back("16-mixed on CPU works but is slow: CPUs have no fast float16 matrix products");
}

/// The reason for the micro-batch of a candidate.
std::string why_batch(const Recipe& recipe, const Candidate& candidate, const MemoryLimit& limit) {
  if (recipe.strategy.name == "auto" && recipe.selection.policy == "smallest") return "for the least memory";
  if (candidate.mesh) return "predicted to be the fastest on this mesh";
  if (!candidate.fits) return fmt::format("the smallest, and it does not fit {}", limit.reason);
  if (limit.device == 0) return "the largest possible";
  return fmt::format("the largest that fits {}{}", limit.reason, batch_condition(recipe, candidate));
}

void take_batch(Recipe& recipe, const Candidate& candidate, const MemoryLimit& limit) {
  auto& train = recipe.train;
  const Job& job = candidate.job;
  if (train.micro_batch_size == job.micro_batch_size) return;
  train.micro_batch_size = job.micro_batch_size;
  recipe.origins["train.micro_batch_size"] = decided(why_batch(recipe, candidate, limit));
  if (train.global_batch_size || train.accumulate_grad_batches == AccumulationSchedule{{0, job.accumulation}}) return;
  if (recipe.origin("train.accumulate_grad_batches").kind != Origin::Kind::default_value) return;
  train.accumulate_grad_batches = AccumulationSchedule{{0, job.accumulation}};
  recipe.origins["train.accumulate_grad_batches"] = decided("keeps the default number of sequences in a step");
}

void take_recompute(Recipe& recipe, const Candidate& candidate) {
  if (candidate.every == 0) return;
  auto& settings = recipe.activation_checkpointing;
  settings.mode = candidate.every == 1 ? "all" : "every";
  settings.every = candidate.every;
  const char* why = recipe.selection.policy == "smallest" ? "for the least memory"
                    : candidate.mesh                      ? "predicted to be the fastest on this mesh"
                    : candidate.every_for_speed()         ? "predicted to be faster, with a larger micro-batch"
                                                          : "the step does not fit without it";
  recipe.origins["activation_checkpointing.mode"] = decided(why);
  if (candidate.every > 1)
    recipe.origins["activation_checkpointing.every"] =
        decided(candidate.every_for_speed() ? why : "the largest with which the step fits");
}

/// Puts the mesh that was chosen into the recipe, and divides the batch among its data ranks. `asked`: as before the batch was resolved.
void take_mesh(Plan& plan, const Candidate& candidate, const Recipe& asked, Topology& topology) {
  Recipe& recipe = plan.recipe;
  topology.sizes = candidate.mesh->sizes;
  recipe.devices.mesh = topology.sizes;
  recipe.origins["devices.mesh"] = decided(plan.reason);
  if (candidate.mesh->virtual_stages > 1) {
    recipe.strategy.virtual_stages = candidate.mesh->virtual_stages;
    recipe.origins["strategy.virtual_stages"] = decided("ranks of the pipeline wait less for each other");
  }
  plan.part = candidate.part;
  recipe.train.micro_batch_size = asked.train.micro_batch_size;
  recipe.train.accumulate_grad_batches = asked.train.accumulate_grad_batches;
  std::vector<Diagnostic> none;
  resolve_batch(recipe, topology.batch_ranks(), none);
  RUNNER_CHECK(none.empty(), "a mesh was chosen whose data ranks cannot divide the batch");
}

/// The note about a candidate that does not fit.
std::string too_much(const Candidate& candidate, const MemoryLimit& limit) {
  bool of_host = limit.decided_by_host(candidate.bytes, candidate.host);
  return fmt::format(
      "a step is predicted to need {} a rank, and the limit is {}: it may run out of memory (`runner recommend` shows "
      "what fits)",
      format_bytes(of_host ? candidate.host : candidate.bytes),
      of_host ? format_bytes(limit.host) + " of host memory" : limit.reason);
}

/// Decides checkpoint.save_top_k = "auto". If only validations ask for checkpoints, training waits for each of these small ones, so that
/// no copy of the state takes memory.
void resolve_best(Recipe& recipe, const ModelSpec& model, const Topology& topology) {
  auto& checkpoint = recipe.checkpoint;
  if (checkpoint.save_top_k) return;
  constexpr int64_t most = int64_t{1} << 30;
  const int64_t bytes = checkpoint_bytes_on_disk(base_job(recipe, model, topology), model);
  const bool validates = recipe.data.validates(), keeps = validates && bytes <= most;
  const auto size = fmt::format("a checkpoint takes {}, {} {}", format_bytes(bytes),
                                bytes <= most ? "not more than" : "more than", format_bytes(most));
  checkpoint.save_top_k = keeps ? 1 : 0;
  recipe.origins["checkpoint.save_top_k"] = decided(validates ? size : "there are no validation data");
  const bool others = checkpoint.every_n_steps.value_or(0) > 0 || checkpoint.every || recipe.plugins.checkpoint_io;
  if (!keeps || others || recipe.origin("checkpoint.async").kind != Origin::Kind::default_value) return;
  checkpoint.async = false;
  recipe.origins["checkpoint.async"] = decided("only validations write checkpoints, and they are small");
}

/// For a strategy that the recipe names, chooses only the micro-batch, if the recipe leaves it open; for "auto",
/// everything. `topology` gets the mesh that was chosen.
void select_strategy(Plan& plan, const ResolvedStrategy& resolved, SelectionRequest request, Topology& topology,
                     const StepClock& clock) {
  Recipe& recipe = plan.recipe;
  request.given = resolved.options;
  MemoryLimit limit = memory_limit(topology, recipe.devices.memory_limit.value_or(0));
  if (resolved.entry) {
    plan.entry = resolved.entry;
    plan.rule = "named";
    plan.reason = fmt::format("the recipe names `{}`", recipe.strategy.name);
    recipe.strategy.options = with_defaults(plan.entry->options, resolved.options);
    if (!memory_known(*plan.entry) && request.recipe.train.micro_batch_size == Recipe::automatic)
      throw RecipeError(
          {{recipe.origin("train.micro_batch_size"), "needs",
            fmt::format("train.micro_batch_size = \"auto\" needs the memory of a step, and the file of `{}` has no "
                        "function `memory`: set a number",
                        recipe.strategy.name)}});
    Candidate candidate = fit_named(request.recipe, *plan.part, request.topology, request.given, *resolved.entry);
    if (!candidate.refused.empty()) return;                  // reported later, with the complete job
    if (candidate.job.options != recipe.strategy.options) {  // one of Entry::variants
      recipe.strategy.options = candidate.job.options;
      if (candidate.fits)
        plan.notes.push_back(plan.entry->label(candidate.job) + ": the first placement with which a step fits");
    }
    auto before = recipe.train.micro_batch_size;
    take_batch(recipe, candidate, limit);
    if (candidate.fits && recipe.train.micro_batch_size < before)
      plan.notes.push_back(fmt::format("micro-batch {} instead of the default {}: {}", *recipe.train.micro_batch_size,
                                       *before, why_batch(recipe, candidate, limit)));
    if (!candidate.fits) plan.notes.push_back(too_much(candidate, limit));
    return;
  }
  plan.choice = choose(request, clock);
  plan.request = request;
  if (!plan.choice.fits())
    throw NothingFits(explain_shortfall(request, plan.choice, clock), std::make_shared<const Plan>(plan));
  const Candidate& candidate = plan.choice.plan();
  plan.entry = candidate.entry;
  plan.rule = plan.choice.rule;
  plan.reason = plan.choice.reason;
  recipe.strategy.options = candidate.job.options;
  recipe.origins["strategy.name"] = decided(plan.reason);
  if (candidate.mesh) take_mesh(plan, candidate, request.recipe, topology);
  take_batch(recipe, candidate, limit);
  take_recompute(recipe, candidate);
  for (const auto& advice : plan.choice.advice) plan.notes.push_back(advice);
}

/// Moves the option `timeout`, which belongs to the run, not to the strategy's algorithm, to [train].
void move_timeout(Recipe& recipe, nlohmann::json& options, std::vector<Diagnostic>& diagnostics) {
  auto found = options.find("timeout");
  if (found == options.end()) return;
  const auto timeout = *parse_duration(found->get<std::string>());
  if (recipe.origin("train.timeout").kind != Origin::Kind::default_value && recipe.train.timeout != timeout)
    diagnostics.push_back({.place = recipe.origin("train.timeout"),
                           .code = "contradiction",
                           .message = "train.timeout and strategy.timeout set the same timeout to different values",
                           .other = recipe.origin("strategy.timeout"),
                           .other_message = "strategy.timeout is set here"});
  recipe.train.timeout = timeout;
  options.erase(found);
}

void resolve_devices(Recipe& recipe, const Topology& topology, std::vector<std::string>& notes) {
  auto& devices = recipe.devices;
  const bool count = devices.devices.kind == DeviceRequest::Kind::count && devices.devices.count > 0;
  if (!topology.on_devices() && count && devices.devices.count != topology.devices_per_node &&
      devices.cpu_processes == topology.devices_per_node)
    notes.push_back(
        fmt::format("there is no GPU: devices.cpu_processes = {} is the number of CPU ranks, and devices.devices = {} "
                    "has no effect",
                    devices.cpu_processes, devices.devices.count));
  if (devices.accelerator == "auto" && !recipe.plugged_devices())
    recipe.origins["devices.accelerator"] = decided(topology.device_reason);
  // The key stays "auto" for the devices of plugins.accelerator, and "tpu" for those of a PJRT plug-in.
  const bool other = recipe.plugged_devices() || (devices.accelerator == "tpu" && !devices.simulate);
  if (!other) devices.accelerator = topology.accelerator.type;
  if (devices.devices.kind != DeviceRequest::Kind::count || devices.devices.count != topology.devices_per_node) {
    recipe.origins["devices.devices"] = decided(topology.device_reason);
    DeviceRequest request;
    if (!topology.device_indices.empty()) {
      request.kind = DeviceRequest::Kind::indices;
      request.indices = topology.device_indices;
    } else {
      request.kind = DeviceRequest::Kind::count;
      request.count = topology.devices_per_node;
    }
    devices.devices = request;
  }
  devices.num_nodes = topology.num_nodes;
  if (!topology.on_devices()) devices.cpu_processes = topology.devices_per_node;
  if (!devices.threads_per_rank) {
    devices.threads_per_rank = topology.threads_per_rank({});
    recipe.origins["devices.threads_per_rank"] =
        decided(fmt::format("{} cores for {} ranks on this node", topology.cores, topology.ranks_per_machine()));
  }
}

/// Reading samples costs time where they are decoded; tokens and tables are in memory.
void resolve_workers(Recipe& recipe, const Topology& topology) {
  if (recipe.data.num_workers) return;
  constexpr int most = 4;
  const bool decodes = recipe.data.is_images() || recipe.data.gives_samples();
  recipe.data.num_workers = decodes ? std::clamp(topology.threads_per_rank({}), 1, most) : 1;
  recipe.origins["data.num_workers"] = decided(decodes ? "the cores of a rank" : "samples that cost little");
}

}  // namespace

int64_t accumulation(const Recipe& resolved, int data_ranks, int64_t epoch) {
  const auto& train = resolved.train;
  if (train.global_batch_size) return *train.global_batch_size / (data_ranks * *train.micro_batch_size);
  int64_t factor = 1;
  for (const auto& [from, value] : *train.accumulate_grad_batches)
    if (from <= epoch) factor = value;
  return factor;
}

int64_t global_batch_size(const Recipe& resolved, int data_ranks, int64_t epoch) {
  return accumulation(resolved, data_ranks, epoch) * data_ranks * *resolved.train.micro_batch_size;
}

Job make_job(const Recipe& resolved, const ModelSpec& model, const Topology& topology, int64_t epoch) {
  Job job = base_job(resolved, model, topology);
  job.micro_batch_size = *resolved.train.micro_batch_size;
  job.accumulation = accumulation(resolved, job.data_ranks(), epoch);
  job.accumulation_most = std::max(job.accumulation_most, job.accumulation);
  job.options = resolved.strategy.options;
  set_recompute(job, resolved.activation_checkpointing);
  return job;
}

/// The key that a message about the model begins with ("model.n_heads = 3: does not divide ..."). Otherwise the one that names the model.
static std::string key_of_model(const Recipe& recipe, const std::string& message) {
  if (message.starts_with("the option")) return "model.options";
  const auto parts = split(message.substr(0, message.find_first_of(" :")), '.');
  const auto key = parts.size() > 1 ? parts[0] + "." + parts[1] : "";
  return recipe.origins.contains(key) ? key : recipe.model.plugin ? "model.plugin" : "model.name";
}

/// The spec of the plan's model.
static ModelSpec spec_of(const Plan& plan) {
  try {
    return make_spec(plan.recipe, plan.vocab_size, plan.seq_len);
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    const bool own = plan.recipe.model.plugin.has_value();
    throw RecipeError({{.place = plan.recipe.origin(key_of_model(plan.recipe, error.what())),
                        .code = own ? "plugin" : "model",
                        .message = error.what()}});
  }
}

/// Divides the blocks into the stages of the pipeline. The job becomes that of the rank that needs most memory.
static void resolve_stages(Plan& plan, Recipe& recipe, const Topology& topology) {
  const auto limit = memory_limit(topology, recipe.devices.memory_limit.value_or(0));
  plan.pipeline = std::make_shared<PipelinePlan>(plan_pipeline(recipe, plan.job, *plan.entry, limit));
  if (!recipe.strategy.stages) recipe.origins["strategy.stages"] = decided(plan.pipeline->division);
  recipe.strategy.stages = plan.pipeline->blocks;
  plan.part = plan.pipeline->models[static_cast<size_t>(plan.pipeline->largest)];
  plan.job = plan.pipeline->job_of_rank(plan.job, plan.pipeline->largest);
  for (auto& note : notes_of(*plan.pipeline)) plan.notes.push_back(std::move(note));
}

/// Adds what a plan that can run should say. `recipe`: as given. `named`: the recipe names the strategy.
static void add_notes(Plan& plan, const Recipe& recipe, const Topology& topology, bool named) {
  for (const auto& note : idle_options(recipe.strategy.options, *plan.entry, plan.job)) plan.notes.push_back(note);
  if (plan.entry->notes)
    for (const auto& note : plan.entry->notes(plan.job)) plan.notes.push_back(note);
  if (const auto note = note_on_late_reducer(plan.recipe, *plan.entry, plan.job)) plan.notes.push_back(*note);
  for (auto& note : mesh_notes(recipe, topology.mesh(), topology.devices_per_node)) plan.notes.push_back(note);
  const auto& selection = recipe.selection;
  if (named && (selection.policy != Recipe::Selection().policy || selection.prefer != Recipe::Selection().prefer))
    plan.notes.push_back(fmt::format(
        "[selection] has no effect: it is for strategy = \"auto\", and the recipe names `{}`", recipe.strategy.name));
  if (plan.job.own_loss && recipe.train.label_smoothing > 0)
    plan.notes.push_back("train.label_smoothing has no effect: the function `loss` of a hook replaces the loss");
  if (recipe.run.benchmark && recipe.model.name != "resnet")
    plan.notes.push_back("`run.benchmark`: nothing to do: cuDNN measures convolutions, and this model has none");
  else if (recipe.run.benchmark && !plan.job.accelerator.own_memory)
    plan.notes.push_back("`run.benchmark`: nothing to do on CPU: cuDNN measures convolutions of CUDA devices");
  if (!plan.model->buffers.empty() && !recipe.model.sync_batchnorm)
    plan.notes.push_back(
        fmt::format("BatchNorm uses the mean and variance of each micro-batch of {} rows on one rank: with another "
                    "micro-batch the losses differ; model.sync_batchnorm = true uses the rows of all ranks",
                    plan.job.micro_batch_size));
  for (const auto& note : idle_groups(recipe, *plan.model)) plan.notes.push_back(note);
  for (const auto& note : recompute_notes(plan.job, plan.recipe.activation_checkpointing)) plan.notes.push_back(note);
}

/// Sets the memory, the traffic and the time that the plan's job is predicted to need.
static void predict(Plan& plan, const StepClock& clock) {
  if (memory_known(*plan.entry)) plan.memory = claimed_memory(*plan.entry, plan.job);
  if (traffic_known(*plan.entry, plan.job)) plan.traffic = plan.entry->traffic(plan.job);
  Candidate planned;
  planned.entry = plan.entry;
  planned.job = plan.job;
  planned.pipeline = plan.pipeline;
  planned.memory = plan.memory;
  set_time(planned, clock);
  plan.step_seconds = planned.step_seconds;
  plan.step_error = planned.step_error;
  plan.load = step_load(planned);
}

Plan make_plan(const Recipe& recipe, const Topology& devices, std::optional<int64_t> tokenizer_vocab_size,
               const StepClock& clock, const std::optional<Form>& own) {
  Plan plan;
  plan.recipe = recipe;
  Topology topology = devices;
  std::vector<Diagnostic> diagnostics;
  auto resolved = resolve_strategy(recipe, diagnostics);
  plan.notes = recipe.notes;
  plan.notes.insert(plan.notes.end(), resolved.notes.begin(), resolved.notes.end());
  resolve_lengths(plan, tokenizer_vocab_size, diagnostics);
  resolve_precision_part(plan.recipe, diagnostics);
  resolve_precision(plan.recipe, topology, diagnostics, plan.notes);
  resolve_devices(plan.recipe, topology, plan.notes);
  resolve_workers(plan.recipe, topology);
  const bool sound = resolve_mesh(plan.recipe, topology, diagnostics);
  SelectionRequest request{.recipe = plan.recipe, .model = nullptr, .topology = topology, .own = own};
  std::vector<Diagnostic> batch_mistakes;
  if (sound) {
    check_division(recipe, topology.sizes, diagnostics);
    resolve_batch(plan.recipe, topology.batch_ranks(), batch_mistakes);
  }
  const bool may_divide_model = sound && !resolved.entry && mesh_is_open(recipe, topology);
  if (!may_divide_model || !diagnostics.empty())
    diagnostics.insert(diagnostics.end(), batch_mistakes.begin(), batch_mistakes.end());
  if (!diagnostics.empty()) throw RecipeError(diagnostics);

  plan.model = std::make_shared<ModelSpec>(spec_of(plan));
  // Other meshes have fewer data ranks, but they are considered only for large models and long rows.
  const bool considers_meshes =
      plan.model->parameter_count() >= rule_book().mesh.parameters_from || has_long_rows(recipe, *plan.model);
  if (!batch_mistakes.empty() && !considers_meshes) throw RecipeError(batch_mistakes);
  plan.part = part_of_rank(plan.recipe, plan.model, topology.mesh());
  for (const auto& pattern : unmatched_blocks(plan.recipe.activation_checkpointing, *plan.model))
    diagnostics.push_back(
        {recipe.origin("activation_checkpointing.blocks"), "no-match",
         fmt::format("no block is called `{}`; names are {}", pattern, names_of_blocks(*plan.model))});
  check_parameter_patterns(recipe, *plan.model, diagnostics);
  check_converted_parameters(plan.recipe, *plan.model, diagnostics);
  const auto asked_shape = pipeline_of(plan.recipe, topology.mesh());
  check_stages(recipe, *plan.model, asked_shape, diagnostics);
  if (!diagnostics.empty() && asked_shape.ranks > 1) throw RecipeError(diagnostics);  // there are no stages to plan
  check_batch_fields(recipe, *plan.model, data_fields(plan.recipe.data, plan.seq_len), diagnostics);
  if (!check_micro_batch(recipe, *plan.part, diagnostics)) throw RecipeError(diagnostics);
  request.model = plan.model;
  resolve_best(plan.recipe, *plan.model, topology);
  request.recipe.checkpoint = plan.recipe.checkpoint;
  select_strategy(plan, resolved, request, topology, clock);
  move_timeout(plan.recipe, plan.recipe.strategy.options, diagnostics);
  resolve_backend(plan.recipe, plan.recipe.strategy.options, topology, diagnostics);
  plan.recipe.strategy.name = plan.entry->name;
  plan.job = make_job(plan.recipe, *plan.part, topology);
  if (auto refusal = plan.entry->refuse(plan.job))
    diagnostics.push_back({refused_at(recipe, *refusal), "refused", *refusal});
  else if (auto split = refuse_data_axis(topology.sizes, *plan.entry, plan.job))
    diagnostics.push_back({recipe.origin("devices.mesh"), "refused", *split});
  else if (recipe.devices.elastic() && plan.entry->plan(plan.job).reducer.replicas_differ)
    diagnostics.push_back(
        {recipe.origin(recipe.devices.min_nodes ? "devices.min_nodes" : "devices.max_nodes"), "refused",
         fmt::format("with `{}` each rank has parameters or optimizer state of its own, so a run cannot go on with "
                     "another number of nodes: remove min_nodes and max_nodes, or use ddp, fsdp or zero",
                     plan.entry->label ? plan.entry->label(plan.job) : plan.entry->name)});
  else if (plan.recipe.plugins.precision && plan.entry->plan && plan.entry->plan(plan.job).compiled)
    diagnostics.push_back(
        {recipe.origin("plugins.precision"), "refused",
         fmt::format("XLA compiles the step of `{}`, which cannot call a plug-in: use ddp or fsdp", plan.entry->name)});
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  if (plan.entry->setup_optimizer) {  // a run makes the same changes
    set_optimizers(with_script_optimizer(plan.recipe, *plan.entry, plan.job.options, *plan.model).optimizer, plan.job);
    if (const auto refusal = plan.entry->refuse(plan.job))
      throw RecipeError({{refused_at(recipe, *refusal), "refused", *refusal}});
  }
  if (plan.job.pipeline.ranks > 1) resolve_stages(plan, plan.recipe, topology);
  add_notes(plan, recipe, topology, /*named=*/resolved.entry != nullptr);
  set_engine(*plan.entry, plan.job);
  predict(plan, clock);
  return plan;
}

int64_t Plan::snapshot_bytes() const { return runner::snapshot_bytes(recipe, *entry, job, memory); }

nlohmann::json Plan::to_json() const {
  nlohmann::json traffic_list = nlohmann::json::array();
  for (const auto& part : traffic)
    traffic_list.push_back(
        {{"collective", part.collective}, {"payload_bytes", part.payload_bytes}, {"wire_bytes", part.wire_bytes}});
  const bool known = memory_known(*entry);
  auto parts = parts_json(memory);
  parts["snapshot"] = job.accelerator.own_memory ? 0 : snapshot_bytes();
  return {{"strategy", entry->name},
          {"options", recipe.strategy.options},
          {"rule", rule},
          {"reason", reason},
          {"notes", notes},
          {"world_size", job.world_size()},
          {"mesh", mesh_json(job.mesh)},
          {"micro_batch_size", job.micro_batch_size},
          {"accumulation", job.accumulation},
          {"precision", recipe.precision.mode},
          {"parameters", model->parameter_count()},
          {"memory_bytes_per_rank", known ? nlohmann::json(memory_bytes()) : nlohmann::json()},
          {"memory_parts", known ? parts : nlohmann::json()},
          {"host_bytes_per_rank", known ? nlohmann::json(host_bytes()) : nlohmann::json()},
          {"between_steps_bytes_per_rank", known ? nlohmann::json(memory.between_steps) : nlohmann::json()},
          {"pipeline", pipeline ? runner::to_json(*pipeline) : nlohmann::json()},
          {"traffic", traffic_known(*entry, job) ? traffic_list : nlohmann::json()},
          {"step_seconds", step_seconds ? nlohmann::json(*step_seconds) : nlohmann::json()},
          {"step_seconds_error", step_seconds ? nlohmann::json(step_error) : nlohmann::json()}};
}

}  // namespace runner
