#include "strategies/executor/block_recorder.hpp"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runner/base/error.hpp"
#include "strategies/collective/counting_allocator.hpp"
#include "strategies/contract/context_axis.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/contract/profiled.hpp"
#include "strategies/contract/tensor_axis.hpp"
#include "strategies/engine/token_batch.hpp"
#include "strategies/executor/block_graphs.hpp"
#include "strategies/executor/profiled_operators.hpp"

namespace runner {

using torch::Tensor;

namespace {

/// Counts the bytes of tensors without values on the account of this thread, if it has one.
class ProfilingAllocator : public c10::Allocator {
 public:
  static thread_local MemoryAccount* account;

  c10::DataPtr allocate(size_t bytes) override {
    auto* block = account ? new Block{account, static_cast<int64_t>(bytes)} : nullptr;
    if (block) account->add(block->bytes);
    return {nullptr, block, &release, c10::Device(c10::kMeta)};
  }
  /// LibTorch resizes a storage without values without a word to its allocator.
  static void settle(const Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_meta() || !tensor.has_storage()) return;
    const auto& storage = tensor.storage();
    auto* block = static_cast<Block*>(storage.data_ptr().get_context());
    const auto bytes = static_cast<int64_t>(storage.nbytes());
    if (!block || storage.data_ptr().get_deleter() != &release || block->bytes == bytes) return;
    block->account->add(bytes - block->bytes);
    block->bytes = bytes;
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void*, const void*, size_t) const override {}

 private:
  struct Block {
    MemoryAccount* account;
    int64_t bytes;
  };
  static void release(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    if (block) block->account->add(-block->bytes);
  }
};
thread_local MemoryAccount* ProfilingAllocator::account = nullptr;

class Counting {
 public:
  explicit Counting(MemoryAccount& account) {
    static ProfilingAllocator allocator;
    static const bool installed = (c10::SetAllocator(c10::kMeta, &allocator, 255), true);
    (void)installed;
    ProfilingAllocator::account = &account;
  }
  ~Counting() { ProfilingAllocator::account = nullptr; }
  Counting(const Counting&) = delete;
};

/// A group that is never asked for a backend, because collectives of tensors without values do nothing.
ProcessGroup group_of(int rank, int size) { return c10::make_intrusive<c10d::ProcessGroup>(rank, size); }

/// Whether two blocks need the same memory.
bool are_alike(const BlockSpec& a, const BlockSpec& b) {
  return a.kind == b.kind && a.variant == b.variant && a.shared.empty() && b.shared.empty() &&
         a.output_elements_per_token == b.output_elements_per_token &&
         a.over_tensor_axis.forward == b.over_tensor_axis.forward &&
         std::ranges::equal(a.parameters, b.parameters, [](const ParameterSpec& x, const ParameterSpec& y) {
           return x.shape == y.shape && x.trainable == y.trainable && x.quantized == y.quantized &&
                  x.converted.has_value() == y.converted.has_value() && x.split.has_value() == y.split.has_value();
         });
}

/// The blocks of a layer, [first, end).
struct Layer {
  size_t first = 0, end = 0;
  size_t twin = 0;  ///< the first block of the earliest layer that is like this one
};

std::vector<Layer> layers_of(const ModelSpec& model) {
  std::vector<Layer> layers;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const bool goes_on = model.continues_layer(b) && !(model.stage && model.stage->begins_stage(b));
    if (goes_on)
      ++layers.back().end;
    else
      layers.push_back({.first = b, .end = b + 1, .twin = b});
  }
  const auto like = [&](const Layer& a, const Layer& b) {
    if (a.end - a.first != b.end - b.first) return false;
    for (size_t i = 0; i < a.end - a.first; ++i) {
      const size_t x = a.first + i, y = b.first + i;
      if (!are_alike(model.blocks[x], model.blocks[y]) || model.passes_gradient(x) != model.passes_gradient(y) ||
          (x < model.first_trained_block()) != (y < model.first_trained_block()) ||
          model.is_last(x) != model.is_last(y) || model.has_input(x) != model.has_input(y))
        return false;
    }
    return true;
  };
  for (auto& layer : layers)
    for (const auto& earlier : layers) {
      if (earlier.first >= layer.first) break;
      if (earlier.twin == earlier.first && like(earlier, layer)) {
        layer.twin = earlier.first;
        break;
      }
    }
  return layers;
}

