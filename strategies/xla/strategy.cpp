// The training of one rank on a device of XLA.
//
// Parameters and optimizer state are arrays on the device. The tensors of the base class are their copies in host memory: settle() makes
// them current before somebody reads them, and state_loaded() lets the next program begin with them.
//
// A step is one program for each micro-batch, and the last one makes the update. A hook that sees gradients needs them in host memory
// between backward and update (StepObserver::sees_gradients). Then the base class makes the step, and the update is a program of its own.
#include "strategies/xla/strategy.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "runner/base/error.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/xla/devices.hpp"
#include "strategies/xla/program_writer.hpp"
#include "strategies/xla/update_text.hpp"

namespace runner {

namespace {

using pjrt::Buffer;
using xla::ParameterArray, xla::ProgramForm;

class CompiledStrategy : public Strategy {
 public:
  CompiledStrategy(StrategySetup setup, ParallelPlan plan, std::function<void(const std::string&)> note)
      : Strategy(std::move(setup)),
        note_(std::move(note)),
        plan_(std::move(plan)),
        arrays_(xla::arrays_of(model_.spec, plan_, optimizer_.config())) {
    writer_.emplace(model_, job_, plan_, arrays_, optimizer_.config(), xla::Clipping{clip_norm_, clip_value_});
  }

  void module_to_device() override {
    devices_ = xla::Devices::open(world_, {.platform = world_.accelerator.platform,
                                           .plugin = plan_.compiled->plugin,
                                           .store = plan_.compiled->store,
                                           .reports = plan_.compiled->reports,
                                           .note = note_});
    local_of_.assign(arrays_.parameters.size(), std::nullopt);
    const torch::NoGradGuard no_grad;
    for (const bool trained : {true, false})
      for (const auto& parameter : arrays_.parameters)
        if (parameter.trained == trained) make_local(parameter);
    make_buffers();
    source_ = {};
    parameters_.resize(arrays_.parameters.size());
    states_.resize(arrays_.parameters.size());
    newer_ = Side::host;
  }

  StepResult step(const StepInput& input) override {
    return observer_ && observer_->sees_gradients() ? Strategy::step(input) : compiled_step(input);
  }

  void state_loaded() override { newer_ = Side::host; }

  void teardown() override {
    parameters_.clear();
    states_.clear();
    gradients_.clear();
    devices_.reset();
  }

 protected:
  /// Validation is a program. Logits are computed on the host, because the length of the text changes from call to call.
  torch::Tensor forward(const ForwardContext& context) override {
    if (context.logits_of) return forward_on_host(context);
    const auto results = run({.differentiates = false, .updates = false}, &context, {});
    return download(results.front()).to(torch::kFloat64);
  }

  torch::Tensor accumulate_gradients(const std::vector<TrainedBatch>& micro_batches, double loss_factor) override {
    auto loss = torch::zeros({}, torch::kFloat64);
    for (size_t m = 0; m < micro_batches.size(); ++m) {
      if (observer_) observer_->before_backward();
      loss += micro_batch(micro_batches, m, /*updates=*/false, {.loss_factor = loss_factor}).loss;
      if (observer_) observer_->after_backward();
    }
    // The programs sum the losses of all ranks, and the base class does it, too.
    return world_.rank == 0 ? loss : torch::zeros_like(loss);
  }

  std::vector<torch::Tensor> finish_gradients() override {
    std::vector<torch::Tensor> own;
    const auto slots = arrays_.trained();
    for (size_t i = 0; i < slots.size(); ++i)
      if (local_of_[slots[i]]) own.push_back(own_part(slots[i], download(gradients_[i])));
    return own;
  }

  void update(std::vector<torch::Tensor> gradients, double lr_factor, double gradient_divisor) override {
    const auto slots = arrays_.trained();
    for (size_t i = 0; i < slots.size(); ++i)
      gradients_[i] = upload_part(slots[i], local_of_[slots[i]] ? gradients[*local_of_[slots[i]]] : torch::Tensor());
    take_update(run({.differentiates = false, .updates = true}, nullptr,
                    {.lr_factor = lr_factor, .gradient_divisor = gradient_divisor}));
    optimizer_.set_steps(optimizer_.steps() + 1);
  }

