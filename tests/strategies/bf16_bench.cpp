// Speed of training in each precision on one CPU thread, relative to the matrix products of the same step alone. Prints one JSON
// line. Times are CPU times of this process. Products and training steps of all precisions are measured in turns, so that
// a disturbance of the machine affects all of them.
#include <chrono>
#include <ctime>
#include <iostream>
#include <nlohmann/json.hpp>

#include "runner/base/error.hpp"
#include "runner/base/process_stat.hpp"
#include "runner/base/quantile.hpp"
#include "runner/models/models.hpp"
#include "runner/models/module.hpp"
#include "strategies/catalog.hpp"
#include "strategies/collective/counting_allocator.hpp"
#include "strategies/collective/world.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/contract/initialize.hpp"
#include "strategies/contract/strategy.hpp"
#include "strategies/engine/token_batch.hpp"

using namespace runner;

namespace {

struct Size {
  int64_t vocab, dim, layers, heads, seq_len, sequences;
  int64_t tokens() const { return seq_len * sequences; }
};

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Work>
double seconds_of(const Work& work) {
  const double begun = cpu_seconds();
  work();
  return cpu_seconds() - begun;
}

Recipe::Model model_of(const Size& size) {
  Recipe::Model model;
  model.name = "gpt";
  model.n_layers = size.layers;
  model.dim = size.dim;
  model.n_heads = size.heads;
  model.max_seq_len = size.seq_len;
  model.tie_embeddings = false;
  return model;
}

/// The three products of one matrix of the model in a step: its output, the gradient of its input, and its own gradient.
class Products {
 public:
  Products(int64_t rows, const ParameterSpec& matrix, at::ScalarType dtype)
      : out_(matrix.shape[0]),
        in_(matrix.shape[1]),
        rows_(rows),
        x_(torch::randn({rows, in_}).to(dtype)),
        dy_(torch::randn({rows, out_}).to(dtype)),
        weight_(torch::randn({out_, in_}).to(dtype)),
        y_(at::empty_like(dy_)),
        dx_(at::empty_like(x_)),
        dw_(at::empty_like(weight_)) {}

  void forward() { at::mm_out(y_, x_, weight_.t()); }
  void input_gradient() { at::mm_out(dx_, dy_, weight_); }
  void weight_gradient() { at::mm_out(dw_, dy_.t(), x_); }
  double flops() const { return 2.0 * static_cast<double>(rows_ * out_ * in_); }
  std::string shape() const { return fmt::format("{}x{}x{}", rows_, out_, in_); }

 private:
  int64_t out_, in_, rows_;
  torch::Tensor x_, dy_, weight_, y_, dx_, dw_;
};

/// All products of a step in one precision, in the order of the step.
class StepProducts {
 public:
  StepProducts(const ModelSpec& spec, int64_t tokens, at::ScalarType dtype) {
    for (const auto& block : spec.blocks)
      for (const auto& parameter : block.parameters)
        if (block.kind != BlockKind::embedding && parameter.shape.size() == 2)
          products_.emplace_back(block.kind == BlockKind::head ? std::min(tokens, spec.loss_chunk_tokens) : tokens,
                                 parameter, dtype);
  }

  void round() {
    total_.push_back(seconds_of([&] {
      for (auto& one : products_) add(one, 0, [&] { one.forward(); });
      for (auto one = products_.rbegin(); one != products_.rend(); ++one) {
        add(*one, 1, [&] { one->input_gradient(); });
        add(*one, 2, [&] { one->weight_gradient(); });
      }
    }));
  }

  double flops() const {
    double sum = 0;
    for (const auto& one : products_) sum += 3 * one.flops();
    return sum;
  }
  const std::vector<double>& seconds() const { return total_; }
  /// GFLOP/s of each shape: output, gradient of the input, gradient of the weight.
  nlohmann::json shapes() const {
    auto all = nlohmann::json::object();
    for (const auto& [name, shape] : shapes_)
      for (const auto& seconds : shape.seconds) all[name].push_back(shape.flops / median(seconds) / 1e9);
    return all;
  }

 private:
  struct Shape {
    double flops = 0;
    std::array<std::vector<double>, 3> seconds;
  };
  template <class Work>
  void add(const Products& one, size_t which, const Work& work) {
    auto& shape = shapes_[one.shape()];
    shape.flops = one.flops();
    shape.seconds[which].push_back(seconds_of(work));
  }

