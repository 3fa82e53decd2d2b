// `runner recommend`: shows and explains the choice of strategy = "auto", for this machine or for other devices.
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <memory>

#include "runner/base/clock.hpp"
#include "runner/base/foreign_json.hpp"
#include "runner/base/log.hpp"
#include "runner/base/text.hpp"
#include "runner/commands/build_id.hpp"
#include "runner/commands/command.hpp"
#include "runner/commands/place.hpp"
#include "runner/commands/plan_here.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/commands/recommend.hpp"
#include "runner/commands/shared_options.hpp"
#include "runner/commands/step_clock.hpp"
#include "runner/config/config.hpp"
#include "runner/data/data.hpp"
#include "runner/devices/devices.hpp"
#include "runner/ledger/ledger.hpp"
#include "runner/models/profiler.hpp"
#include "runner/report/recommendation.hpp"
#include "runner/report/terminal.hpp"
#include "runner/selection/batch.hpp"
#include "runner/selection/mesh_plan.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/pipeline/picture.hpp"
#include "strategies/program/program.hpp"
#include "strategies/xla/entry.hpp"

namespace runner {

namespace {

constexpr int devices_of_a_full_node = 8;

/// Takes the number of devices from --device-kind KIND:N.
void split_kind(RecommendOptions& options) {
  const auto colon = options.device_kind.find(':');
  const auto count =
      colon == std::string::npos ? std::nullopt : parse_number<int>(options.device_kind.substr(colon + 1));
  if (!count || *count < 1) return;
  if (options.devices != 0 && options.devices != *count)
    throw usage_error("--device-kind {} and --devices {} contradict each other", options.device_kind, options.devices);
  options.devices = *count;
  options.device_kind.erase(colon);
}

/// Converts --world-size to devices and nodes, with eight devices per full node.
void split_world(RecommendOptions& options) {
  if (options.world_size == 0) return;
  if (options.devices != 0 || options.num_nodes != 0)
    throw usage_error("--world-size replaces --devices and --num-nodes: give one or the others");
  int world = options.world_size;
  if (world > devices_of_a_full_node && world % devices_of_a_full_node != 0)
    throw usage_error(
        "--world-size {} is not a number of full nodes of {}; {} and {} are, or give --devices and --num-nodes", world,
        devices_of_a_full_node, world / devices_of_a_full_node * devices_of_a_full_node,
        (world / devices_of_a_full_node + 1) * devices_of_a_full_node);
  options.devices = std::min(world, devices_of_a_full_node);
  options.num_nodes = world / options.devices;
}

int asked_devices(const Recipe& recipe) {
  const auto request = devices_of(recipe).devices;
  if (request.kind == DeviceRequest::Kind::indices) return static_cast<int>(request.indices.size());
  return request.kind == DeviceRequest::Kind::automatic ? 1 : std::max(1, request.count);
}

/// The kinds whose name contains `name` or begins it, or that have this memory ("24GB").
std::vector<const DeviceKind*> kinds_like(const std::string& name) {
  std::vector<const DeviceKind*> like;
  const auto bytes = parse_bytes(name);
  for (const auto& kind : device_kinds()) {
    const bool same_memory =
        bytes && *bytes > 0 && std::abs(kind.memory_bytes / static_cast<double>(*bytes) - 1) < 0.08;
    const bool longer =
        name.starts_with(kind.name) && !std::isalnum(static_cast<unsigned char>(name[kind.name.size()]));
    const bool named = longer || kind.name.find(name) != std::string::npos;
    if (same_memory || (name.size() > 2 && named)) like.push_back(&kind);
  }
  return like;
}

/// For --devices: the answer to a kind of devices, such as "8xH100", and to all else that is no number.
std::string about_kind(const std::string& text) {
  if (int64_t number = 0; CLI::detail::lexical_cast(text, number)) return "";
  const auto count = text.substr(0, text.find_first_not_of("0123456789"));
  std::vector<std::string> meant;
  for (const auto* kind : kinds_like(lower(text.substr(count.size() + (text[count.size()] == 'x')))))
    meant.push_back(fmt::format("`--device-kind {}:{}`", kind->name, count.empty() ? "1" : count));
  return fmt::format("must be a number, not `{}`{}", shortened_text(text),
                     meant.empty() ? "" : fmt::format("; did you mean {}?", join_or(meant)));
}

const DeviceKind& known_kind(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& kind : device_kinds()) names.push_back(kind.name);
  const DeviceKind* kind = find_device_kind(lower(name));
  const auto like = kind ? std::vector<const DeviceKind*>() : kinds_like(lower(name));
  if (like.size() == 1) {
    kind = like[0];
    log::info("note: --device-kind {} is read as {}", name, kind->name);
  } else if (!kind) {
    std::vector<std::string> nearer;
    for (const auto* one : like) nearer.push_back("\"" + one->name + "\"");
    if (const auto near = nearest(lower(name), names); like.empty() && near) nearer = {"\"" + *near + "\""};
    throw usage_error("unknown device kind \"{}\"{}; known: {}", name,
                      nearer.empty() ? "" : fmt::format(", did you mean {}?", join_or(nearer)), join(names, ", "));
  }
  if (!kind->supported())
    throw usage_error("{} has compute capability {}.{}, but this runner is built for CUDA 13, which needs 7.5 or later",
                      kind->name, kind->major, kind->minor);
  return *kind;
}

Topology imagined(const RecommendOptions& options, const Recipe& recipe) {
  auto topology =
      topology_of(known_kind(options.device_kind), asked_devices(recipe), static_cast<int>(recipe.devices.num_nodes));
  if (options.host_memory.empty()) return topology;
  auto bytes = parse_bytes(options.host_memory);
  if (!bytes || *bytes < 1)
    throw usage_error("--host-memory must be a size such as \"256GiB\", not \"{}\"", options.host_memory);
  topology.host_memory_bytes = *bytes;
  return topology;
}

/// Replaces devices and nodes of the recipe by those of the command line.
void set_devices(const RecommendOptions& options, Recipe& recipe) {
  const auto set_by = [&](const char* key, const std::string& option) {
    Origin& origin = recipe.origins[key] = Origin();
    origin.kind = Origin::Kind::set;
    origin.file = option;
  };
  if (options.devices > 0) {
    recipe.devices.devices = {DeviceRequest::Kind::count, options.devices, {}};
    recipe.devices.cpu_processes = 1;
    recipe.origins.erase("devices.cpu_processes");
    set_by("devices.devices", fmt::format("--devices {}", options.devices));
  }
  if (options.num_nodes > 0) {
    recipe.devices.num_nodes = options.num_nodes;
    set_by("devices.num_nodes", fmt::format("--num-nodes {}", options.num_nodes));
  }
}

std::string describe_devices(const Topology& topology) {
  std::string what = topology.kind ? topology.kind->name : topology.noun();
  return topology.num_nodes == 1
             ? fmt::format("{} x {}", topology.devices_per_node, what)
             : fmt::format("{} nodes of {} x {}", topology.num_nodes, topology.devices_per_node, what);
}

/// The actions of a rank in a step of the chosen plan. With a pipeline: the schedule, and the program of the rank that needs most memory.
std::string chosen_program(const Choice& choice) {
  const Candidate& chosen = choice.plan();
  const auto* pipeline = chosen.pipeline.get();
  std::string text =
      fmt::format("a step of {} with {} of {}:\n", label(chosen),
                  fmt::format("{} micro-batch{}", chosen.job.accumulation, chosen.job.accumulation == 1 ? "" : "es"),
                  counted(chosen.job.micro_batch_size, "sequence"));
  if (pipeline) {
    constexpr int usual_width = 100;
    const int columns = terminal_width(STDOUT_FILENO);
    text +=
        draw(pipeline->shape, pipeline->simulation(), columns > 0 ? columns : usual_width) +
        fmt::format("\nrank {} of {}, {}:\n", pipeline->largest, pipeline->shape.ranks, blocks_text(*chosen.job.model));
  }
  return text + program_text(chosen.job, chosen.entry->plan(chosen.job));
}

ExitCode print(const RecommendOptions& options, const Recommendation& recommendation) {
  constexpr int usual_width = 120, hang = 6;  // in a pipe; of what is behind the break of a line
  const int columns = terminal_width(STDOUT_FILENO), width = columns > 0 ? columns : usual_width;
  bool fits = recommendation.shortfall.empty();
  if (options.json)
    print_json(recommendation_json(recommendation));
  else if (options.toml && fits)
    std::printf("%s", recommendation_toml(recommendation).c_str());
  else if (options.program && fits)
    std::printf("%s", chosen_program(recommendation.plan.choice).c_str());
  else if (!options.toml && !options.program)
    std::fputs(wrap_lines(recommendation_text(recommendation, options.all, options.why), width, hang).c_str(), stdout);
  if (!fits) log::error("{}", recommendation.shortfall);
  return fits ? ExitCode::done : ExitCode::run_failed;
}

/// The recipe's strategy as a candidate. Empty if the recipe has none, or if it is not available or has unknown memory.
std::optional<Form> own_strategy(const Recipe& recipe) {
  std::vector<Diagnostic> diagnostics;
  auto resolved = resolve_strategy(recipe, diagnostics);
  if (!resolved.entry || !diagnostics.empty() || !memory_known(*resolved.entry)) return {};
  return Form{own_form, resolved.entry->name, resolved.options};
}

/// The plan for a batch that cannot be divided among all ranks, but among the data ranks of a mesh that a large model needs.
std::optional<Plan> plan_with_mesh(const Recipe& recipe, const Topology& topology, std::optional<int64_t> vocab,
                                   const StepClock& clock, const std::optional<Form>& own) {
  try {
    return make_plan(recipe, topology, vocab, clock, own);
  } catch (const RecipeError&) {
  } catch (const NothingFits&) {
  }
  return std::nullopt;
}

/// Makes the recipe one with strategy = "auto". If its strategy has a PJRT plug-in for other devices, only strategies that take this
/// option are candidates, because no other strategy can use these devices.
void open_choice(Recipe& recipe, const RecommendOptions& options) {
  const bool is_auto = recipe.strategy.name == "auto";
  const auto plugin = plugin_of_devices(recipe.strategy.options);
  recipe.strategy.name = "auto";
  if (!is_auto) recipe.strategy.options = Recipe::Strategy().options;
  if (plugin.empty() || recipe.devices.simulate) return;
  if (!options.device_kind.empty())
    throw usage_error(
        "--device-kind is for devices that LibTorch uses, and strategy.plugin = \"{}\" is for others: remove one of "
        "them",
        plugin);
  recipe.strategy.options["plugin"] = plugin;
}

ExitCode recommend(RecommendOptions options) {
  split_kind(options);
  split_world(options);
  const Recipe recipe = load_whole_recipe(options.recipe, options.overrides);
  return with_recommendation(options, recipe, [&](const Recommendation& found) { return print(options, found); });
}

}  // namespace

