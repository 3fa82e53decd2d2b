#include "runner/train/trainer.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/error.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/hash.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/config/schedule.hpp"
#include "runner/data/table_schema.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/models/task_metrics.hpp"
#include "runner/selection/plan.hpp"
#include "runner/train/planned_steps.hpp"
#include "strategies/contract/failure.hpp"
#include "strategies/contract/initialize.hpp"

namespace runner {

namespace {

/// A number from a checkpoint's state. JSON stores NaN as null.
double state_number(const nlohmann::json& value) { return value.is_null() ? std::nan("") : value.get<double>(); }

}  // namespace

Trainer::Trainer(TrainerSetup setup)
    : setup_(std::move(setup)),
      recipe_(setup_.recipe),
      report_(recipe_, setup_.events, setup_.world.rank),
      health_(recipe_, setup_.train, setup_.events, setup_.world.rank),
      checkpointer_(setup_.world, checkpoint_options(recipe_, setup_.run_dir, setup_.attempt), checkpoint_calls()) {
  start_at({});
}

void Trainer::start_at(const TrainingStart& start) {
  step_ = start.step;
  schedule_step_ = start.schedule_step.value_or(static_cast<double>(step_));
  checkpointer_.continue_from(step_);
  position_ = start.position;
  if (setup_.accept_changed_data && position_.sample > setup_.train.size_up_to(position_.sample))
    position_ = {position_.epoch + 1, 0};
  max_steps_ = planned_steps(recipe_, setup_.engine.data_ranks(), setup_.train, start);
  if (max_steps_ != INT64_MAX) progress_.max_steps = max_steps_;
}

Checkpointer::Calls Trainer::checkpoint_calls() {
  auto note = [this](const std::string& text) { report_.note(text); };
  auto published = [this, note, warned = false](const Checkpointer::Published& checkpoint) mutable {
    setup_.events.emit("checkpoint", {{"step", checkpoint.step},
                                      {"path", checkpoint.path},
                                      {"seconds", checkpoint.seconds},
                                      {"bytes", checkpoint.bytes}});
    const auto grace = recipe_.train.grace_time;
    if (checkpoint.seconds <= static_cast<double>(grace.count()) || std::exchange(warned, true)) return;
    note(fmt::format(
        "a checkpoint took {:.0f} s, which is longer than train.grace_time = \"{}\": after a SIGTERM, the run would be "
        "killed before its last checkpoint is written; increase train.grace_time",
        checkpoint.seconds, write_duration(grace)));
  };
  return {.settle = [this] { setup_.events.settle(); }, .published = published, .note = note};
}

void Trainer::set_up_hooks() {
  if (!std::exchange(hooks_set_up_, true)) call_hooks(lua::Moment::setup);
}

void Trainer::check_replicas(const Checkpoint& checkpoint) {
  auto tensors = checkpoint.tensors();
  auto of_replica = [](const std::string& name) { return name.starts_with(replica_piece_name("")); };
  if (std::none_of(tensors.begin(), tensors.end(), of_replica)) return;
  int64_t wrote = checkpoint.world_size();
  if (!setup_.engine.replicas_differ()) {
    report_.note(fmt::format(
        "each of the checkpoint's {} ranks had parameters or optimizer state of its own; {} continues with those "
        "of rank 0",
        wrote, recipe_.strategy.name));
  } else if (wrote != setup_.world.size) {
    throw environment_error(
        "the checkpoint contains the training state of each of {} ranks, and this run has {}: {} can continue only "
        "with the same number of ranks",
        wrote, setup_.world.size, recipe_.strategy.name);
  }
}

void Trainer::resume(const Checkpoint& checkpoint) {
  const auto& state = checkpoint.state();
  setup_.events.snapshot_taken(static_cast<double>(checkpoint.step()));
  start_at(start_of(state));
  setup_.hooks.restore_history(state);
  set_up_hooks();
  check_replicas(checkpoint);
  for (const auto& note : load_state(setup_.engine, checkpoint)) report_.note(note);
  setup_.engine.load_scalars(state.at("strategy"));
  tokens_ = state.at("tokens");
  loss_ = state_number(state.at("loss"));
  saved_step_ = step_;
  restore_validation(state);
  // Only weights, optimizer state, step and data position of another run's checkpoint (--checkpoint) matter.
  if (written_by(checkpoint, setup_.run_dir)) continue_course(state);
  progress_.step = step_;
  progress_.epoch = position_.epoch;
  if (step_ > 0) setup_.hooks.set_metric(metric::loss, loss_);
  if (validated_step_ == step_) {
    setup_.hooks.set_metric(metric::val_loss, val_loss_);
    for (const auto& [name, value] : val_metrics_) setup_.hooks.set_metric(name, value);
  }
  setup_.hooks.load(checkpoint, progress_);
}

void Trainer::restore_validation(const TrainerState& state) {
  const auto found = state.find("val_loss");
  if (found == state.end()) return;
  val_loss_ = state_number(*found);
  validated_step_ = step_;
  val_metrics_.clear();
  for (const auto& name : validation_metrics(recipe_))
    if (const auto value = state.find(name); value != state.end())
      val_metrics_.emplace_back(name, state_number(*value));
}

void Trainer::continue_course(const TrainerState& state) {
  report_.set_skipped(state.value("skipped_steps", int64_t{0}));
  health_.restore(state.value("health", nlohmann::json::object()));
  trained_before_ = state.at("train_seconds");
  unfinished_ = unfinished_step(state);
  if (const auto stop = standing_stop(state, recipe_); !stop.empty()) setup_.hooks.restore_stop(stop);
  if (const auto note = rate_note(state, recipe_, schedule_step(), max_steps_); !note.empty()) report_.note(note);
}

TrainerState Trainer::trainer_state() const {
  TrainerState state = {
      {"step", step_},
      {"run", setup_.run_dir.filename().string()},
      {"attempt", setup_.attempt},
      {"rates", rates_to_json(recipe_, schedule_step(), max_steps_)},
      {"tokens", tokens_},
      {"loss", loss_},
      {"train_seconds", trained_before_ + seconds_trained()},
      {"data", {{"epoch", position_.epoch}, {"sample", position_.sample}, {"meaning", setup_.data_meaning}}},
      {"strategy", setup_.engine.scalars()},
      {"strategy_name", recipe_.strategy.name},
      {"world_size", setup_.world.size},
      {"model", setup_.model_sizes}};
  if (schedule_step_ != static_cast<double>(step_)) state["schedule_step"] = schedule_step_;
  if (!setup_.settings.is_null()) state["settings"] = setup_.settings;
  if (report_.skipped() > 0) state["skipped_steps"] = report_.skipped();
  if (setup_.world.rank == 0) state["health"] = health_.state();
  if (const auto learned = setup_.train.learned(); !learned.is_null()) state["data"]["learned"] = learned;
  if (validated_step_ == step_) {
    state["val_loss"] = val_loss_;
    for (const auto& [name, value] : val_metrics_) state[name] = value;
  }
  if (unfinished_) state["unfinished"] = to_json(*unfinished_);
  if (completing_ && !unfinished_) state["completed"] = true;
  return state;
}

StepInput Trainer::input_of(StepBatch& batch) const {
  StepInput input;
  input.micro_batches = std::move(batch.micro_batches);
  input.weight = batch.weight;
  input.rank_weight = batch.rank_weight;
  input.lr_factor_at = [this](int64_t step) { return learning_rate(recipe_.lr_scheduler, 1.0, step, max_steps_); };
  input.lr_factor = input.lr_factor_at(schedule_step() + 1);
  input.first_row = batch.first_row;
  input.dropout_key = mix64(name_key(recipe_.run.seed, "dropout") + mix64(static_cast<uint64_t>(step_)));
  input.votes = votes();
  return input;
}

uint32_t Trainer::votes() const {
  uint32_t votes = 0;
  if (setup_.stop && setup_.stop->load()) votes |= vote_stop;
  if (setup_.world.rank != 0) return votes;  // rank 0 decides by its clock
  double now = steady_seconds();
  if (recipe_.checkpoint.every && now - last_save_ >= static_cast<double>(recipe_.checkpoint.every->count()))
    votes |= vote_checkpoint;
  if (time_over(now - loop_started_)) votes |= vote_time_over;
  return votes;
}

bool Trainer::time_over(double seconds) const {
  const auto& limit = recipe_.train.max_time;
  return limit && trained_before_ + seconds >= static_cast<double>(limit->count());
}

bool Trainer::stop_agreed() {
  const bool mine = setup_.stop && setup_.stop->load();
  return setup_.engine.sum_over_ranks(mine ? 1 : 0) > 0;
}

bool Trainer::validate() {
  const SpanScope span(spans(), {Phase::validation, "validation"});
  call_hooks(lua::Moment::on_validation_start);
  bool done = measure_validation();
  if (done) call_hooks(lua::Moment::on_validation_end);
  setup_.hooks.end_validation();
  return done;
}

bool Trainer::measure_validation() {
  fault_point("validation");
  double begun = steady_seconds();
  Loader loader(*setup_.validation, {.global_batch_size = global_batch_size(recipe_, setup_.engine.data_ranks(), 0),
                                     .micro_batch_size = *recipe_.train.micro_batch_size,
                                     .data_rank = setup_.engine.data_rank(),
                                     .data_ranks = setup_.engine.data_ranks(),
                                     .shuffle = false,
                                     .workers = recipe_.data.num_workers.value_or(1),
                                     .repeat = false});
  int64_t limit =
      recipe_.run.fast_dev_run > 0 ? recipe_.run.fast_dev_run : recipe_.train.limit_val_batches.value_or(INT64_MAX);
  std::vector<double> sums = {0};
  int64_t weight = 0;
  StepBatch batch;
  for (int64_t n = 0; n < limit && loader.next(batch); ++n) {
    if (stop_agreed()) return false;
    for (const auto& micro : batch.micro_batches) {
      const auto more = setup_.engine.evaluate_sums(micro);
      sums.resize(more.size());
      for (size_t i = 0; i < more.size(); ++i) sums[i] += more[i];
    }
    weight += batch.weight;
  }
  if (weight == 0)
    throw usage_error(
        "the validation loss is undefined: no validated sample has a supervised token{}",
        limit == INT64_MAX ? "" : fmt::format("; train.limit_val_batches = {} leaves out later ones", limit));
  sums = setup_.engine.sums_over_ranks(std::move(sums));
  double loss = sums[0] / static_cast<double>(weight);
  take_metrics(sums);
  if (setup_.world.rank == 0) {
    nlohmann::json event = {{"step", step_}, {"loss", loss}, {"tokens", weight}, {"seconds", steady_seconds() - begun}};
    for (const auto& [name, value] : val_metrics_) event["metrics"][name] = value;
    setup_.events.emit("validation", event);
  }
  health_.validated(step_, loss);
  val_loss_ = loss;
  validated_step_ = step_;
  saved_step_ = -1;  // an existing checkpoint of this step lacks the value
  setup_.hooks.set_metric(metric::val_loss, loss);
  for (const auto& [name, value] : val_metrics_) setup_.hooks.set_metric(name, value);
  return true;
}

void Trainer::take_metrics(std::span<const double> sums) {
  val_metrics_.clear();
  if (!setup_.task) return;
  val_metrics_ = metrics_of(*setup_.task, sums, target_scales(setup_.train.learned()));
}

void Trainer::save(bool steps_follow) {
  if (recipe_.run.fast_dev_run > 0 || saved_step_ == step_) return;
  const SpanScope span(spans(), {Phase::checkpoint, "checkpoint"});
  TrainerState state = trainer_state();
  Checkpointer::More of_hooks;
  setup_.hooks.save(state, of_hooks);
  if (hooks_stop()) state["stop"] = stop_to_json(setup_.hooks.stop_reason(), recipe_);
  checkpointer_.save(setup_.engine, step_, state, of_hooks, steps_follow);
  setup_.events.snapshot_taken(static_cast<double>(step_));
  fault_point("snapshot");
  saved_step_ = step_;
  last_save_ = steady_seconds();
}

void Trainer::end_step(uint32_t votes, const UnfinishedStep& step) {
  StepEnd end{.step = step_,
              .course = course_,
              .asked_to_stop = (votes & vote_stop) != 0,
              .epoch_end = step.epoch_end,
              .unfinished = unfinished_.has_value(),
              .checkpoint_requested = (votes & vote_checkpoint) != 0,
              .validation = validated_step_ == step_ ? Validation::done : Validation::open};
  const bool has_validation = setup_.validation != nullptr;
  if (due(recipe_, has_validation, end).validate) {
    if (!end.asked_to_stop) end.asked_to_stop = !validate();
    end.validation = validated_step_ == step_ ? Validation::done : Validation::left;
  }
  unfinished_.reset();
  if (end.validation == Validation::left)
    unfinished_ = step;
  else if (step.epoch_end)
    call_hooks(lua::Moment::on_train_epoch_end);
  if (hooks_stop()) end.course = Course::hook;
  end.checkpoint_requested |= setup_.hooks.take_checkpoint();
  const Due now = due(recipe_, has_validation, end);
  course_ = now.course;
  if (course_ != Course::going) report_.emit_kept();  // before the checkpoint, so that a resume from it has this step
  if (now.save) save(/*steps_follow=*/end.course == Course::going && !end.asked_to_stop);
}

void Trainer::complete_step() {
  if (course_ == Course::going && !unfinished_) return;
  const UnfinishedStep step = unfinished_.value_or(UnfinishedStep{.epoch = position_.epoch});
  progress_.epoch = step.epoch;
  progress_.last_step = course_ == Course::complete || course_ == Course::max_time;  // a hook's stop does not count
  // The checkpoint of this step is replaced. What is recorded until then belongs to the new one.
  setup_.events.snapshot_taken(static_cast<double>(step_) - 0.5);
  completing_ = true;
  end_step(unfinished_ ? uint32_t{vote_checkpoint} : 0, step);
  completing_ = false;
  setup_.events.snapshot_taken(static_cast<double>(step_));
}

void Trainer::end_by_nonfinite(const StepResult& result) {
  const NonFiniteError error(nonfinite_message(step_ + 1, result));
  health_.not_finite(step_ + 1, result, error.what());
  throw error;
}

void Trainer::leave_together() {
  checkpointer_.wait();
  setup_.engine.barrier();
}

TrainerResult Trainer::run() {
  try {
    try {
      return train();
    } catch (const NonFiniteError&) {
      leave_together();
      throw;
    } catch (const lua::HookError&) {
      leave_together();
      throw;
    }
  } catch (const std::exception& error) {
    report_.emit_kept();
    setup_.hooks.call_exception(error.what());
    throw;
  }
}

Loader::Options Trainer::loader_options() const {
  return {.global_batch_size = global_batch_size(recipe_, setup_.engine.data_ranks(), position_.epoch),
          .micro_batch_size = *recipe_.train.micro_batch_size,
          .data_rank = setup_.engine.data_rank(),
          .data_ranks = setup_.engine.data_ranks(),
          .shuffle = recipe_.data.shuffle,
          .drop_last = recipe_.data.drop_last,
          .seed = recipe_.run.seed,
          .prefetch = recipe_.data.prefetch,
          .workers = recipe_.data.num_workers.value_or(1),
          .start = position_};
}

void Trainer::take_step(Loader& loader) {
  if (setup_.profile) setup_.profile->step_begins(step_ + 1);
  SpanScope span(spans(), {Phase::step, "step"});
  const int64_t epoch = position_.epoch;
  progress_.epoch = epoch;
  progress_.last_step = false;
  if (position_.sample == 0) call_hooks(lua::Moment::on_train_epoch_start);
  health_.step_begins(step_ + 1, position_);
  const double begun = steady_seconds(), waited_before = loader.waited_seconds();
  StepBatch batch;
  SpanScope waiting(spans(), {Phase::data, "wait for data"});
  loader.next(batch);
  waiting.end();
  health_.batch_loaded(batch);
  const double waited = loader.waited_seconds() - waited_before;
  const StepInput input = input_of(batch);
  progress_.lr_factor = input.lr_factor;
  call_hooks(lua::Moment::on_train_batch_start);
  const StepResult result = setup_.engine.step(input);
  const auto keep_event = [&](int64_t step, bool logged) {
    nlohmann::json group_rates = nlohmann::json::object();
    for (const auto& [group, rate] : setup_.group_rates) group_rates[group] = rate * result.lr_factor;
    report_.keep({{"step", step},
                  {"epoch", epoch},
                  {"epochs", epochs_trained(position_, setup_.train)},
                  {"loss", result.loss},
                  {"lr", recipe_.optimizer.lr * result.lr_factor},
                  {"group_lr", group_rates},
                  {"grad_norm", result.grad_norm},
                  {"tokens", batch.units},
                  {"trained", tokens_},
                  {"train_seconds", trained_before_ + seconds_trained()},
                  {"rows", batch.global_rows},
                  {"seconds", steady_seconds() - begun},
                  {"data_wait_s", waited},
                  {"memory_bytes", setup_.memory_bytes ? setup_.memory_bytes() : 0},
                  {"skipped", result.skipped}},
                 logged);
  };
  if (!result.finite) {
    keep_event(step_ + 1, true);  // so that the curve shows why it ends
    end_by_nonfinite(result);
  }
  progress_.step = ++step_;
  schedule_step_ += result.gain;
  progress_.lr_factor = result.lr_factor;
  position_ = batch.after;
  tokens_ += batch.units;
  loss_ = result.loss;
  course_ = all_steps_done() ? Course::complete : (result.votes & vote_time_over) ? Course::max_time : Course::going;
  report_.count(step_, result);
  health_.step_ends(step_, result);
  checkpointer_.look();
  fault_point("step");
  keep_event(step_, step_ % recipe_.train.log_every_n_steps == 0 || step_ == 1 || course_ != Course::going);
  progress_.last_step = course_ != Course::going;
  setup_.hooks.set_metric(metric::loss, result.loss);
  setup_.hooks.set_metric(metric::grad_norm, result.grad_norm);
  call_hooks(lua::Moment::on_train_batch_end);
  if (hooks_stop()) course_ = Course::hook;
  span.end();
  end_step(result.votes, {.epoch = epoch, .epoch_end = batch.epoch_end});
}

TrainerResult Trainer::train() {
  set_up_hooks();
  Loader loader(setup_.train, loader_options());
  loader.set_batch_size_of_epoch(
      [this](int64_t epoch) { return global_batch_size(recipe_, setup_.engine.data_ranks(), epoch); });
  if (const auto note = warmup_note(recipe_, max_steps_); !note.empty()) report_.note(note);
  loop_started_ = last_save_ = steady_seconds();
  course_ = all_steps_done() ? Course::complete : time_over(0) ? Course::max_time : Course::going;
  progress_.step = step_;
  progress_.epoch = position_.epoch;
  call_hooks(lua::Moment::on_train_start);
  if (hooks_stop()) course_ = Course::hook;
  complete_step();
  while (course_ == Course::going) take_step(loader);
  report_.early_end(step_, schedule_step_, course_, setup_.hooks.stop_reason());
  health_.ended(validated_step_, val_loss_);
  call_hooks(lua::Moment::on_train_end);
  checkpointer_.finish();
  call_hooks(lua::Moment::teardown);
  if (setup_.profile) setup_.profile->finish(setup_.events);
  report_.finished(step_, loss_, {setup_.task ? "samples" : "tokens", tokens_}, trained_before_ + seconds_trained());
  return {.steps = step_, .final_loss = loss_, .stopped = course_ == Course::asked};
}

}  // namespace runner
