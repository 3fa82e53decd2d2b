#include "strategies/contract/strategy.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runner/base/error.hpp"
#include "strategies/collective/divergence.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/contract/failure.hpp"
#include "strategies/contract/piece_norms.hpp"

namespace runner {

namespace {

// The control words of a step: what all ranks sum at its end, in one all_reduce whose size does not depend on their number.

/// Votes are the lowest bits of a number.
constexpr int vote_bits = 8;

struct ControlSums {
  double loss = 0, squared_norm = 0;  ///< equal bits on all ranks; summed as in reduction.hpp
  uint32_t votes = 0;                 ///< bitwise OR
};

/// A collective call. The arguments are those of this rank. Throws Error(run_failed) on all ranks if ranks of a group have made different
/// calls before.
ControlSums sum_control_words(const World& world, double loss, double squared_norm, uint32_t votes) {
  RUNNER_CHECK(votes >> vote_bits == 0, "votes have {} bits, not those of {}", vote_bits, votes);
  if (world.size == 1) return {.loss = loss, .squared_norm = squared_norm, .votes = votes};
  struct Words {
    double loss, squared_norm;
    std::array<double, vote_bits> votes;  ///< ranks that set a bit
    AgreementWords agreement;
  } words{.loss = loss, .squared_norm = squared_norm, .votes = {}, .agreement = agreement_words(*world.trace)};
  for (int bit = 0; bit < vote_bits; ++bit) words.votes[static_cast<size_t>(bit)] = votes >> bit & 1;
  std::vector<at::Tensor> sums{torch::from_blob(&words, {sizeof words / sizeof(double)}, torch::kFloat64)};
  world.control->allreduce(sums, {c10d::ReduceOp::SUM})->wait();
  require_agreement(world, words.agreement);
  ControlSums result{.loss = words.loss, .squared_norm = words.squared_norm};
  for (int bit = 0; bit < vote_bits; ++bit)
    if (words.votes[static_cast<size_t>(bit)] > 0) result.votes |= 1u << bit;
  return result;
}

/// Skips float16 gradients if float16 cannot represent the bound: all finite values are below it.
void clip_by_value(std::vector<torch::Tensor>& gradients, double bound) {
  for (auto& gradient : gradients)
    if (gradient.scalar_type() != torch::kFloat16 || bound <= std::numeric_limits<c10::Half>::max())
      gradient.clamp_(-bound, bound);
}

/// The batch's field that the model needs.
const HostBatch::Field& field_of(const HostBatch& batch, const BatchField& needed) {
  const auto is_it = [&](const HostBatch::Field& field) {
    return field.spec.name == needed.name && field.spec.type == needed.type;
  };
  const auto found = std::ranges::find_if(batch.fields, is_it);
  if (found != batch.fields.end()) return *found;
  std::vector<BatchField> given;
  for (const auto& field : batch.fields) given.push_back(field.spec);
  throw run_error("the model needs {} in each batch, but the batch has {}", describe({needed}), describe(given));
}

std::vector<int64_t> shape_of(int64_t rows, const std::vector<int64_t>& row) {
  std::vector<int64_t> shape{rows};
  shape.insert(shape.end(), row.begin(), row.end());
  return shape;
}

/// One row that stands for no sample. Its loss is 0.
std::vector<torch::Tensor> padding_row(const std::vector<BatchField>& fields) {
  std::vector<torch::Tensor> row;
  for (const auto& field : fields)
    row.push_back(torch::full(shape_of(1, field.padding_row.empty() ? field.row : field.padding_row), field.padding,
                              scalar_type(field.type)));
  return row;
}

}  // namespace

Strategy::Strategy(StrategySetup setup)
    : world_(setup.world),
      model_(setup.model),
      job_(std::move(setup.job)),
      optimizer_(std::move(setup.optimizer)),
      additions_{.reducer = std::move(setup.reducer), .extension = std::move(setup.extension)},
      source_(std::move(setup.source)),
      conversion_(std::move(setup.conversion)),
      spans_(setup.spans),
      clip_norm_(setup.clip_norm),
      clip_value_(setup.clip_value),
      skip_nonfinite_(setup.skip_nonfinite),
      scaler_(job_.precision.loss_scaling, setup.loss_scale) {
  if (const auto& adascale = optimizer_.config().adascale) adascale_.emplace(*adascale);
  const auto& division = model_.spec.division;
  const auto& stage = model_.spec.stage;
  const int stages = stage ? stage->ranks : 1;
  RUNNER_CHECK(job_.sharing_ranks() * division.ranks * stages == job_.world_size() &&
                   job_.mesh.coordinate(world_.rank, Axis::tensor) == division.rank &&
                   job_.mesh.size(Axis::context) == model_.spec.context.ranks &&
                   job_.mesh.coordinate(world_.rank, Axis::context) == model_.spec.context.rank &&
                   job_.mesh.coordinate(world_.rank, Axis::pipeline) == (stage ? stage->rank : 0),
               "the model of rank {} is that of another place in the mesh {}", world_.rank, to_text(job_.mesh));
  if (stage)
    source_ = [slots = stage->slot_of, of_model = source_](size_t slot, int64_t offset, std::span<float> out) {
      of_model(slots[slot], offset, out);
    };
}

void Strategy::add_local(size_t slot, int64_t offset, const torch::Tensor& value, const torch::Tensor& copy) {
  locals_.push_back({slot, offset, value.numel(), value});
  ++trained_;
  const auto& spec = *model_.spec.parameters()[slot];
  optimizer_.add(value, group_of(spec, optimizer_.config()), copy,
                 {.shape = spec.shape, .of_layer = spec.of_layer, .offset = offset});
}

void Strategy::add_swapped(size_t slot, int64_t offset, int64_t begin, int64_t count, const torch::Tensor& value,
                           const torch::Tensor& copy) {
  LocalParameter local{slot, offset, count, value};
  const auto& swap = *optimizer_.swap();
  if (!value.defined()) local.swapped = SwappedSpan{swap.file, *swap.parameter, begin, count};
  locals_.push_back(local);
  ++trained_;
  optimizer_.add_swapped(begin, count, group_of(*model_.spec.parameters()[slot], optimizer_.config()), value, copy);
}

void Strategy::add_frozen(size_t slot, int64_t offset, int64_t begin, int64_t count, const torch::Tensor& value) {
  LocalParameter local{slot, offset, count, value};
  if (!value.defined())
    local.swapped = SwappedSpan{optimizer_.swap()->file, *optimizer_.swap()->parameter, begin, count};
  locals_.push_back(local);
}

void Strategy::fill(size_t slot, int64_t offset, const torch::Tensor& value) {
  constexpr int64_t piece = 1 << 20;
  torch::NoGradGuard no_grad;
  const auto& parameter = *model_.spec.stored()[slot];
  std::vector<float> buffer(static_cast<size_t>(std::min(piece, value.numel())));
  for (int64_t done = 0; done < value.numel(); done += piece) {
    const int64_t begin = offset + done, count = std::min(piece, value.numel() - done);
    for_each_run(parameter, begin, begin + count, [&](int64_t whole, int64_t local, int64_t elements) {
      source_(slot, whole, {buffer.data() + (local - begin), static_cast<size_t>(elements)});
    });
    value.narrow(0, done, count).copy_(torch::from_blob(buffer.data(), {count}, torch::kFloat32));
  }
}

MicroBatch Strategy::to_device(const HostBatch& batch, Tokens tokens) const {
  auto fields = batch.rows == 0 ? padding_row(model_.spec.batch) : host_fields(batch);
  MicroBatch copy;
  if (context_ && tokens == Tokens::own) {
    copy = cut_tokens(fields, context_->division());
    if (job_.accelerator.pinned)
      for (auto& field : copy.host_fields) field = field.pin_memory();
  } else {
    copy.host_fields = std::move(fields);
  }
  copy.rows = std::max<int64_t>(1, batch.rows);
  copy.padding = batch.rows == 0;
  // A copy from pinned memory does not block. LibTorch frees that memory after the copy.
  for (const auto& field : copy.host_fields)
    copy.fields.push_back(field.to(world_.device, /*non_blocking=*/job_.accelerator.pinned));
  return copy;
}

std::vector<torch::Tensor> Strategy::host_fields(const HostBatch& batch) const {
  const bool pinned = job_.accelerator.pinned && !context_;
  std::vector<torch::Tensor> fields;
  for (const auto& needed : model_.spec.batch) {
    const auto& [spec, bytes] = field_of(batch, needed);
    RUNNER_CHECK(std::ssize(bytes) == batch.rows * spec.row_bytes(), "field `{}` of {} rows has {} bytes", needed.name,
                 batch.rows, bytes.size());
    fields.push_back(
        torch::empty(shape_of(batch.rows, spec.row), torch::dtype(scalar_type(needed.type)).pinned_memory(pinned)));
    std::memcpy(fields.back().data_ptr(), bytes.data(), bytes.size());
  }
  return fields;
}

std::vector<Strategy::TrainedBatch> Strategy::micro_batches_of(const StepInput& input) const {
  std::vector<TrainedBatch> list(input.micro_batches.size());
  int64_t first_row = input.first_row;
  for (size_t m = 0; m < list.size(); ++m) {
    list[m].batch = to_device(input.micro_batches[m], Tokens::own);
    list[m].context = {.batch = &list[m].batch,
                       .dropout_key = input.dropout_key,
                       .first_row = first_row,
                       .token_loss = token_loss_ ? &token_loss_ : nullptr,
                       .tensor_axis = tensor_axis(),
                       .context_axis = context_axis()};
    first_row += input.micro_batches[m].rows;
  }
  return list;
}

Strategy::Control Strategy::exchange(double loss, double squared_norm, uint32_t votes) {
  const auto sums = sum_control_words(world_, loss, squared_norm, votes);
  return {.loss = sums.loss,
          .squared_norm = sums.squared_norm,
          .votes = sums.votes,
          .finite = std::isfinite(sums.loss) && std::isfinite(sums.squared_norm)};
}

double Strategy::squared_norm(const std::vector<torch::Tensor>& gradients) const {
  std::vector<torch::Tensor> counted;
  for (size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].numel() > 0 && is_first_replica(locals_[i].slot) && counts_in_norm(i))
      counted.push_back(gradients[i]);
  if (counted.empty()) return 0;
  // One copy to the host for all norms, so that the host waits for the device only once.
  auto norms = piece_norms(counted).to(torch::dtype(torch::kFloat64).device(torch::kCPU));
  double squared = 0;
  for (double norm : std::span(norms.data_ptr<double>(), static_cast<size_t>(norms.numel()))) squared += norm * norm;
  return squared;
}

