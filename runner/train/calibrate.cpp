#include "runner/train/calibrate.hpp"

#include <algorithm>
#include <functional>

#include "runner/base/clock.hpp"
#include "runner/launch/events.hpp"
#include "runner/models/models.hpp"
#include "runner/models/module.hpp"
#include "runner/selection/step_time.hpp"
#include "runner/selection/strategy_options.hpp"
#include "strategies/collective/counting_allocator.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/contract/initialize.hpp"
#include "strategies/contract/strategy.hpp"

namespace runner {

namespace {

/// A small model and a batch. Together the shapes tell the kinds of work apart: wide and narrow, deep and shallow, long
/// and short sequences, small and large vocabularies.
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
/// Products enough to tell whether a precision is worth measuring.
constexpr Shape probe_shape = {256, 256, 1, 4, 128, 1};
/// Those that several ranks train together too.
constexpr Shape shared_shapes[] = {
    {256, 64, 4, 2, 32, 2}, {256, 128, 4, 4, 128, 2}, {4096, 256, 2, 4, 64, 2}, {256, 384, 2, 6, 128, 2}};
/// How, and its options.
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

/// The lower quartile: what something takes that the rest of the machine leaves alone. Other work only ever adds time,
/// so the median moves with it by tens of percent where the quartile moves by a few.
double undisturbed(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  return seconds[(seconds.size() - 1) / 4];
}

class Calibration {
 public:
  Calibration(World& world, EventSink& events, double seconds) : world_(world), events_(events), seconds_(seconds) {
    WorldOptions alone;  // a step of `single`, on every rank at once
    alone_ = make_world(alone);
  }

  void run() {
    products();
    copies();
    collectives();
    bool bf16 = bf16_is_worth_it();
    double now = steady_seconds(), end = begun_ + seconds_;
    steps("32-true", bf16 ? (now + end) / 2 : end);
    if (bf16) steps("bf16-mixed", end);
  }

 private:
  static constexpr int turns = 2, least_runs = 2;
  static constexpr double slower_most = 2.5;  ///< than 32-true a precision may be

  /// One shape under one strategy.
  struct Case {
    std::string family, precision;
    Shape shape;
    std::string strategy = "single";
    nlohmann::json options = nlohmann::json::object();
    StepWork work = {};
    std::vector<Traffic> traffic = {};
    std::vector<double> seconds = {};  ///< of all turns
  };

  std::vector<Case> cases_of(const std::string& precision) const {
    std::vector<Case> cases;
    for (const char* family : {"gpt", "llama"}) {
      for (const auto& shape : shapes) cases.push_back({family, precision, shape});
      if (world_.size == 1) continue;
      for (const auto& shape : shared_shapes)
        for (const auto& [strategy, options] : shared_strategies)
          cases.push_back({family, precision, shape, strategy, options});
    }
    return cases;
  }

  /// All cases in turns until `deadline` (steady_seconds(); or as soon as each had its fewest runs), so that what else
  /// the machine does for a while touches all of them a little and none much.
  void steps(const std::string& precision, double deadline) {
    auto cases = cases_of(precision);
    size_t to_come = turns * cases.size();
    for (int turn = 0; turn < turns; ++turn)
      for (auto& one : cases) {
        // What is left is shared anew each time: the large shapes' fewest runs take more than their share.
        double left = std::max(0.0, deadline - steady_seconds());
        measure(one, left / static_cast<double>(to_come--));
      }
    for (const auto& one : cases) tell(one);
  }

  /// Whether anybody would train in bf16 here: CPUs without bf16 products are many times slower in it, and measuring
  /// that would take an hour.
  bool bf16_is_worth_it() {
    auto fastest = [&](const char* precision) {
      Case probe{"gpt", precision, probe_shape};
      measure(probe, 0);
      return *std::min_element(probe.seconds.begin(), probe.seconds.end());
    };
    double plain = fastest("32-true"), halves = fastest("bf16-mixed");
    return all_agree(halves <= slower_most * plain);
  }

  static ModelSpec spec_of(const Case& one) {
    return make_spec(model_of(one.family, one.shape), one.shape.vocab, one.shape.seq_len);
  }

  void emit(nlohmann::json fields) {
    if (world_.rank == 0) events_.emit("calibration", std::move(fields));
  }

  /// Seconds of `work`, run on all ranks at once: as often as fits `budget`, at least once after the first, at
  /// most 200 times. All ranks repeat it equally often.
  std::vector<double> times(double budget, const std::function<void()>& work) {
    work();
    double begun = steady_seconds();
    work();
    double mine = steady_seconds() - begun;
    auto count = torch::tensor({mine}, torch::kFloat64);
    std::vector<torch::Tensor> slowest = {count};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    world_.control->allreduce(slowest, options)->wait();
    auto repeats =
        std::clamp<int64_t>(static_cast<int64_t>(budget / (count.item<double>() + 1e-9)) - 1, least_runs - 2, 200);
    std::vector<double> seconds{mine};
    for (int64_t i = 0; i < repeats; ++i) {
      begun = steady_seconds();
      work();
      seconds.push_back(steady_seconds() - begun);
    }
    world_.control->barrier()->wait();
    return seconds;
  }