ExitCode with_recommendation(const RecommendOptions& options, const Recipe& given,
                             const std::function<ExitCode(const Recommendation&)>& use) {
  Recipe recipe = with_data_facts(given);
  // The recipe's strategy becomes one of the candidates, and the choice is among all of them.
  const auto own = own_strategy(recipe);
  const auto strategy = recipe.strategy;
  open_choice(recipe, options);
  Facts facts = options.device_kind.empty() ? facts_for(recipe) : Facts();
  set_devices(options, recipe);
  Topology topology = options.device_kind.empty() ? topology_here(recipe, facts) : imagined(options, recipe);
  std::vector<Diagnostic> mistakes;
  recipe.strategy.name = strategy.name;  // its mesh remains
  if (!resolve_mesh(recipe, topology, mistakes)) throw RecipeError(mistakes);
  recipe.strategy.name = "auto";
  const auto asked_batch = recipe.train.global_batch_size;
  keep_descriptions(data_cache(), facts.onednn_isa);
  std::optional<int64_t> vocab;
  if (!recipe.model.vocab_size) vocab = tokenizer_vocab_size(recipe.data, data_cache());
  ClockSource source(topology, knowledge_here(facts, build_id()), shares_memory(recipe));
  int threads = topology.threads_per_rank(recipe.devices.threads_per_rank);
  StepClock clock = source.clock(threads);
  double begin = steady_seconds();
  auto answer = [&](const Plan& plan, const std::string& shortfall) {
    const double planning_seconds = steady_seconds() - begin;
    const Job& job = plan.choice.candidates.front().job;
    const Rates* rates = source.rates(job, threads);
    return use(
        {.plan = plan,
         .recipe_file = options.recipe,
         .devices = describe_devices(topology),
         .peak_flops = rates ? rates->peak_flops : 0,
         .peak_name = rates ? rates->peak_name : "",
         .times = source.describe(job, threads),
         .earlier_runs = source.runs(job, threads),
         .planning_seconds = planning_seconds,
         .what_if = what_if(plan.request, clock, shortfall.empty()),
         .offers = needs_offers(plan.choice) ? make_offers(plan.request, clock) : std::vector<Offer>(),
         .shortfall = shortfall,
         .asked_batch = asked_batch,
         .unset = unset_keys(options.overrides),
         .read = [](const std::string& text) { return parse_recipe(text, "recommended.toml", {}, reader_help()); }});
  };
  if (asked_batch && !can_divide_batch(recipe, topology.data_ranks())) {
    if (const auto plan = plan_with_mesh(recipe, topology, vocab, clock, own)) return answer(*plan, "");
    recipe.train.global_batch_size = shared_batch(recipe, topology.data_ranks());
    begin = steady_seconds();
  }
  try {
    Plan plan = make_plan(recipe, topology, vocab, clock, own);
    if (options.device_kind.empty()) {
      const double asked = steady_seconds();
      ask_compiler(plan, [&] {
        Recipe named = recipe;
        named.strategy = strategy;
        return make_plan(named, topology, vocab, clock);
      });
      begin += steady_seconds() - asked;  // the time of planning does not include it
    }
    return answer(plan, "");
  } catch (const NothingFits& nothing) {
    return answer(nothing.plan(), nothing.what());
  }
}