class Recorder {
 public:
  Recorder(Model& model, const Job& job, DType leaf, torch::Device device)
      : model_(model),
        device_(device),
        job_(job),
        leaf_(leaf),
        spec_(model.spec),
        layers_(layers_of(spec_)),
        profiles_(spec_.blocks.size()) {
    job_.host_checkpoints = false;
    profiled_ = {.host_kernels = job.accelerator.host_kernels};
    if (job.precision.autocast()) profiled_.autocast = scalar_type(job.precision.compute);
    for (const auto* parameter : spec_.parameters()) {
      const bool cast = parameter->quantized || parameter->converted;
      values_.push_back(
          at::zeros(parameter->shape, torch::dtype(scalar_type(cast ? job.precision.compute : leaf)).device(device)));
    }
    model_.buffers.clear();
    for (const auto& buffer : spec_.buffers) model_.buffers.push_back(at::zeros(buffer.shape, torch::device(device)));
    model_.sum_over_ranks = [](Tensor&) {};
    if (spec_.division.divides()) tensor_.emplace(group_of(spec_.division.rank, spec_.division.ranks), spec_.division);
    if (spec_.context.divides()) {
      const Channel channel(group_of(0, 2));
      context_axis_.emplace(group_of(spec_.context.rank, spec_.context.ranks), spec_.context,
                            ContextRing{channel, channel});
    }
    make_batch();
  }

  std::vector<BlockProfile> record() {
    std::optional<ProfiledScope> stands_for;
    std::optional<Counting> counting;
    std::optional<AccountScope> on_host;
    if (device_.is_meta()) {
      stands_for.emplace(profiled_);
      counting.emplace(account_);
    } else {
      on_host.emplace(account_);
    }
    std::optional<ConvertingScope> converts;
    if (device_.is_meta() && profiled_.host_kernels) converts.emplace(&ProfilingAllocator::settle);
    without_graph(/*trains=*/false);  // makes tables of positions
    without_graph(/*trains=*/false);
    without_graph(/*trains=*/true);
    with_graph(/*recomputed=*/false);
    with_graph(/*recomputed=*/true);
    for (const auto& layer : layers_)
      for (size_t b = layer.first; b < layer.end; ++b) profiles_[b] = profiles_[layer.twin + b - layer.first];
    return std::move(profiles_);
  }

 private:
  void make_batch() {
    std::vector<Tensor> fields;
    for (const auto& field : spec_.batch) {
      std::vector<int64_t> shape{job_.micro_batch_size};
      shape.insert(shape.end(), field.row.begin(), field.row.end());
      const bool positions = field.name == token_field::positions_name, read = positions || spec_.context.divides();
      const auto options = torch::dtype(scalar_type(field.type)).device(read ? torch::Device(torch::kCPU) : device_);
      // One sequence in each row.
      fields.push_back(positions ? at::arange(field.row[0], options).expand(shape).contiguous()
                                 : at::zeros(shape, options));
    }
    batch_.rows = job_.micro_batch_size;
    batch_.host_fields = fields;
    if (spec_.context.divides()) batch_ = cut_tokens(fields, spec_.context);
    for (const auto& field : batch_.host_fields)
      batch_.fields.push_back(at::zeros(field.sizes(), field.options().device(device_)));
  }

  ForwardContext context(bool trains) const {
    return {.batch = &batch_,
            .training = trains,
            .token_loss = job_.own_loss ? &loss_ : nullptr,
            .tensor_axis = tensor_ ? &*tensor_ : nullptr,
            .context_axis = context_axis_ ? &*context_axis_ : nullptr};
  }

  BlockGraphs graphs(BlockGraphs::Take take, BlockGraphs::TakeRows rows) {
    BlockGraphs graphs(model_, job_, device_, /*conversion=*/nullptr, std::move(take), std::move(rows));
    for (size_t slot = 0; slot < values_.size(); ++slot) graphs.place_parameter(slot, values_[slot]);
    return graphs;
  }

  /// Calls body(block) for the blocks that are recorded, in their order.
  template <class Body>
  void for_each_block(const Body& body) const {
    for (const auto& layer : layers_)
      for (size_t b = layer.first; layer.twin == layer.first && b < layer.end; ++b) body(b);
  }