  void settle() override {
    if (newer_ != Side::device) return;
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : arrays_.parameters) {
      const auto local = local_of_[parameter.slot];
      if (!local || !parameter.trained) continue;
      locals_[*local].value.copy_(own_part(parameter.slot, download(parameters_[parameter.slot])));
      const auto states = optimizer_.state(*local);
      for (size_t k = 0; k < states.size(); ++k)
        states[k].copy_(own_part(parameter.slot, download(states_[parameter.slot][k])));
    }
    newer_ = Side::none;
  }

  void after_update(bool) override { gradients_.clear(); }
  OwnSquares take_own_squares() override { return {}; }
  bool saves_whole() const override { return plan_.saves_whole; }
  bool counts_in_norm(size_t local) const override { return is_sharded(local) || world_.rank == 0; }
  std::pair<int, int> writer(size_t local) const override {
    return is_sharded(local) ? std::pair(0, 1) : std::pair(world_.rank, world_.size);
  }

 private:
  /// Which copy of parameters and state has the later values.
  enum class Side { none, host, device };
  struct UpdateNumbers {
    double lr_factor = 1, gradient_divisor = 1, loss_factor = 1;
  };
  struct MicroBatchResult {
    double loss = 0, squared_norm = 0;  ///< of all ranks; the norm only after an update
  };

  bool is_sharded(size_t local) const { return arrays_.parameters[locals_[local].slot].sharded; }

  // ---- tensors in host memory
  /// The elements of the parameter that this rank has, [begin, begin + count).
  std::pair<int64_t, int64_t> range(const ParameterArray& parameter) const {
    if (!parameter.sharded) return {0, parameter.numel};
    const int64_t begin = std::min(parameter.numel, parameter.part * world_.rank);
    return {begin, std::min(parameter.numel, begin + parameter.part) - begin};
  }

  void make_local(const ParameterArray& parameter) {
    const auto [begin, count] = range(parameter);
    if (count == 0) return;
    const auto value = torch::empty({count}, xla::scalar_type(arrays_.master));
    fill(parameter.slot, begin, value);
    local_of_[parameter.slot] = locals_.size();
    if (parameter.trained)
      add_local(parameter.slot, begin, value);
    else
      add_frozen(parameter.slot, begin, 0, count, value);
  }

  /// The part of an array before the zeros at its end.
  torch::Tensor own_part(size_t slot, const torch::Tensor& array) const {
    return array.reshape(-1).narrow(0, 0, range(arrays_.parameters[slot]).second);
  }

  static torch::Tensor download(const Buffer& buffer) {
    auto values = torch::empty(buffer.shape(), xla::scalar_type(buffer.type()));
    buffer.read({static_cast<std::byte*>(values.data_ptr()), values.nbytes()});
    return values;
  }

  Buffer upload(const torch::Tensor& values) const {
    const auto dense = values.contiguous();
    return devices_->client().upload({static_cast<const std::byte*>(dense.data_ptr()), dense.nbytes()},
                                     xla::element_type(dense.scalar_type()), dense.sizes().vec(), world_.rank);
  }

  /// This rank's elements of a parameter as an array; undefined: it has none.
  Buffer upload_part(size_t slot, const torch::Tensor& own) const {
    const auto& parameter = arrays_.parameters[slot];
    const auto type = parameter.type(arrays_.master);
    auto array = torch::zeros({type.numel()}, xla::scalar_type(arrays_.master));
    if (own.defined()) array.narrow(0, 0, own.numel()).copy_(own.reshape(-1));
    return upload(array.view(type.shape));
  }

  void upload_state() {
    if (newer_ != Side::host) return;
    const torch::NoGradGuard no_grad;
    for (const auto& parameter : arrays_.parameters) {
      const auto local = local_of_[parameter.slot];
      parameters_[parameter.slot] = upload_part(parameter.slot, local ? locals_[*local].value : torch::Tensor());
      if (!parameter.trained) continue;
      const auto states =
          local ? optimizer_.state(*local) : std::vector<torch::Tensor>(static_cast<size_t>(arrays_.states));
      states_[parameter.slot].clear();
      for (const auto& state : states) states_[parameter.slot].push_back(upload_part(parameter.slot, state));
    }
    newer_ = Side::none;
  }

