#include "runner/train/calibrate.hpp"

#include <algorithm>
#include <functional>
#include <limits>

#include "runner/base/clock.hpp"
#include "runner/base/contention.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/launch/events.hpp"
#include "runner/models/models.hpp"
#include "runner/models/module.hpp"
#include "runner/selection/calibration.hpp"
#include "runner/selection/step_time.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/collective/counting_allocator.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/contract/initialize.hpp"
#include "strategies/contract/strategy.hpp"
#include "strategies/engine/token_batch.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

namespace {

/// A small model and a batch. The shapes differ in width, depth, sequence length and vocabulary size, so that a fit can
/// separate the cost of each kind of work.
struct Shape {
  int64_t vocab, dim, layers, heads, seq_len, batch;
  bool recompute = false;
  double tokens() const { return static_cast<double>(seq_len * batch); }
};
constexpr Shape shapes[] = {
    {256, 128, 2, 4, 128, 2},     {256, 64, 8, 2, 32, 2},         {256, 64, 2, 4, 64, 8},
    {256, 128, 4, 4, 128, 4},     {256, 128, 2, 4, 512, 1},       {8192, 128, 1, 4, 128, 2},
    {256, 256, 2, 4, 128, 2},     {256, 256, 2, 8, 256, 2},       {2048, 256, 1, 4, 64, 4},
    {256, 384, 2, 6, 256, 2},     {8192, 384, 1, 6, 64, 2},       {256, 512, 1, 8, 128, 2},
    {256, 512, 1, 8, 256, 1},     {256, 768, 1, 12, 128, 1},      {256, 1024, 1, 8, 64, 1},
    {256, 64, 8, 2, 32, 2, true}, {256, 128, 4, 4, 128, 2, true}, {256, 384, 2, 6, 128, 2, true},
};
/// Large enough to show whether a precision is worth measuring.
constexpr Shape probe_shape = {256, 256, 1, 4, 128, 1};
/// The shapes that several ranks also train together.
constexpr Shape shared_shapes[] = {
    {256, 64, 4, 2, 32, 2}, {256, 128, 4, 4, 128, 2}, {4096, 256, 2, 4, 64, 2}, {256, 384, 2, 6, 128, 2}};
/// Strategy and options of these trainings.
const std::pair<const char*, nlohmann::json> shared_strategies[] = {
    {"ddp", nlohmann::json::object()}, {"fsdp", {{"sharding_strategy", "FULL_SHARD"}}}, {"zero", {{"stage", 1}}}};

Recipe::Model model_of(const std::string& family, const Shape& shape) {
  Recipe::Model model;
  model.name = family;
  model.n_layers = shape.layers;
  model.dim = shape.dim;
  model.n_heads = shape.heads;
  model.max_seq_len = shape.seq_len;
  model.tie_embeddings = false;
  return model;
}

/// One measurement and the turns measured so far.
struct Measurement {
  nlohmann::json point;  ///< fields of its event, without the result
  const char* key = "seconds";
  double amount = 0;  ///< > 0: the result is amount / seconds
  std::function<Turn(double budget)> turn;
  std::vector<Turn> turns = {};
};

class Measurements {
 public:
  Measurements(World& world, EventSink& events, double seconds)
      : world_(world), events_(events), planned_(begun_ + seconds), latest_(begun_ + patience * seconds) {
    WorldOptions alone;  // for strategy `single`, which every rank runs at the same time
    alone_ = make_world(alone);
  }

  void run() {
    add_products();
    add_copies();
    add_collectives();
    const bool bf16 = bf16_is_worth_it();
    add_steps("32-true");
    if (bf16) add_steps("bf16-mixed");
    measure_in_turns();
    report();
  }

 private:
  static constexpr int turns_least = 3, runs_most = 200;
  static constexpr double patience = 2;       ///< for the end of repetitions, in multiples of the planned seconds
  static constexpr double slower_most = 2.5;  ///< slowest precision that is measured, relative to 32-true

  /// One shape under one strategy.
  struct Case {
    std::string family, precision;
    Shape shape;
    std::string strategy = "single";
    nlohmann::json options = nlohmann::json::object();
  };

  /// Each measurement has `turns_least` turns, so that a short disturbance affects at most one turn of each.
  /// Measurements that did not settle are then repeated.
  void measure_in_turns() {
    for (int turn = 0;; ++turn) {
      std::vector<Measurement*> open;
      for (auto& one : measurements_)
        if (turn < turns_least || !all_agree(figure_of(one.turns).settled())) open.push_back(&one);
      if (open.empty()) return;
      // The remaining time is divided again before each turn, because large shapes use more than an equal part.
      size_t to_come = open.size() * static_cast<size_t>(std::max(1, turns_least - turn));
      for (auto* one : open) {
        if (!all_agree(steady_seconds() < latest_)) return;
        const double left = std::max(0.0, planned_ - steady_seconds());
        one->turns.push_back(one->turn(left / static_cast<double>(to_come--)));
      }
    }
  }