double Strategy::adascale_gain(const OwnSquares& own, double squared_norm) {
  const int64_t count = own.gradients * job_.data_ranks();
  // The summed loss was divided by the weight of all gradients, so that they add up to the mean.
  const double factor = static_cast<double>(count) / scaler_.scale();
  const double squares = sum_over_ranks(own.sum) * factor * factor;
  return adascale_->gain(squares, squared_norm / (scaler_.scale() * scaler_.scale()), count);
}

void Strategy::fail_at_floor(const std::vector<torch::Tensor>& gradients) {
  // Slots of the complete model: those of the stages of a pipeline are different parameters.
  const auto& stage = model_.spec.stage;
  const auto parameters = (model_.whole ? model_.whole->spec : model_.spec).parameters();
  auto first = static_cast<int64_t>(parameters.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].isfinite().all().item<bool>()) continue;
    const size_t slot = locals_[i].slot;
    first = std::min(first, static_cast<int64_t>(stage ? stage->slot_of[slot] : slot));
  }
  std::vector<at::Tensor> least{torch::full({1}, first, torch::kInt64)};
  if (world_.size > 1) world_.control->allreduce(least, {c10d::ReduceOp::MIN})->wait();
  first = least[0].item<int64_t>();
  bool known = first < static_cast<int64_t>(parameters.size());
  throw NonFiniteError(fmt::format(
      "gradients overflow although the loss scale is at its minimum of {}: {}. The loss scale is not the cause: "
      "lower the learning rate, clip gradients (train.gradient_clip_val), check the data of this step, or use "
      "bf16-mixed",
      scaler_.scale(),
      known ? fmt::format("the first non-finite one is that of {}", parameters[static_cast<size_t>(first)]->name)
            : "each of them is finite, but their norm is not"));
}