  // ---- programs
  /// A micro-batch has as many rows as the largest one: the others are padding, whose loss is 0.
  std::vector<torch::Tensor> padded_fields(const MicroBatch& batch) const {
    std::vector<torch::Tensor> fields;
    for (size_t i = 0; i < batch.fields.size(); ++i) {
      const auto& spec = model_.spec.batch[i];
      std::vector<int64_t> shape{std::max(job_.micro_batch_size, batch.rows)};
      shape.insert(shape.end(), spec.row.begin(), spec.row.end());
      auto whole = torch::full(shape, spec.padding, scalar_type(spec.type));
      auto place = whole;
      for (int64_t d = 0; d < batch.fields[i].dim(); ++d) place = place.narrow(d, 0, batch.fields[i].size(d));
      place.copy_(batch.fields[i]);
      fields.push_back(std::move(whole));
    }
    return fields;
  }

  std::vector<Buffer> run(ProgramForm form, const ForwardContext* context, const UpdateNumbers& numbers) {
    upload_state();
    std::vector<Buffer> own;
    std::vector<torch::Tensor> made;
    if (context) made = padded_fields(*context->batch);
    for (const auto& field : made) form.fields.push_back(xla::type_of(field));
    const auto type = arrays_.master == pjrt::ElementType::float64 ? torch::kFloat64 : torch::kFloat32;
    if (form.differentiates) {
      made.push_back(torch::full({}, numbers.loss_factor, type));
      made.push_back(torch::scalar_tensor(static_cast<int64_t>(context->dropout_key), torch::kInt64));
      made.push_back(torch::scalar_tensor(context->first_row, torch::kInt64));
    }
    if (form.updates) {
      std::vector<double> all;
      for (const auto& group : arrays_.groups) {
        const auto of_group =
            xla::update_numbers(optimizer_.config(), group, numbers.lr_factor, optimizer_.steps() + 1);
        all.insert(all.end(), of_group.begin(), of_group.end());
      }
      all.push_back(numbers.gradient_divisor);
      made.push_back(torch::tensor(all, torch::kFloat64).to(type));
    }
    for (const auto& values : made) own.push_back(upload(values));

    std::vector<const Buffer*> arguments;
    for (const auto& parameter : parameters_) arguments.push_back(&parameter);
    if (form.takes_states())
      for (const auto& states : states_)
        for (const auto& state : states) arguments.push_back(&state);
    if (form.takes_gradients())
      for (const auto& gradient : gradients_) arguments.push_back(&gradient);
    for (const auto& values : own) arguments.push_back(&values);
    return devices_->run(
        world_, form.key(), [&] { return writer_->write(form, context ? context->token_loss : nullptr).text; },
        arguments);
  }

  /// The new parameters and states are the first results.
  void take_update(std::vector<Buffer> results) {
    size_t next = 0;
    const auto slots = arrays_.trained();
    for (const size_t slot : slots) parameters_[slot] = std::move(results[next++]);
    for (const size_t slot : slots)
      for (auto& state : states_[slot]) state = std::move(results[next++]);
    newer_ = Side::device;
  }

  MicroBatchResult micro_batch(const std::vector<TrainedBatch>& all, size_t index, bool updates,
                               const UpdateNumbers& numbers) {
    const bool last = index + 1 == all.size();
    auto results = run(ProgramForm::of_micro_batch(/*first=*/index == 0, last, updates), &all[index].context, numbers);
    const auto scalar = [&](size_t from_end) {
      return download(results[results.size() - from_end]).to(torch::kFloat64).item<double>();
    };
    if (updates && last) {
      const MicroBatchResult result{.loss = scalar(2), .squared_norm = scalar(1)};
      gradients_.clear();
      take_update(std::move(results));
      return result;
    }
    const MicroBatchResult result{.loss = scalar(1)};
    results.pop_back();
    gradients_ = std::move(results);
    return result;
  }