  void report() {
    std::vector<std::vector<Turn>> turns;
    for (const auto& one : measurements_) {
      turns.push_back(one.turns);
      const Figure figure = figure_of(one.turns);
      if (!figure.settled()) continue;
      auto point = one.point;
      point[one.key] = one.amount > 0 ? one.amount / figure.seconds : figure.seconds;
      emit(std::move(point));
    }
    emit({{"what", "verdict"}, {"disturbed", disturbance(turns)}});
  }

  /// Whether training in bf16 is practical here. CPUs without bf16 instructions are many times slower in it, and a full
  /// measurement would take an hour.
  bool bf16_is_worth_it() {
    constexpr int tries = 3;
    double plain = std::numeric_limits<double>::infinity(), halves = plain;
    for (int i = 0; i < tries; ++i) {
      plain = std::min(plain, step_turn({"gpt", "32-true", probe_shape}, 0).seconds);
      halves = std::min(halves, step_turn({"gpt", "bf16-mixed", probe_shape}, 0).seconds);
    }
    return all_agree(halves <= slower_most * plain);
  }

  void emit(nlohmann::json fields) {
    if (world_.rank == 0) events_.emit("calibration", std::move(fields));
  }

  double agree(double mine, c10d::ReduceOp::RedOpType operation) {
    std::vector<torch::Tensor> values = {torch::tensor({mine}, torch::kFloat64)};
    c10d::AllreduceOptions options;
    options.reduceOp = operation;
    world_.control->allreduce(values, options)->wait();
    return values[0].item<double>();
  }
  bool all_agree(bool mine) { return agree(mine ? 1 : 0, c10d::ReduceOp::MIN) == 1; }

  /// Runs `work` on all ranks at the same time: once to warm up, once timed, then as often as fits `budget`. All ranks
  /// run it equally often.
  Turn turn_of(double budget, const std::function<void()>& work) {
    auto timed = [&] {
      const double begun = steady_seconds();
      work();
      return steady_seconds() - begun;
    };
    work();
    const Contention before = read_contention();
    double fastest = timed();
    const double fitting = std::clamp(budget / (fastest + 1e-9) - 1, 0.0, double{runs_most});
    const auto repeats = static_cast<int64_t>(agree(fitting, c10d::ReduceOp::MIN));
    for (int64_t i = 0; i < repeats; ++i) fastest = std::min(fastest, timed());
    return {fastest, agree(lost_share(before, read_contention()), c10d::ReduceOp::MAX)};
  }

  void add_products() {
    constexpr int64_t rows = 512;
    for (int64_t width : {64, 128, 256, 512, 1024, 2048})
      measurements_.push_back(
          {.point = {{"what", "product"}, {"rows", rows}, {"width", width}},
           .key = "flops_per_s",
           .amount = 2.0 * static_cast<double>(rows * width * width),
           .turn = [this, width](double budget) {
             auto a = torch::randn({rows, width}), b = torch::randn({width, width}), c = torch::empty({rows, width});
             return turn_of(budget, [&] { at::mm_out(c, a, b); });
           }});
  }

  void add_copies() {
    constexpr int64_t bytes = 64 << 20;
    measurements_.push_back({.point = {{"what", "copy"}, {"bytes", bytes}},
                             .key = "bytes_per_s",
                             .amount = static_cast<double>(bytes),
                             .turn = [this](double budget) {
                               auto from = torch::zeros({bytes}, torch::kUInt8), to = torch::zeros_like(from);
                               return turn_of(budget, [&] { to.copy_(from); });
                             }});
  }

  void add_collectives() {
    if (world_.size == 1) return;
    using Tensors = std::vector<torch::Tensor>;
    using Call = std::function<void(Tensors & whole, torch::Tensor & part)>;
    const std::pair<const char*, Call> calls[] = {
        {"all_reduce", [this](Tensors& whole, torch::Tensor&) { world_.group->allreduce(whole)->wait(); }},
        {"all_gather",
         [this](Tensors& whole, torch::Tensor& part) { world_.group->_allgather_base(whole[0], part)->wait(); }},
        {"reduce_scatter",
         [this](Tensors& whole, torch::Tensor& part) { world_.group->_reduce_scatter_base(part, whole[0])->wait(); }},
        {"broadcast", [this](Tensors& whole, torch::Tensor&) { world_.group->broadcast(whole)->wait(); }}};
    for (int64_t bytes : {4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20})
      for (const auto& [name, call] : calls) {
        const int64_t share = bytes / 4 / world_.size, elements = share * world_.size;
        measurements_.push_back(
            {.point = {{"what", "collective"}, {"name", name}, {"ranks", world_.size}, {"bytes", elements * 4}},
             .turn = [this, call, share, elements](double budget) {
               Tensors whole = {torch::zeros({elements})};
               auto part = torch::zeros({share});
               return turn_of(budget, [&] { call(whole, part); });
             }});
      }
  }

