#include "runner/train/health_watch.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "runner/base/blocked_signals.hpp"
#include "runner/base/clock.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"

namespace runner {

StallWatch::StallWatch(Options options, std::function<void(const Stall&)> report)
    : options_(options), report_(std::move(report)) {
  if (options_.factor <= 0) return;
  BlockedSignals blocked;
  thread_ = std::thread([this] { loop(); });
}

StallWatch::~StallWatch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StallWatch::step_begins(int64_t step) {
  std::lock_guard lock(mutex_);
  step_ = step;
  begun_ = steady_seconds();
  reported_ = false;
}

void StallWatch::step_ends() {
  constexpr size_t window = 64;
  std::lock_guard lock(mutex_);
  if (begun_ > 0) seconds_.push_back(steady_seconds() - begun_);
  if (seconds_.size() > window) seconds_.pop_front();
  begun_ = 0;
}

double StallWatch::median() const {
  std::vector<double> values(seconds_.begin(), seconds_.end());
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void StallWatch::loop() {
  constexpr size_t enough = 3;  // steps; the first one may take long
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, options_.look_every, [this] { return stop_; })) {
    if (begun_ == 0 || reported_ || seconds_.size() < enough) continue;
    const double expected = median(), seconds = steady_seconds() - begun_;
    if (seconds < std::max(options_.factor * expected, options_.least.count())) continue;
    reported_ = true;
    const Stall stall{.step = step_, .seconds = seconds, .expected = expected};
    lock.unlock();
    report_(stall);
    lock.lock();
  }
}

namespace {

double upper_median(std::vector<double>& values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::optional<LossWatch::Spike> LossWatch::take(double loss) {
  if (deviations_ <= 0 || !std::isfinite(loss)) return std::nullopt;
  constexpr int64_t enough = 8;            // earlier steps
  constexpr double normal_scale = 1.4826;  // median absolute deviation -> standard deviation of normal noise
  constexpr double least_rise = 0.1;       // of the median
  std::optional<Spike> spike;
  if (std::ssize(losses_) >= enough) {
    std::vector<double> values(losses_.begin(), losses_.end());
    const double median = upper_median(values);
    for (double& value : values) value = std::abs(value - median);
    const double deviation = normal_scale * upper_median(values);
    const double rise = loss - median;
    const bool up = rise > deviations_ * deviation && rise > least_rise * std::abs(median);
    if (up && !up_) spike = Spike{.expected = median, .deviations = deviation > 0 ? rise / deviation : INFINITY};
    up_ = up;
  }
  losses_.push_back(loss);
  if (std::ssize(losses_) > window_) losses_.pop_front();
  return spike;
}

nlohmann::json LossWatch::state() const { return {{"losses", losses_}, {"up", up_}}; }

void LossWatch::restore(const nlohmann::json& state) {
  losses_.clear();
  for (const auto& loss : state.value("losses", nlohmann::json::array())) losses_.push_back(loss.get<double>());
  while (std::ssize(losses_) > window_) losses_.pop_front();
  up_ = state.value("up", false);
}

using nlohmann::json;

HealthWatch::HealthWatch(const Recipe& recipe, const Dataset& data, EventSink& events, int rank)
    : recipe_(recipe),
      data_(data),
      events_(events),
      watches_(rank == 0),
      losses_(recipe.health.loss_spike, recipe.health.loss_spike_window) {
  if (watches_ && recipe.health.stall > 0)
    stalls_ = std::make_unique<StallWatch>(
        StallWatch::Options{.factor = recipe.health.stall, .least = recipe.health.stall_after},
        [this](const StallWatch::Stall& stall) { report_stall(stall); });
}

void HealthWatch::set_batch(const DataPosition& at, int64_t rows) {
  epoch_ = at.epoch;
  first_ = at.sample;
  rows_ = rows;
}

json HealthWatch::fields(int64_t step, const std::string& message) const {
  constexpr int64_t most = 1024;
  const int64_t epoch = epoch_, first = first_, rows = rows_;
  json samples = json::array();
  const int64_t end = data_.size_up_to(first + std::min(rows, most));
  for (int64_t position = first; position < end; ++position)
    samples.push_back(data_.sample_at(epoch, position, {.shuffle = recipe_.data.shuffle, .seed = recipe_.run.seed}));
  return {{"step", step},   {"message", message}, {"epoch", epoch},
          {"first", first}, {"rows", rows},       {"samples", samples}};
}

void HealthWatch::step_begins(int64_t step, const DataPosition& at) {
  if (!watches_) return;
  set_batch(at, rows_);
  if (stalls_) stalls_->step_begins(step);
}

void HealthWatch::step_ends(int64_t step, const StepResult& result) {
  if (!watches_) return;
  if (stalls_) stalls_->step_ends();
  const bool finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  // A loss scaler that finds its limit overflows on purpose. Of many skipped steps, the 1st, 2nd, 4th ... are reported.
  if (!finite && !result.rescaled && std::has_single_bit(static_cast<uint64_t>(++not_finite_)))
    not_finite(step, result,
               fmt::format("step {} has the loss {} and the gradient norm {}", step, exact_metric_text(result.loss),
                           exact_metric_text(result.grad_norm)));
  if (const auto spike = losses_.take(result.loss)) {
    auto event =
        fields(step, fmt::format("the loss {:.4g} at step {} is far above {:.4g}, the median of the steps before",
                                 result.loss, step, spike->expected));
    event.update({{"value", result.loss}, {"expected", spike->expected}, {"deviations", spike->deviations}});
    events_.record("loss_spike", event);
  }
}

void HealthWatch::not_finite(int64_t step, const StepResult& result, const std::string& message) {
  if (!watches_) return;
  auto event = fields(step, message);
  event.update({{"value", result.loss}, {"grad_norm", result.grad_norm}});
  events_.record("nonfinite", event);
}

void HealthWatch::validated(int64_t step, double loss) {
  if (!watches_ || std::isfinite(loss) || !std::has_single_bit(static_cast<uint64_t>(++validations_not_finite_)))
    return;
  events_.record(
      "nonfinite",
      {{"step", step}, {"message", fmt::format("the validation loss at step {} is {}", step, loss)}, {"value", loss}});
}

void HealthWatch::ended(int64_t step, double loss) {
  if (!watches_ || std::isfinite(loss)) return;
  events_.record("note",
                 {{"message", fmt::format("the last validation loss, of step {}, is {}, so the trained model is "
                                          "probably unusable; --best takes the checkpoint of the best validation",
                                          step, exact_metric_text(loss))}});
}

void HealthWatch::report_stall(const StallWatch::Stall& stall) {
  auto event = fields(stall.step, fmt::format("step {} has not ended after {}; steps before took {}", stall.step,
                                              format_duration(stall.seconds), format_duration(stall.expected)));
  event.update({{"value", stall.seconds}, {"expected", stall.expected}});
  events_.emit("stall", event);
}

}  // namespace runner
