#include "runner/train/trainer.hpp"

#include <cmath>

#include "runner/base/clock.hpp"
#include "runner/selection/plan.hpp"
#include "runner/train/schedule.hpp"
#include "strategies/contract/initialize.hpp"

namespace runner {

namespace {

Checkpointer::Options checkpoint_options(const Recipe& recipe, const fs::path& run_dir) {
  const auto& settings = recipe.checkpoint;
  return {run_dir / "checkpoints", settings.async, settings.keep_last, settings.save_top_k, settings.monitor};
}

}  // namespace

Trainer::Trainer(TrainerSetup setup)
    : setup_(std::move(setup)),
      recipe_(setup_.recipe),
      checkpointer_(setup_.world, checkpoint_options(recipe_, setup_.run_dir),
                    [this](const Checkpointer::Published& published) {
                      setup_.events.emit("checkpoint", {{"step", published.step},
                                                        {"path", published.path},
                                                        {"seconds", published.seconds},
                                                        {"bytes", published.bytes}});
                    }) {}

void Trainer::resume(const Checkpoint& checkpoint) {
  load_state(setup_.strategy, checkpoint);
  const auto& state = checkpoint.state();
  setup_.strategy.load_scalars(state.at("strategy"));
  step_ = checkpoint.step();
  tokens_ = state.at("tokens");
  trained_before_ = state.at("train_seconds");
  position_ = {state.at("data").at("epoch"), state.at("data").at("sample")};
  loss_ = state.at("loss");
  saved_step_ = step_;
  if (auto found = state.find("val_loss"); found != state.end()) val_loss_ = found->get<double>();
}

TrainerState Trainer::trainer_state() const {
  TrainerState state = {{"step", step_},
                        {"tokens", tokens_},
                        {"loss", loss_},
                        {"train_seconds", trained_before_ + steady_seconds() - loop_started_},
                        {"data", {{"epoch", position_.epoch}, {"sample", position_.sample}}},
                        {"strategy", setup_.strategy.scalars()},
                        {"strategy_name", recipe_.strategy.name},
                        {"world_size", setup_.world.size},
                        {"model", {{"vocab_size", setup_.vocab_size}, {"seq_len", setup_.train.seq_len()}}}};
  if (val_loss_) state["val_loss"] = *val_loss_;
  return state;
}

MicroBatch Trainer::to_device(const HostBatch& batch) const {
  if (batch.sequences == 0) return {};
  auto copy = [&](const std::vector<int64_t>& tokens) {
    int64_t length = static_cast<int64_t>(tokens.size()) / batch.sequences;
    auto host = torch::from_blob(const_cast<int64_t*>(tokens.data()), {batch.sequences, length}, torch::kInt64);
    return host.to(setup_.world.device, /*non_blocking=*/false, /*copy=*/true);
  };
  return {copy(batch.inputs), copy(batch.targets)};
}

StepInput Trainer::to_device(const StepBatch& batch) const {
  StepInput input;
  for (const auto& micro : batch.micro_batches) input.micro_batches.push_back(to_device(micro));
  input.global_tokens = batch.global_sequences * setup_.train.seq_len();
  input.lr_factor = learning_rate(recipe_.lr_scheduler, 1.0, step_ + 1, max_steps_);
  // Masks differ between ranks and steps; micro-batches and blocks add their own index.
  input.dropout_key = mix64(name_key(recipe_.run.seed, "dropout") + mix64(static_cast<uint64_t>(step_) * 1'000'003ull +
                                                                          static_cast<uint64_t>(setup_.world.rank)));
  input.votes = votes();
  return input;
}

uint32_t Trainer::votes() const {
  uint32_t votes = 0;
  if (setup_.stop && setup_.stop->load()) votes |= vote_stop;
  if (setup_.world.rank != 0) return votes;  // clocks are rank 0's
  double now = steady_seconds();
  if (recipe_.checkpoint.every && now - last_save_ >= static_cast<double>(recipe_.checkpoint.every->count()))
    votes |= vote_checkpoint;
  if (recipe_.train.max_time &&
      trained_before_ + now - loop_started_ >= static_cast<double>(recipe_.train.max_time->count()))
    votes |= vote_time_over;
  return votes;
}

void Trainer::report(const StepResult& result, double seconds, double waited, int64_t tokens, double lr) {
  if (setup_.world.rank != 0) return;
  bool logged = step_ % recipe_.train.log_every_n_steps == 0 || step_ == max_steps_ || step_ == 1;
  if (!logged) return;
  setup_.events.emit("step", {{"step", step_},
                              {"epoch", position_.epoch},
                              {"loss", result.loss},
                              {"lr", lr},
                              {"grad_norm", result.grad_norm},
                              {"tokens", tokens},
                              {"seconds", seconds},
                              {"data_wait_s", waited},
                              {"memory_bytes", setup_.memory_bytes ? setup_.memory_bytes() : 0},
                              {"skipped", result.skipped}});
}

double Trainer::validate() {
  double begun = steady_seconds();
  Loader::Options options;
  options.micro_batch_size = *recipe_.train.micro_batch_size;
  options.global_batch_size = options.micro_batch_size * setup_.world.size;
  options.rank = setup_.world.rank;
  options.world_size = setup_.world.size;
  options.shuffle = false;
  options.repeat = false;
  Loader loader(*setup_.validation, options);
  int64_t limit =
      recipe_.run.fast_dev_run > 0 ? recipe_.run.fast_dev_run : recipe_.train.limit_val_batches.value_or(INT64_MAX);
  double sum = 0;
  int64_t sequences = 0;
  StepBatch batch;
  for (int64_t n = 0; n < limit && loader.next(batch); ++n) {
    for (const auto& micro : batch.micro_batches) sum += setup_.strategy.evaluate(to_device(micro));
    sequences += batch.global_sequences;
  }
  auto total = torch::tensor({sum}, torch::kFloat64);
  std::vector<at::Tensor> tensors{total};
  if (setup_.world.size > 1) setup_.world.control->allreduce(tensors, {c10d::ReduceOp::SUM})->wait();
  int64_t tokens = sequences * setup_.validation->seq_len();
  double loss = total.item<double>() / static_cast<double>(tokens);
  if (setup_.world.rank == 0)
    setup_.events.emit("validation",
                       {{"step", step_}, {"loss", loss}, {"tokens", tokens}, {"seconds", steady_seconds() - begun}});
  val_loss_ = loss;
  validated_step_ = step_;
  return loss;
}

void Trainer::save() {
  if (recipe_.run.fast_dev_run > 0 || saved_step_ == step_) return;
  checkpointer_.save(setup_.strategy, step_, trainer_state());
  saved_step_ = step_;
  last_save_ = steady_seconds();
}

int64_t Trainer::planned_steps() const {
  if (recipe_.run.fast_dev_run > 0) return recipe_.run.fast_dev_run;
  int64_t steps = recipe_.train.max_steps.value_or(INT64_MAX);
  if (!recipe_.train.max_epochs) return steps;
  int64_t by_epochs = 0;
  int64_t samples = setup_.train.size();
  for (int64_t epoch = 0; epoch < *recipe_.train.max_epochs; ++epoch) {
    int64_t size = global_batch_size(recipe_, setup_.world.size, epoch);
    by_epochs += (samples + size - 1) / size;
  }
  return std::min(steps, by_epochs);
}

void Trainer::validate_and_save(const StepResult& result, bool epoch_end, bool last) {
  bool validation_due = recipe_.train.val_check_interval ? due(recipe_.train.val_check_interval) : epoch_end;
  if (setup_.validation && (validation_due || last) && validated_step_ != step_) validate();
  bool save_due = due(recipe_.checkpoint.every_n_steps) || (result.votes & (vote_checkpoint | vote_stop)) ||
                  (last && recipe_.checkpoint.save_at_end);
  if (save_due) save();
}

TrainerResult Trainer::run() {
  Loader::Options options;
  options.micro_batch_size = *recipe_.train.micro_batch_size;
  options.global_batch_size = global_batch_size(recipe_, setup_.world.size, position_.epoch);
  options.rank = setup_.world.rank;
  options.world_size = setup_.world.size;
  options.shuffle = recipe_.data.shuffle;
  options.seed = recipe_.run.seed;
  options.prefetch = recipe_.data.prefetch;
  options.start = position_;
  Loader loader(setup_.train, options);
  loader.set_batch_size_of_epoch(
      [this](int64_t epoch) { return global_batch_size(recipe_, setup_.world.size, epoch); });
  max_steps_ = planned_steps();
  loop_started_ = last_save_ = steady_seconds();

  TrainerResult outcome;
  double first_step_s = 0, waited_before = 0;
  bool over = step_ >= max_steps_;
  while (!over) {
    double begun = steady_seconds();
    StepBatch batch;
    loader.next(batch);
    double waited = loader.waited_seconds() - waited_before;
    waited_before = loader.waited_seconds();
    StepInput input = to_device(batch);
    StepResult result = setup_.strategy.step(input);
    ++step_;
    position_ = batch.after;
    tokens_ += input.global_tokens;
    loss_ = result.loss;
    if (!result.finite)
      throw run_error(
          "the loss or a gradient is not finite at step {} (loss {}, gradient norm {}); train.on_nonfinite = \"skip\" "
          "would "
          "leave such steps out",
          step_, result.loss, result.grad_norm);
    double now = steady_seconds();
    if (first_step_s == 0) first_step_s = now - setup_.started;
    report(result, now - begun, waited, input.global_tokens, recipe_.optimizer.lr * input.lr_factor);
    bool stop = result.votes & vote_stop;
    over = step_ >= max_steps_ || stop || (result.votes & vote_time_over);
    validate_and_save(result, batch.epoch_end, over && !stop);
    if (stop) {
      outcome.stopped = step_ < max_steps_;
      if (setup_.world.rank == 0) setup_.events.emit("stopping", {{"step", step_}, {"reason", "asked to stop"}});
    }
  }
  checkpointer_.wait();
  outcome.steps = step_;
  outcome.final_loss = loss_;
  if (setup_.world.rank == 0)
    setup_.events.emit("finished", {{"step", step_},
                                    {"final_loss", loss_},
                                    {"tokens", tokens_},
                                    {"train_seconds", trained_before_ + steady_seconds() - loop_started_},
                                    {"time_to_first_step_s", first_step_s}});
  return outcome;
}

}  // namespace runner
