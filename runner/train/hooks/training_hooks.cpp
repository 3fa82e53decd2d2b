#include "runner/train/hooks/training_hooks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/known_metrics.hpp"
#include "runner/train/hooks/loss.hpp"
#include "runner/train/torch_mistake.hpp"

namespace runner {

using lua::ScriptMistake, lua::Value;
using nlohmann::json;

namespace {

/// "rank 1: TEXT" for the first rank that has a text. Only the text if it is the same on all ranks.
std::string first_text(const std::vector<std::string>& texts) {
  bool all = std::all_of(texts.begin(), texts.end(), [&](const auto& text) { return text == texts[0]; });
  if (all) return texts[0];
  for (size_t rank = 0; rank < texts.size(); ++rank)
    if (!texts[rank].empty()) return fmt::format("rank {}: {}", rank, texts[rank]);
  return "";
}

bool in_validation(std::optional<lua::Moment> moment) {
  return moment == lua::Moment::on_validation_start || moment == lua::Moment::on_validation_end;
}

bool any(const std::vector<CallEnd>& ends, bool CallEnd::*member) {
  return std::any_of(ends.begin(), ends.end(), [&](const auto& end) { return end.*member; });
}

/// Parts whose events are at most a quarter of the longest line of the event pipe, of 1 MiB.
std::vector<std::vector<HookRequests::Logged>> in_parts(const std::vector<HookRequests::Logged>& all) {
  constexpr size_t bytes_max = 256 << 10, bytes_of_number = 40, bytes_of_escape = 6;
  std::vector<std::vector<HookRequests::Logged>> parts;
  size_t bytes = bytes_max;
  for (const auto& logged : all) {
    const size_t more = bytes_of_escape * logged.metric->first.size() + bytes_of_number;
    if (bytes + more > bytes_max) {
      parts.emplace_back();
      bytes = 0;
    }
    parts.back().push_back(logged);
    bytes += more;
  }
  return parts;
}

}  // namespace

std::unique_ptr<Hooks> make_training_hooks(const TrainingHooksSetup& setup) {
  if (lua::hook_sources(setup.recipe).empty()) return std::make_unique<Hooks>();
  return std::make_unique<TrainingHooks>(setup);
}

TrainingHooks::TrainingHooks(TrainingHooksSetup setup)
    : setup_(std::move(setup)),
      exchange_(setup_.world),
      tensors_{.exchange = &exchange_, .parameters_change_in = "on_train_batch_start or on_train_batch_end"},
      hooks_(make_hooks()),
      context_(setup_, call_, exchange_, tensors_, *metrics_, hooks_.state()) {
  setup_.strategy.observe(this);
  if (hooks_.has_loss())
    setup_.strategy.use_loss(
        [this](const torch::Tensor& logits, const torch::Tensor& targets) { return token_loss(logits, targets); });
  tensors_.before_write = [this](const StateTensor& place) { keep_for_training(place); };
  tensors_.collects = &hooks_.state();
}

TrainingHooks::~TrainingHooks() {
  if (setup_.world.rank == 0)
    for (const auto& record : hooks_.records()) setup_.events.emit("hook", record);
  setup_.strategy.observe(nullptr);
  setup_.strategy.use_loss({});
}

lua::HookSet TrainingHooks::make_hooks() {
  lua::HookSet::Talk talk;
  talk.print = [this](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    if (exchange_.rank() == 0) setup_.events.emit("printed", {{"text", line}});
  };
  talk.mistake_of = torch_mistake;
  talk.report = [this](const std::string& text) {
    if (exchange_.rank() == 0 || exchange_.alone()) setup_.events.record("note", {{"message", text}});
  };
  talk.step = [this] { return call_.progress.step; };
  talk.agree = [this](const std::string& hook, const std::string& failure) { return agree(hook, failure); };
  return lua::HookSet(setup_.recipe, talk);
}

void TrainingHooks::call(Moment moment, const TrainingProgress& progress) {
  call_.progress = progress;
  call(moment);
}

void TrainingHooks::call(Moment moment) {
  if (!hooks_.wants(moment)) return;
  torch::NoGradGuard no_grad;
  call_.moment = moment;
  tensors_.parameters_writable = !inside_step(moment);
  double started = steady_seconds();
  hooks_.call(moment, context_.value());
  seconds_ += steady_seconds() - started;
  call_.moment.reset();
}

void TrainingHooks::call_exception(const std::string& what) noexcept {
  try {
    exchange_.leave_alone();
    context_.end_handles();
    call_.requests = {};
    call_.gradients = nullptr;
    tensors_.parameters_written = tensors_.gradients_written = false;
    tensors_.written.clear();
    call_.exception = what;
    call(Moment::on_exception);
  } catch (const std::exception& error) {
    setup_.events.emit("note", {{"message", error.what()}});
  }
}

// ---- the end of a call

lua::HookSet::Talk::Failure TrainingHooks::agree(const std::string& hook, const std::string& failure) {
  context_.end_handles();
  HookRequests requests = std::exchange(call_.requests, {});
  auto written = std::exchange(tensors_.written, {});
  // pairs() of Lua has another order on each rank. The order has no effect.
  std::sort(written.begin(), written.end());
  std::string names;
  for (const auto& logged : requests.synced) names += logged.metric->first + "\n" + logged.sync + "\n";
  const CallEnd mine{.failed = !failure.empty(),
                     .stop = requests.stop.has_value(),
                     .checkpoint = requests.checkpoint,
                     .skip = requests.skip,
                     .parameters_written = std::exchange(tensors_.parameters_written, false),
                     .gradients_written = std::exchange(tensors_.gradients_written, false),
                     .lr = requests.lr,
                     .synced = std::ssize(requests.synced),
                     .synced_names = hash_of(names),
                     .restored = requests.restored,
                     .state_tensors = hash_of(std::exchange(tensors_of_states_, {})),
                     .changes = std::ssize(written),
                     .changed = hash_of(join(written, "\n"))};
  std::vector<CallEnd> ends;
  for (const auto& row : exchange_.end(mine.pack())) ends.push_back(CallEnd::unpack(row));
  const bool parameters_changed = any(ends, &CallEnd::parameters_written);
  if (parameters_changed) {
    lent_ |= in_validation(call_.moment);
    setup_.strategy.state_loaded();
  }
  // Changes of parameters during a validation are undone after it.
  const bool changed = any(ends, &CallEnd::gradients_written) || (parameters_changed && !in_validation(call_.moment));
  if (any(ends, &CallEnd::failed)) return {first_text(exchange_.texts(failure)), changed};
  if (auto wrong = contradiction(ends); !wrong.empty()) return {wrong, changed};
  grant(hook, std::move(requests), ends);
  return {};
}

void TrainingHooks::grant(const std::string& hook, HookRequests requests, const std::vector<CallEnd>& ends) {
  if (any(ends, &CallEnd::stop)) {
    auto texts = exchange_.texts(requests.stop ? *requests.stop + " " : "");  // not empty, although the reason may be
    if (stop_reason_.empty())                                                 // scripts often decide on rank 0 only
      stop_reason_ = fmt::format("hook {}: {}", hook, trim(texts[0].empty() ? first_text(texts) : texts[0]));
  }
  if (requests.restore) {
    requests.restore();
    setup_.strategy.state_loaded();
  }
  checkpoint_ |= any(ends, &CallEnd::checkpoint);
  skip_ |= any(ends, &CallEnd::skip);
  if (requests.lr) call_.progress.lr_factor = *requests.lr / setup_.recipe.optimizer.lr;
  if (!requests.synced.empty()) {
    std::vector<double> mine;
    for (const auto& logged : requests.synced) mine.push_back(logged.value);
    auto all = exchange_.alone() ? HookExchange::Rows{mine} : exchange_.meet("log", mine);
    for (size_t i = 0; i < mine.size(); ++i) {
      const auto& logged = requests.synced[i];
      requests.logged.push_back({logged.metric, reduced(HookExchange::column(all, i), logged.sync)});
    }
  }
  publish(hook, std::move(requests.logged));
}

void TrainingHooks::publish(const std::string& hook, std::vector<HookRequests::Logged> all) {
  if (all.empty()) return;
  for (const auto& logged : all) logged.metric->second.value = logged.value;
  if (exchange_.rank() != 0) return;
  for (const auto& logged : all)
    if (!std::isfinite(logged.value) && !std::exchange(logged.metric->second.odd, true))
      setup_.events.emit(
          "note", {{"message", lua::nonfinite_note(hook, logged.metric->first, logged.value, call_.progress.step)}});
  const bool at_end = call_.moment == Moment::on_train_end || call_.moment == Moment::teardown;
  // The events share ownership of `metrics`, because they use the names in it.
  for (auto& part : in_parts(all))
    setup_.events.emit_soon("metrics",
                            [metrics = metrics_, step = call_.progress.step, at_end, part = std::move(part)] {
                              json values = json::object();
                              for (const auto& logged : part) values[logged.metric->first] = logged.value;
                              json event = {{"step", step}, {"values", std::move(values)}};
                              if (at_end) event["at_end"] = true;
                              return event;
                            });
}

// ---- parameters that hooks change for a validation

void TrainingHooks::keep_for_training(const StateTensor& place) {
  if (!in_validation(call_.moment)) return;
  if (!kept_.contains(place.name)) kept_[place.name] = {place, place.read(0, place.numel())};
}

void TrainingHooks::end_validation() {
  for (auto& [name, kept] : kept_) kept.place.write(0, kept.values);
  kept_.clear();
  if (std::exchange(lent_, false)) setup_.strategy.state_loaded();
}

// ---- the loss of a chunk of tokens

torch::Tensor TrainingHooks::token_loss(const torch::Tensor& logits, const torch::Tensor& targets) {
  struct Inside {
    TrainingHooks& hooks;
    explicit Inside(TrainingHooks& hooks) : hooks(hooks) {
      hooks.call_.in_loss = true;
      const bool equal_calls =
          hooks.setup_.model.loss_chunk_tokens == 0 && hooks.setup_.strategy.data_ranks() == hooks.setup_.world.size;
      if (!equal_calls)
        hooks.exchange_.close(
            "not in `loss`, because the number of its calls differs between ranks; it is the same with "
            "model.loss_chunk_tokens = 0 and without the axes tensor, context and pipeline");
    }
    ~Inside() {
      hooks.call_.in_loss = false;
      hooks.exchange_.close({});
    }
  } inside(*this);
  auto made = loss_of_hook(hooks_, context_.value(), logits, targets);
  if (logits.requires_grad() && !made.requires_grad())
    throw Error(ExitCode::run_failed, "a hook's `loss` does not depend on its logits, so nothing would be learnt");
  return made;
}

// ---- StepObserver

bool TrainingHooks::sees_gradients() const {
  const auto wants = [&](Moment moment) { return hooks_.wants(moment); };
  return skip_ || wants(Moment::on_before_backward) || wants(Moment::on_after_backward) ||
         wants(Moment::on_before_optimizer_step);
}

StepObserver::Decision TrainingHooks::before_optimizer_step(const Gradients& gradients, double scale, double) {
  call_.gradients = &gradients;
  call_.gradient_scale = scale;
  call(Moment::on_before_optimizer_step);
  call_.gradients = nullptr;
  return {std::exchange(skip_, false), call_.progress.lr_factor};
}

}  // namespace runner