  void add_steps(const std::string& precision) {
    for (const char* family : {"gpt", "llama"}) {
      for (const auto& shape : shapes) add_step({family, precision, shape});
      if (world_.size == 1) continue;
      for (const auto& shape : shared_shapes)
        for (const auto& [strategy, options] : shared_strategies)
          add_step({family, precision, shape, strategy, options});
    }
  }

  void add_step(Case one) {
    const ModelSpec spec = spec_of(one);
    const Job job = job_of(one, spec);
    const Entry& entry = *find_strategy(one.strategy)->entry;
    const auto traffic = entry.traffic(job);
    const auto plan = entry.plan(job);
    auto calls = nlohmann::json::array();
    for (const auto& part : traffic)
      calls.push_back({{"collective", part.collective}, {"calls", part.calls}, {"bytes", part.payload_bytes}});
    nlohmann::json point = {{"what", "step"},
                            {"family", one.family},
                            {"precision", one.precision},
                            {"strategy", one.strategy},
                            {"work", step_work(job, &plan, entry.memory(job), traffic)},
                            {"traffic", calls}};
    measurements_.push_back({.point = std::move(point),
                             .turn = [this, one = std::move(one)](double budget) { return step_turn(one, budget); }});
  }

  Turn step_turn(const Case& one, double budget) {
    const Shape& shape = one.shape;
    auto model = build_model(model_of(one.family, shape), spec_of(one));
    Job job = job_of(one, model->spec);
    ParameterSource source = [specs = model->spec.parameters()](size_t slot, int64_t offset, std::span<float> out) {
      initialize_slice(*specs[slot], 1, offset, out);
    };
    OptimizerConfig optimizer;
    optimizer.lr = 1e-4;
    bool alone = one.strategy == "single";
    auto strategy = make_strategy(
        one.strategy,
        {.world = alone ? alone_ : world_, .model = *model, .job = job, .optimizer = optimizer, .source = source});
    strategy->module_to_device();
    StepInput input;
    const auto drawn = torch::randint(shape.vocab, {shape.batch, shape.seq_len}, torch::kInt64);
    const std::span<const int64_t> tokens(drawn.data_ptr<int64_t>(), static_cast<size_t>(drawn.numel()));
    input.micro_batches = {token_batch(shape.batch, tokens, tokens)};
    input.weight = drawn.numel() * job.data_ranks();
    input.rank_weight = drawn.numel();
    const Turn turn = turn_of(budget, [&] { strategy->step(input); });
    strategy->teardown();
    return turn;
  }

  static ModelSpec spec_of(const Case& one) {
    return make_spec(model_of(one.family, one.shape), one.shape.vocab, one.shape.seq_len);
  }

  Job job_of(const Case& one, const ModelSpec& spec) const {
    Job job;
    job.model = &spec;
    job.precision = precision_policy(one.precision);
    job.micro_batch_size = one.shape.batch;
    if (one.shape.recompute)
      for (const auto& block : spec.blocks) job.recompute.push_back(block.kind == BlockKind::transformer);
    if (one.strategy == "single") return job;
    job.mesh = data_mesh(world_.size);
    job.local_size = world_.size;
    job.options = with_defaults(find_strategy(one.strategy)->entry->options, one.options);
    return job;
  }

  World& world_;
  World alone_;
  EventSink& events_;
  double begun_ = steady_seconds(), planned_, latest_;
  std::vector<Measurement> measurements_;
};

}  // namespace

ExitCode run_calibration(double seconds) {
  WorldOptions options = world_options_from_environment();
  EventSink events(options.rank);
  try {
    tune_malloc();
    install_counting_allocator();
    World world = make_world(options);
    Measurements(world, events, seconds).run();
    barrier(world.control);
    events.flush();
    return ExitCode::done;
  } catch (const std::exception& error) {
    events.emit("failed", {{"kind", "error"}, {"message", error.what()}});
    events.flush();
    return ExitCode::run_failed;
  }
}

}  // namespace runner