void Strategy::settle_loss_scale(StepResult& result, bool skip_wanted,
                                 const std::function<std::vector<torch::Tensor>()>& gradients) {
  const bool finite = result.finite;
  if (!finite) {
    // A lower scale remedies an overflow. The loss is computed before scaling, so no other scale makes it finite.
    result.rescaled = scaler_.adapts() && std::isfinite(result.loss);
    if (result.rescaled && scaler_.at_floor()) fail_at_floor(gradients());
    result.finite = result.rescaled || skip_nonfinite_ || skip_wanted;
  }
  // Finite gradients without an update count later: the observer has skipped it, or the reducer collects them.
  if (std::isfinite(result.loss) && finite == !result.skipped) scaler_.update(finite);
}

void Strategy::convert_gradients(const std::vector<torch::Tensor>& gradients) {
  const auto parameters = model_.spec.parameters();
  for (size_t i = 0; i < trained_; ++i)
    convert_gradient(*conversion_, gradients[i],
                     {.name = parameters[locals_[i].slot]->name,
                      .shape = parameters[locals_[i].slot]->shape,
                      .offset = locals_[i].offset,
                      .scale = scaler_.scale()});
}

StepObserver::Decision Strategy::ask_observer(const std::vector<torch::Tensor>& gradients, double lr_factor) const {
  if (!observer_) return {false, lr_factor};
  auto listed = [&] {
    RUNNER_CHECK(gradients.size() == trained_);
    std::vector<StateTensor> list;
    for (size_t i = 0; i < trained_; ++i) add_pieces(list, "gradient", i, {.tensor = gradients[i]});
    return list;
  };
  return observer_->before_optimizer_step(listed, scaler_.scale(), lr_factor);
}

