#include "runner/train/training_report.hpp"

#include <bit>
#include <cmath>

#include "runner/base/metric_names.hpp"
#include "runner/base/text.hpp"

namespace runner {

using nlohmann::json;

std::string nonfinite_message(int64_t step, const StepResult& result) {
  const bool fixed_scale = result.loss_scale != 1.0 && std::isfinite(result.loss);
  return fmt::format(
      "the loss or a gradient is not finite at step {} (loss {}, gradient norm {}); {}train.on_nonfinite = \"skip\" "
      "would skip such steps",
      step, exact_metric_text(result.loss), exact_metric_text(result.grad_norm),
      fixed_scale
          ? fmt::format("the fixed loss scale of {} may be too large: lower strategy.loss_scale, or set it to 0 "
                        "for a dynamic scale; ",
                        result.loss_scale)
          : "");
}

void TrainingReport::note(const std::string& message) {
  if (rank_ == 0) events_.emit("note", {{"message", message}});
}

void TrainingReport::count(int64_t step, const StepResult& result) {
  updated_ = updated_ || !result.skipped;
  const bool finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  if (recipe_.train.on_nonfinite == "skip" && result.skipped && !finite && !result.rescaled) {
    ++skipped_;
    if (rank_ == 0 && std::has_single_bit(static_cast<uint64_t>(skipped_)))
      events_.record("skipped",
                     {{"step", step},
                      {"total", skipped_},
                      {"message", fmt::format("step {} was skipped (train.on_nonfinite = \"skip\"): loss {}, gradient "
                                              "norm {}; {} skipped so far",
                                              step, exact_metric_text(result.loss), exact_metric_text(result.grad_norm),
                                              skipped_)}});
  }
  if (std::exchange(stepped_, true)) return;
  if (rank_ == 0) events_.emit("first_step", {{"step", step}});
}

void TrainingReport::keep(json step, bool now) {
  if (rank_ != 0) return;
  kept_ = std::move(step);
  if (now) emit_kept();
}

void TrainingReport::emit_kept() {
  if (!kept_.is_null()) events_.emit("step", std::exchange(kept_, nullptr));
}

void TrainingReport::early_end(int64_t step, double schedule_step, Course course, const std::string& reason_of_hook) {
  if (rank_ != 0) return;
  if (course == Course::hook) {
    events_.record("stopping", {{"step", step}, {"reason", reason_of_hook}});
    events_.record("note", {{"message", fmt::format("stopped at step {} by {}", step, reason_of_hook)}});
  }
  if (course == Course::max_time) events_.emit("stopping", {{"step", step}, {"reason", "train.max_time"}});
  if (course == Course::asked) events_.emit("stopping", {{"step", step}, {"reason", "asked to stop"}});
  if (course == Course::complete && schedule_step != static_cast<double>(step))
    events_.record("note", {{"message", fmt::format("{} count as {:.0f} of the schedule (optimizer.adascale)",
                                                    counted(step, "update"), schedule_step)}});
  if (stepped_ && !updated_)
    events_.record("note", {{"message", "no step of this attempt changed the parameters: all were skipped"}});
}

void TrainingReport::finished(int64_t step, double final_loss, const std::pair<std::string, int64_t>& trained,
                              double train_seconds) {
  if (rank_ != 0) return;
  events_.emit("finished", {{"step", step},
                            {"final_loss", step > 0 ? json(final_loss) : json()},
                            {trained.first, trained.second},
                            {"skipped_steps", skipped_},
                            {"train_seconds", train_seconds}});
}

}  // namespace runner