  bool all_agree(bool mine) {
    auto word = torch::tensor({mine ? 1 : 0}, torch::kInt32);
    std::vector<torch::Tensor> words = {word};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MIN;
    world_.control->allreduce(words, options)->wait();
    return word.item<int>() == 1;
  }

  void products() {
    constexpr int64_t rows = 512;
    for (int64_t width : {64, 128, 256, 512, 1024, 2048}) {
      auto a = torch::randn({rows, width}), b = torch::randn({width, width}), c = torch::empty({rows, width});
      double seconds = undisturbed(times(0.01 * seconds_, [&] { at::mm_out(c, a, b); }));
      emit({{"what", "product"},
            {"rows", rows},
            {"width", width},
            {"flops_per_s", 2.0 * static_cast<double>(rows * width * width) / seconds}});
    }
  }

  void copies() {
    constexpr int64_t bytes = 64 << 20;
    auto from = torch::zeros({bytes}, torch::kUInt8), to = torch::zeros({bytes}, torch::kUInt8);
    double seconds = undisturbed(times(0.01 * seconds_, [&] { to.copy_(from); }));
    emit({{"what", "copy"}, {"bytes", bytes}, {"bytes_per_s", static_cast<double>(bytes) / seconds}});
  }

  void collectives() {
    if (world_.size == 1) return;
    for (int64_t bytes : {4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20}) {
      int64_t elements = bytes / 4 / world_.size * world_.size;
      auto whole = torch::ones({elements}), part = torch::ones({elements / world_.size});
      std::vector<torch::Tensor> tensors = {whole};
      auto measure = [&](const char* name, const std::function<void()>& work) {
        double seconds = undisturbed(times(0.005 * seconds_, work));
        emit({{"what", "collective"},
              {"name", name},
              {"ranks", world_.size},
              {"bytes", elements * 4},
              {"seconds", seconds}});
      };
      measure("all_reduce", [&] { world_.group->allreduce(tensors)->wait(); });
      measure("all_gather", [&] { world_.group->_allgather_base(whole, part)->wait(); });
      measure("reduce_scatter", [&] { world_.group->_reduce_scatter_base(part, whole)->wait(); });
      measure("broadcast", [&] { world_.group->broadcast(tensors)->wait(); });
      whole.fill_(1);
    }
  }

  void measure(Case& one, double budget) {
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
        one.strategy, {alone ? alone_ : world_, *model, job, optimizer, source, std::nullopt, std::nullopt});
    strategy->module_to_device();
    StepInput input;
    auto tokens = torch::randint(shape.vocab, {shape.batch, shape.seq_len}, torch::kInt64);
    input.micro_batches = {{tokens, tokens}};
    input.global_tokens = tokens.numel() * job.world_size;
    for (double seconds : times(budget, [&] { strategy->step(input); })) one.seconds.push_back(seconds);
    const Entry& entry = *find_strategy(one.strategy)->entry;
    one.traffic = entry.traffic(job);
    one.work = step_work(job, entry.memory(job), one.traffic);
    strategy->teardown();
  }

  Job job_of(const Case& one, const ModelSpec& spec) const {
    Job job;
    job.model = &spec;
    job.precision = precision_policy(one.precision);
    job.micro_batch_size = one.shape.batch;
    if (one.shape.recompute)
      for (const auto& block : spec.blocks) job.recompute.push_back(block.kind == BlockKind::transformer);
    if (one.strategy == "single") return job;
    job.world_size = job.local_size = world_.size;
    job.options = complete_options(*find_strategy(one.strategy)->entry, one.options);
    return job;
  }

  void tell(const Case& one) {
    if (one.seconds.empty()) return;
    auto traffic = nlohmann::json::array();
    for (const auto& part : one.traffic)
      traffic.push_back({{"collective", part.collective}, {"calls", part.calls}, {"bytes", part.payload_bytes}});
    emit({{"what", "step"},
          {"family", one.family},
          {"precision", one.precision},
          {"strategy", one.strategy},
          {"work", one.work},
          {"traffic", traffic},
          {"seconds", undisturbed(one.seconds)}});
  }

  World& world_;
  World alone_;
  EventSink& events_;
  double seconds_, begun_ = steady_seconds();
};

}  // namespace

ExitCode run_calibration(double seconds) {
  WorldOptions options = world_options_from_environment();
  EventSink events(options.rank);
  try {
    tune_malloc();
    install_counting_allocator();
    World world = make_world(options);
    Calibration(world, events, seconds).run();
    world.control->barrier()->wait();
    events.flush();
    return ExitCode::done;
  } catch (const std::exception& error) {
    events.emit("failed", {{"kind", "error"}, {"message", error.what()}});
    events.flush();
    return ExitCode::run_failed;
  }
}

}  // namespace runner