  bool begins_stage(size_t block) const {
    return spec_.stage && spec_.stage->begins_stage(block) && spec_.has_input(block);
  }
  bool ends_stage(size_t block) const { return spec_.stage && spec_.stage->ends_stage(block) && !spec_.is_last(block); }

  /// The block that begins a stage may be like an earlier one, which is recorded instead; then the next one gets the input.
  void put_input(BlockGraphs& graphs, size_t block) {
    if (!begins_stage(block) && !std::exchange(stage_ended_, false)) return;
    stage_ended_ = false;
    const int64_t before = account_.current();
    graphs.put_input(graphs.empty_stream());
    stream_ = account_.current() - before;
  }

  void without_graph(bool trains) {
    auto graphs = this->graphs({}, {});
    const torch::NoGradGuard no_grad;
    const auto context = this->context(trains);
    graphs.begin(0, context, 1);
    stream_ = 0;
    stage_ended_ = false;
    for_each_block([&](size_t b) {
      put_input(graphs, b);
      auto& profile = profiles_[b];
      profile.input = stream_;
      const int64_t before = account_.current() - stream_;
      account_.reset_peak();
      graphs.forward(b);
      (trains ? profile.trains_without_graph : profile.validates_without_graph) = account_.peak() - before;
      stream_ = profile.output = account_.current() - before;
      take_output(graphs, b);
    });
    if (spec_.is_last(spec_.blocks.size() - 1)) graphs.take_output();
  }

  BlockProfile::Pass& pass(size_t block) { return recomputed_ ? profiles_[block].recomputed : profiles_[block].plain; }

  void with_graph(bool recomputed) {
    recomputed_ = recomputed;
    job_.recompute.assign(spec_.blocks.size(), recomputed);
    auto graphs = this->graphs([&](size_t slot, Tensor gradient) { passed_on(slot, std::move(gradient)); },
                               [&](size_t slot, const Tensor&, const Tensor&) { passed_on(slot, {}); });
    const auto context = this->context(/*trains=*/true);
    graphs.begin(0, context, 1);
    stream_ = 0;
    stage_ended_ = false;
    for_each_block([&](size_t b) { forward_with_graph(graphs, b); });
    // The block that ends the stage may be like an earlier one, which is recorded instead.
    const bool has_last = spec_.is_last(spec_.blocks.size() - 1);
    if (!has_last && !stage_ended_) graphs.take_output_of_stage();
    const int64_t before = account_.current();
    if (has_last) graphs.take_output();
    gradient_ = account_.current() - before + stream_;  // the loss has become its gradient
    waiting_ = 0;
    std::vector<size_t> blocks;
    for_each_block([&](size_t b) { blocks.push_back(b); });
    for (size_t i = blocks.size(); i-- > 0 && blocks[i] >= spec_.first_trained_block();)
      backward(graphs, blocks[i], /*first=*/i + 1 == blocks.size());
  }

  void forward_with_graph(BlockGraphs& graphs, size_t b) {
    put_input(graphs, b);
    const int64_t before = account_.current() - stream_;
    account_.reset_peak();
    graphs.forward(b);
    stream_ = profiles_[b].output;
    pass(b).forward_peak = account_.peak() - before;
    pass(b).saved = account_.current() - before - stream_;
    take_output(graphs, b);
  }

  void take_output(BlockGraphs& graphs, size_t block) {
    stage_ended_ = ends_stage(block);
    if (stage_ended_) graphs.take_output_of_stage();
  }

  /// Recomputes the blocks that are recomputed together and end with `last`.
  void recompute(BlockGraphs& graphs, size_t last) {
    size_t first = last;
    while (joins_recomputation(spec_, job_.recompute, first)) --first;
    for (size_t b = first; b <= last; ++b) {
      const int64_t before = account_.current() - profiles_[b].input - gradient_;
      account_.reset_peak();
      graphs.recompute(b);
      pass(b).forward_peak = account_.peak() - before - gradient_;
      pass(b).saved = account_.current() - before - gradient_ - (b < last ? profiles_[b].output : 0);
    }
  }

