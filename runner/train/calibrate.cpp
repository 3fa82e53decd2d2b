#include "runner/train/calibrate.hpp"

#include <algorithm>
#include <functional>

#include "runner/base/clock.hpp"
#include "runner/launch/events.hpp"
#include "runner/models/models.hpp"
#include "runner/models/module.hpp"
#include "runner/selection/step_time.hpp"
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
};
constexpr Shape shapes[] = {
    {256, 64, 8, 2, 32, 2},   {256, 64, 2, 4, 64, 8},    {256, 128, 2, 4, 128, 2},  {256, 128, 4, 4, 128, 8},
    {256, 128, 2, 4, 512, 2}, {8192, 128, 1, 4, 128, 4}, {256, 256, 2, 4, 128, 4},  {256, 256, 2, 8, 256, 4},
    {2048, 256, 1, 4, 64, 8}, {256, 384, 3, 6, 256, 2},  {8192, 384, 1, 6, 256, 2}, {256, 512, 1, 8, 128, 4},
    {256, 512, 2, 8, 512, 1}, {256, 768, 1, 12, 128, 4}, {256, 1024, 1, 8, 64, 2},
};

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

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2), values.end());
  return values[values.size() / 2];
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
    const std::vector<std::pair<std::string, std::string>> kinds = {
        {"gpt", "32-true"}, {"llama", "32-true"}, {"gpt", "bf16-mixed"}, {"llama", "bf16-mixed"}};
    double share = 0.8 * seconds_ / static_cast<double>(kinds.size() * std::size(shapes));
    for (const auto& [family, precision] : kinds) {
      flops_per_second_ = 0;
      for (const auto& shape : shapes) step(family, precision, shape, share);
    }
  }

 private:
  void emit(nlohmann::json fields) {
    if (world_.rank == 0) events_.emit("calibration", std::move(fields));
  }

  /// Median seconds of `work`, run on all ranks at once: as often as fits `budget`, at least three times after the
  /// first two, at most 200. All ranks repeat it equally often.
  double time(double budget, const std::function<void()>& work) {
    work();
    double begun = steady_seconds();
    work();
    auto count = torch::tensor({(steady_seconds() - begun)}, torch::kFloat64);
    std::vector<torch::Tensor> slowest = {count};
    c10d::AllreduceOptions options;
    options.reduceOp = c10d::ReduceOp::MAX;
    world_.control->allreduce(slowest, options)->wait();
    auto repeats = std::clamp<int64_t>(static_cast<int64_t>(budget / (count.item<double>() + 1e-9)), 3, 200);
    std::vector<double> seconds;
    for (int64_t i = 0; i < repeats; ++i) {
      begun = steady_seconds();
      work();
      seconds.push_back(steady_seconds() - begun);
    }
    world_.control->barrier()->wait();
    return median(seconds);
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
      double seconds = time(0.01 * seconds_, [&] { at::mm_out(c, a, b); });
      emit({{"what", "product"},
            {"rows", rows},
            {"width", width},
            {"flops_per_s", 2.0 * static_cast<double>(rows * width * width) / seconds}});
    }
  }

  void copies() {
    constexpr int64_t bytes = 64 << 20;
    auto from = torch::zeros({bytes}, torch::kUInt8), to = torch::zeros({bytes}, torch::kUInt8);
    double seconds = time(0.01 * seconds_, [&] { to.copy_(from); });
    emit({{"what", "copy"}, {"bytes", bytes}, {"bytes_per_s", static_cast<double>(bytes) / seconds}});
  }

  void collectives() {
    if (world_.size == 1) return;
    for (int64_t bytes : {4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20}) {
      int64_t elements = bytes / 4 / world_.size * world_.size;
      auto whole = torch::ones({elements}), part = torch::ones({elements / world_.size});
      std::vector<torch::Tensor> tensors = {whole};
      auto measure = [&](const char* name, const std::function<void()>& work) {
        double seconds = time(0.005 * seconds_, work);
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

  /// Leaves the shape out where its five runs, at the pace of the one before, would take more than the time that is
  /// left: CPUs without bf16 products are a hundred times slower in bf16.
  void step(const std::string& family, const std::string& precision, const Shape& shape, double budget) {
    Recipe::Model recipe = model_of(family, shape);
    ModelSpec spec = make_spec(recipe, shape.vocab, shape.seq_len);
    double flops = spec.training_flops_per_token() * static_cast<double>(shape.seq_len * shape.batch);
    double left = seconds_ - (steady_seconds() - begun_);
    if (flops_per_second_ > 0 && !all_agree(5 * flops / flops_per_second_ < std::max(left, 10 * budget))) return;
    auto model = build_model(recipe, std::move(spec));
    Job job;
    job.model = &model->spec;
    job.precision = precision_policy(precision);
    job.micro_batch_size = shape.batch;
    ParameterSource source = [specs = model->spec.parameters()](size_t slot, int64_t offset, std::span<float> out) {
      initialize_slice(*specs[slot], 1, offset, out);
    };
    OptimizerConfig optimizer;
    optimizer.lr = 1e-4;
    auto strategy = make_strategy("single", {alone_, *model, job, optimizer, source, std::nullopt, std::nullopt});
    strategy->module_to_device();
    StepInput input;
    auto tokens = torch::randint(shape.vocab, {shape.batch, shape.seq_len}, torch::kInt64);
    input.micro_batches = {{tokens, tokens}};
    input.global_tokens = tokens.numel();
    double seconds = time(budget, [&] { strategy->step(input); });
    flops_per_second_ = flops / seconds;
    StepWork work = step_work(job, find_strategy("single")->entry->memory(job));
    emit({{"what", "step"}, {"family", family}, {"precision", precision}, {"work", work}, {"seconds", seconds}});
    strategy->teardown();
  }

  World& world_;
  World alone_;
  EventSink& events_;
  double seconds_, begun_ = steady_seconds();
  double flops_per_second_ = 0;  ///< of the last step; 0: none yet
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