StepResult Strategy::step(const StepInput& input) {
  RUNNER_CHECK(!input.micro_batches.empty() && input.weight >= 0);
  use_trained();
  SpanScope copying(spans_, {Phase::data, "copy to the device"});
  const auto micro_batches = micro_batches_of(input);
  copying.end();
  // If nothing counts in the global batch, its summed loss and its gradients are 0.
  const auto weight = static_cast<double>(std::max<int64_t>(1, input.weight));
  share_ = static_cast<double>(input.rank_weight) / weight;
  weight_ = input.weight;
  rows_ = 0;
  for (const auto& batch : input.micro_batches) rows_ += batch.rows;
  const double loss_factor = scaler_.scale() / weight;
  additions_.each([](Extension& addition) { addition.before_step(); });
  const double own_loss = accumulate_gradients(micro_batches, loss_factor).item<double>();
  const double loss_sum = counts_loss() ? own_loss : 0;
  auto gradients = timed({Phase::update, "wait for gradients"}, [&] { return finish_gradients(); });
  torch::NoGradGuard no_grad;
  const bool collects = additions_.reducer && !additions_.reducer->makes_update();
  const auto number = additions_.reducer ? additions_.reducer->update_number() : std::nullopt;
  const double lr_factor = number && input.lr_factor_at ? input.lr_factor_at(*number) : input.lr_factor;
  StepObserver::Decision decision{.lr_factor = lr_factor};
  // A plug-in may make an infinite gradient finite. Then the step must be skipped all the same.
  double before_conversion = 0;
  if (conversion_ && !collects)
    timed({Phase::update, "change gradients"}, [&] {
      before_conversion = squared_norm(gradients);
      convert_gradients(gradients);
    });
  if (!collects)
    decision = timed({Phase::hooks, "before_optimizer_step"}, [&] { return ask_observer(gradients, lr_factor); });
  double squared = timed({Phase::update, "norm"}, [&] { return squared_norm(gradients); });
  if (!std::isfinite(before_conversion)) squared = before_conversion;
  const Control control =
      timed({Phase::collective, "exchange of loss and norm"}, [&] { return exchange(loss_sum, squared, input.votes); });

  StepResult result;
  result.loss = control.loss / weight;
  result.loss_scale = scaler_.scale();
  result.grad_norm = std::sqrt(control.squared_norm) / scaler_.scale();
  // If replicas differ, the norm is the root mean square of theirs. Squares are summed over ranks in any case, so that a NaN on
  // any rank is found.
  if (replicas_differ()) result.grad_norm /= std::sqrt(world_.size);
  result.lr_factor = decision.lr_factor;
  result.finite = control.finite;
  result.votes = control.votes;
  const bool updates = control.finite && !decision.skip && !collects;
  result.skipped = !updates;
  const auto own = adascale_ ? take_own_squares() : OwnSquares();
  if (adascale_ && updates) result.gain = adascale_gain(own, control.squared_norm);
  result.lr_factor *= result.gain;
  if (updates) {
    double divisor = scaler_.scale();
    // Each replica is clipped by its own norm, as a model of its own is.
    const double norm = replicas_differ() ? std::sqrt(squared) / scaler_.scale() : result.grad_norm;
    if (clip_norm_ && norm > *clip_norm_) divisor *= (norm + 1e-6) / *clip_norm_;
    if (clip_value_) clip_by_value(gradients, *clip_value_ * divisor);
    timed({Phase::update, "optimizer"}, [&] { update(std::move(gradients), result.lr_factor, divisor); });
  }
  move_buffers(control.finite);
  settle_loss_scale(result, decision.skip, [&] { return gradients; });
  gradients.clear();
  timed({Phase::collective, "gather updated"}, [&] {
    after_update(updates);
    if (updates) additions_.each([](Extension& addition) { addition.after_update(); });
  });
  return result;
}