  /// `first`: of the pass.
  void backward(BlockGraphs& graphs, size_t b, bool first) {
    // The block that ends the stage may be like an earlier one, which is recorded instead.
    if (ends_stage(b) || (first && !spec_.is_last(b))) {
      const int64_t before = account_.current();
      graphs.put_gradient(graphs.empty_stream());
      gradient_ = account_.current() - before;
    }
    if (job_.recomputes(b) && !joins_recomputation(spec_, job_.recompute, b + 1)) recompute(graphs, b);
    auto& profile = pass(b);
    begin_moments(b, profile.backward, account_.current() - profile.saved - gradient_);
    if (spec_.blocks[b].kind == BlockKind::embedding) base_ -= std::exchange(waiting_, 0);
    graphs.backward(b);
    gradient_ = spec_.passes_gradient(b) ? profiles_[b].input : 0;
    const int64_t remains = end_moments(gradient_);
    if (!(spec_.stage && splits_backward(job_.pipeline.schedule))) {
      waiting_ += profile.waiting = remains;
      return;
    }
    profile.kept_for_weights = remains;
    if (remains == 0) return;
    begin_moments(b, profile.weight, base_ + gradient_);
    graphs.backward_weight(b);
    end_moments(0);
  }

  void begin_moments(size_t block, std::vector<BackwardMoment>& moments, int64_t base) {
    in_backward_ = block;
    moments_ = &moments;
    base_ = base;
    account_.reset_peak();
  }
  /// Returns what remains, without `passed_on` bytes.
  int64_t end_moments(int64_t passed_on) {
    const int64_t remains = account_.current() - base_ - passed_on;
    moments_->push_back({.peak = account_.peak() - base_, .level = remains});
    return remains;
  }

  /// `gradient`: undefined if its rows were added to the strategy's tensor.
  void passed_on(size_t slot, Tensor gradient) {
    const auto& parameters = spec_.blocks[in_backward_].parameters;
    const auto named = std::ranges::find(parameters, spec_.parameters()[slot]->name, &ParameterSpec::name);
    RUNNER_CHECK(named != parameters.end(), "a gradient of another block");
    BackwardMoment moment{.peak = account_.peak() - base_,
                          .level = account_.current() - base_,
                          .parameter = static_cast<size_t>(named - parameters.begin())};
    gradient.reset();
    const int64_t freed = moment.level - (account_.current() - base_);
    // The gradient of a converted parameter is cast after its conversion's backward.
    const bool cast = named->converted && freed > 0 && leaf_ != job_.precision.compute;
    moment.gradient = cast ? named->numel() * bytes_of(leaf_) : freed;
    if (cast) moment.peak = std::max(moment.peak, moment.level + moment.gradient);
    moment.level += moment.gradient - freed;
    moments_->push_back(moment);
    account_.reset_peak();
  }

  /// Outlives all tensors: a model keeps its tables of positions.
  static MemoryAccount& account() {
    static thread_local MemoryAccount account;
    return account;
  }
  MemoryAccount& account_ = account();
  Model& model_;
  torch::Device device_;
  Job job_;
  DType leaf_;
  const ModelSpec& spec_;
  Profiled profiled_;
  std::vector<Layer> layers_;
  std::vector<BlockProfile> profiles_;
  std::vector<Tensor> values_;  ///< of the parameters
  std::optional<TensorAxis> tensor_;
  std::optional<ContextAxis> context_axis_;
  MicroBatch batch_;
  bool recomputed_ = false;
  bool stage_ended_ = false;  ///< by the block that was recorded last
  int64_t stream_ = 0;        ///< bytes of the last block's output
  int64_t gradient_ = 0;      ///< bytes of the gradient of the next backward's output
  int64_t waiting_ = 0;       ///< bytes of a tied parameter's gradient that wait for the other part
  // ---- of the backward that runs
  size_t in_backward_ = 0;
  std::vector<BackwardMoment>* moments_ = nullptr;
  int64_t base_ = 0;  ///< bytes that do not belong to the block
  /// Stands for the loss of a hook: the gradients of the logits and of their log-softmax exist.
  const TokenLoss loss_ = [](const Tensor& logits, const Tensor& targets) {
    return at::log_softmax(logits, -1).gather(1, targets.unsqueeze(1)).squeeze(1).neg();
  };
};

}  // namespace

std::vector<BlockProfile> record_blocks(Model& model, const Job& job, DType leaf, torch::Device device) {
  register_profiled_operators();
  return Recorder(model, job, leaf, device).record();
}

}  // namespace runner