  StepResult compiled_step(const StepInput& input) {
    RUNNER_CHECK(!input.micro_batches.empty() && input.weight >= 0);
    use_trained();
    const double scale = loss_scale();
    const double lr_factor = ask_observer({}, input.lr_factor).lr_factor;
    const auto micro_batches = micro_batches_of(input);
    const auto weight = static_cast<double>(std::max<int64_t>(1, input.weight));
    MicroBatchResult sums;
    for (size_t m = 0; m < micro_batches.size(); ++m) {
      // The program that updates sees only its own loss, so an earlier one that is not finite makes its gradients so.
      const double factor = std::isfinite(sums.loss) ? scale / weight : std::numeric_limits<double>::quiet_NaN();
      const auto one = timed({Phase::program, "program"}, [&] {
        return micro_batch(micro_batches, m, /*updates=*/true,
                           {.lr_factor = lr_factor, .gradient_divisor = scale, .loss_factor = factor});
      });
      sums.loss += one.loss;
      sums.squared_norm = one.squared_norm;
    }
    const bool first = world_.rank == 0;  // the others have the same sums
    const auto control = exchange(first ? sums.loss : 0, first ? sums.squared_norm : 0, input.votes);
    StepResult result{.loss = control.loss / weight,
                      .grad_norm = std::sqrt(control.squared_norm) / scale,
                      .finite = control.finite,
                      .skipped = !control.finite,
                      .votes = control.votes,
                      .loss_scale = scale,
                      .lr_factor = lr_factor};
    if (control.finite) optimizer_.set_steps(optimizer_.steps() + 1);
    settle_loss_scale(result, /*skip_wanted=*/false, [&] {
      accumulate_gradients(micro_batches, scale / weight);
      return finish_gradients();
    });
    return result;
  }

  // ---- the host
  /// The model with the current parameters in host memory.
  torch::Tensor forward_on_host(const ForwardContext& context) {
    settle();
    for (const auto& parameter : arrays_.parameters) {
      const auto local = local_of_[parameter.slot];
      auto whole = local ? locals_[*local].value : torch::Tensor();
      if (parameter.sharded && world_.size > 1) whole = gathered_on_host(parameter, whole);
      model_.place(parameter.slot,
                   whole.narrow(0, 0, parameter.numel).view(parameter.shape).to(xla::scalar_type(arrays_.compute)));
    }
    torch::Tensor x;
    for (auto& block : model_.blocks) x = block->forward(x, context);
    return x;
  }

  torch::Tensor gathered_on_host(const ParameterArray& parameter, const torch::Tensor& own) {
    const auto options = torch::dtype(xla::scalar_type(arrays_.master));
    auto part = torch::zeros({parameter.part}, options), whole = torch::empty({parameter.part * world_.size}, options);
    if (own.defined()) part.narrow(0, 0, own.numel()).copy_(own);
    world_.group->_allgather_base(whole, part)->wait();
    return whole;
  }

  std::function<void(const std::string&)> note_;
  ParallelPlan plan_;
  xla::Arrays arrays_;
  std::optional<xla::ProgramWriter> writer_;
  std::shared_ptr<xla::Devices> devices_;
  std::vector<std::optional<size_t>> local_of_;  ///< by slot; nullopt: this rank has no element of the parameter
  std::vector<Buffer> parameters_;               ///< by slot
  std::vector<std::vector<Buffer>> states_;      ///< by slot
  std::vector<Buffer> gradients_;                ///< of the trained parameters
  Side newer_ = Side::host;
};

}  // namespace

std::unique_ptr<Strategy> make_compiled(StrategySetup setup, ParallelPlan plan) {
  RUNNER_CHECK(!setup.reducer && !setup.extension && !setup.conversion, "a compiled step has no additions");
  auto note = setup.note;
  return std::make_unique<CompiledStrategy>(std::move(setup), std::move(plan), std::move(note));
}

}  // namespace runner