Action setup_recommend(CLI::App& app) {
  auto options = std::make_shared<RecommendOptions>();
  add_recipe_option(app, options->recipe);
  add_overrides(app, options->overrides);
  auto* kind =
      app.add_option("--device-kind", options->device_kind,
                     "Answer for devices of this kind, e.g. h100-80g or h100-80g:8, instead of this machine's");
  app.add_option("--host-memory", options->host_memory,
                 "With --device-kind: host memory of a node, e.g. 256GiB; default: unlimited")
      ->needs(kind);
  app.add_option("--devices", options->devices, "Devices of a node; default the recipe's")
      ->check(about_kind)
      ->check(at_least_one());
  app.add_option("--num-nodes", options->num_nodes, "Nodes; default the recipe's")->check(at_least_one());
  app.add_option("--world-size", options->world_size, "All devices, on nodes of eight")->check(at_least_one());
  add_json_option(app, options->json);
  app.add_flag("--toml", options->toml,
               "Print a recipe, for a file in the current folder, that extends this one with the recommended values");
  app.add_flag("--all", options->all, "Show also what cannot run, and why");
  app.add_flag("--why", options->why, "Show also the rule behind the choice, and what the figures mean and come from");
  app.add_flag("--program", options->program, "Show what a rank does in a step of the chosen plan, in order")
      ->excludes("--json")
      ->excludes("--toml")
      ->excludes("--all")
      ->excludes("--why");
  return [options] { return recommend(*options); };
}

}  // namespace runner