std::vector<double> Strategy::evaluate_sums(const HostBatch& given) {
  torch::NoGradGuard no_grad;
  use_average();
  const MicroBatch batch = to_device(given, Tokens::own);
  const auto result =
      forward({.batch = &batch, .training = false, .tensor_axis = tensor_axis(), .context_axis = context_axis()});
  if (!has_loss()) return {0};
  auto sums = result.to(torch::kCPU).to(torch::kFloat64).reshape(-1).contiguous();
  if (!counts_loss()) sums = torch::zeros_like(sums);
  return {sums.data_ptr<double>(), sums.data_ptr<double>() + sums.numel()};
}

std::vector<float> Strategy::logits(const HostBatch& given, int64_t position) {
  torch::NoGradGuard no_grad;
  use_average();
  const MicroBatch batch = to_device(given, Tokens::all);  // ranks that share rows compute the same
  const auto logits =
      forward({.batch = &batch, .training = false, .logits_of = position, .tensor_axis = tensor_axis()});
  const auto row = logits[0].to(torch::kCPU, torch::kFloat32).contiguous();
  return {row.data_ptr<float>(), row.data_ptr<float>() + row.numel()};
}

std::vector<double> Strategy::sums_over_ranks(std::vector<double> values) {
  if (world_.size == 1) return values;
  std::vector<at::Tensor> sums{torch::tensor(values, torch::kFloat64)};
  world_.control->allreduce(sums, {c10d::ReduceOp::SUM})->wait();
  const auto* first = sums[0].data_ptr<double>();
  return {first, first + values.size()};
}

void Strategy::barrier() {
  if (world_.size > 1) runner::barrier(world_.control);
}

}  // namespace runner