  std::vector<Products> products_;
  std::map<std::string, Shape> shapes_;
  std::vector<double> total_;
};

/// A training by strategy `single`.
class Training {
 public:
  Training(const Size& size, const std::string& precision, int micro_batches)
      : world_(make_world({})),
        model_(build_model(model_of(size), make_spec(model_of(size), size.vocab, size.seq_len))) {
    job_.model = &model_->spec;
    job_.precision = precision_policy(precision);
    job_.micro_batch_size = size.sequences;
    job_.accumulation = micro_batches;
    ParameterSource source = [specs = model_->spec.parameters()](size_t slot, int64_t offset, std::span<float> out) {
      initialize_slice(*specs[slot], 1, offset, out);
    };
    OptimizerConfig optimizer;
    optimizer.decay_norms_and_biases = true;
    strategy_ = make_strategy(
        "single", {.world = world_, .model = *model_, .job = job_, .optimizer = optimizer, .source = source});
    strategy_->module_to_device();
    for (int i = 0; i < micro_batches; ++i) {
      const auto drawn = torch::randint(size.vocab, {size.sequences, size.seq_len}, torch::kInt64);
      const std::span<const int64_t> tokens(drawn.data_ptr<int64_t>(), static_cast<size_t>(drawn.numel()));
      input_.micro_batches.push_back(token_batch(size.sequences, tokens, tokens));
      input_.weight += drawn.numel();
    }
  }

  void round() {
    seconds_.push_back(seconds_of([&] { strategy_->step(input_); }));
  }
  const std::vector<double>& seconds() const { return seconds_; }
  double tokens() const { return static_cast<double>(input_.weight); }

 private:
  World world_;
  std::unique_ptr<Model> model_;
  Job job_;
  std::unique_ptr<Strategy> strategy_;
  StepInput input_;
  std::vector<double> seconds_;
};

/// Quartiles of amount / seconds.
nlohmann::json rates(double amount, const std::vector<double>& seconds) {
  auto all = nlohmann::json::array();
  for (double part : {0.75, 0.5, 0.25}) all.push_back(amount / quantile(seconds, part));
  return all;
}

int run(const Size& size, int micro_batches, double seconds) {
  const ModelSpec spec = make_spec(model_of(size), size.vocab, size.seq_len);
  StepProducts narrow(spec, size.tokens(), torch::kBFloat16), wide(spec, size.tokens(), torch::kFloat32);
  std::map<std::string, Training> trainings;
  for (const char* precision : {"32-true", "bf16-mixed", "bf16-true"})
    trainings.try_emplace(precision, size, precision, micro_batches);
  const double end = cpu_seconds() + seconds;
  constexpr size_t rounds_least = 3;
  while (cpu_seconds() < end || narrow.seconds().size() < rounds_least) {
    narrow.round();
    wide.round();
    for (auto& [precision, training] : trainings) training.round();
  }
  nlohmann::json result = {
      {"micro_batches", micro_batches},
      {"rounds", narrow.seconds().size()},
      {"products_gflops",
       {{"bf16", rates(narrow.flops() / 1e9, narrow.seconds())}, {"fp32", rates(wide.flops() / 1e9, wide.seconds())}}},
      {"shapes_gflops", {{"bf16", narrow.shapes()}, {"fp32", wide.shapes()}}}};
  for (const auto& [precision, training] : trainings) {
    const auto tokens = rates(training.tokens(), training.seconds());
    const double gflops = tokens[1].get<double>() * spec.training_flops_per_token() / 1e9;
    const auto& products = precision == "32-true" ? wide : narrow;
    result["trainings"][precision] = {{"tokens_per_s", tokens},
                                      {"model_gflops", gflops},
                                      {"share", gflops / (products.flops() / 1e9 / median(products.seconds()))}};
  }
  std::cout << result.dump() << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 9) {
    std::cerr << "usage: bench_bf16 VOCAB DIM LAYERS HEADS SEQ_LEN SEQUENCES MICRO_BATCHES SECONDS\n";
    return 2;
  }
  auto number = [&](int i) { return std::stoll(argv[i]); };
  tune_malloc();  // like the worker
  install_counting_allocator();
  at::set_num_threads(1);
  return run({number(1), number(2), number(3), number(4), number(5), number(6)}, static_cast<int>(number(7)),
             std::stod(argv[8]));
}
