#include "runner/train/hooks/training_hooks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "runner/base/clock.hpp"
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/known_metrics.hpp"
#include "runner/train/hooks/matrix.hpp"
#include "runner/train/torch_mistake.hpp"

namespace runner {

using lua::ScriptMistake;
using lua::Value;
using nlohmann::json;

namespace {

double reduced(const std::vector<double>& values, const std::string& operation) {
  if (operation == "min") return *std::min_element(values.begin(), values.end());
  if (operation == "max") return *std::max_element(values.begin(), values.end());
  double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return operation == "mean" ? sum / static_cast<double>(values.size()) : sum;
}

std::vector<double> column_of(const HookExchange::Rows& rows, size_t index) {
  std::vector<double> values;
  for (const auto& row : rows) values.push_back(row.at(index));
  return values;
}

/// "rank 1: TEXT" for the first rank that has a text. Only the text if it is the same on all ranks.
std::string first_text(const std::vector<std::string>& texts) {
  bool all = std::all_of(texts.begin(), texts.end(), [&](const auto& text) { return text == texts[0]; });
  if (all) return texts[0];
  for (size_t rank = 0; rank < texts.size(); ++rank)
    if (!texts[rank].empty()) return fmt::format("rank {}: {}", rank, texts[rank]);
  return "";
}

// ---- numbers exchanged at the end of a call: bits, learning rate, number and names of synced logs, snapshot to
// restore, names of tensors in states, number and names of changed tensors
constexpr uint32_t bit_failed = 1, bit_stop = 2, bit_checkpoint = 4, bit_skip = 8, bit_lr = 16, bit_parameters = 32,
                   bit_gradients = 64;
enum Word : size_t {
  word_bits,
  word_lr,
  word_logged,
  word_names,
  word_restored,
  word_tensors,
  word_changes,
  word_changed
};

uint32_t bits_of(const std::vector<double>& row) { return static_cast<uint32_t>(row.at(word_bits)); }

bool in_validation(std::optional<lua::Moment> moment) {
  return moment == lua::Moment::on_validation_start || moment == lua::Moment::on_validation_end;
}

bool between_steps(lua::Moment moment) {
  using M = lua::Moment;
  return moment == M::on_train_start || moment == M::on_train_epoch_start || moment == M::on_train_batch_start ||
         moment == M::on_train_batch_end || moment == M::on_train_epoch_end;
}

bool any(const HookExchange::Rows& rows, uint32_t bit) {
  return std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return (bits_of(row) & bit) != 0; });
}

}  // namespace

bool inside_step(lua::Moment moment) {
  return moment == lua::Moment::on_before_backward || moment == lua::Moment::on_after_backward ||
         moment == lua::Moment::on_before_optimizer_step;
}

std::unique_ptr<Hooks> make_training_hooks(const TrainingHooksSetup& setup) {
  if (lua::hook_sources(setup.recipe).empty()) return std::make_unique<Hooks>();
  return std::make_unique<TrainingHooks>(setup);
}

TrainingHooks::TrainingHooks(TrainingHooksSetup setup)
    : setup_(std::move(setup)),
      exchange_(setup_.world),
      tensors_{exchange_},
      hooks_(make_hooks()),
      context_(lua::make_context(*this)),
      snapshots_{setup_.strategy, [this] { return progress_.step; },
                 [this](const char* what) {
                   require_moment(what, between_steps, "between steps: in on_train_batch_start or on_train_batch_end");
                 },
                 [this](int64_t taken, std::function<void()> apply) {
                   requests_.restored = taken;
                   requests_.restore = std::move(apply);
                 }} {
  setup_.strategy.observe(this);
  if (hooks_.has_loss())
    setup_.strategy.use_loss(
        [this](const torch::Tensor& logits, const torch::Tensor& targets) { return token_loss(logits, targets); });
  tensors_.before_write = [this](const StateTensor& place) { keep_for_training(place); };
  tensors_.made = [this](int64_t bytes) { garbage_.made(bytes, hooks_.state()); };
}

TrainingHooks::~TrainingHooks() {
  setup_.strategy.observe(nullptr);
  setup_.strategy.use_loss({});
  end_handles();
  context_->invalidate("the training is over");
}

lua::HookSet TrainingHooks::make_hooks() {
  lua::HookSet::Talk talk;
  talk.print = [this](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
    if (rank() == 0) setup_.events.emit("printed", {{"text", line}});
  };
  talk.mistake_of = torch_mistake;
  talk.report = [this](const std::string& text) {
    if (rank() == 0 || exchange_.alone()) setup_.events.record("note", {{"message", text}});
  };
  talk.step = [this] { return progress_.step; };
  talk.agree = [this](const std::string& hook, const std::string& failure) { return agree(hook, failure); };
  return lua::HookSet(setup_.recipe, talk);
}

void TrainingHooks::call(Moment moment) {
  if (!hooks_.wants(moment)) return;
  torch::NoGradGuard no_grad;
  moment_ = moment;
  tensors_.parameters_writable = !inside_step(moment);
  double started = steady_seconds();
  hooks_.call(moment, Value(context_));
  seconds_ += steady_seconds() - started;
  moment_.reset();
}

void TrainingHooks::call_exception(const std::string& what) noexcept {
  try {
    exchange_.leave_alone();
    end_handles();
    requests_ = {};
    gradients_ = nullptr;
    tensors_.parameters_written = tensors_.gradients_written = false;
    tensors_.written.clear();
    exception_ = what;
    call(Moment::on_exception);
  } catch (const std::exception& error) {
    setup_.events.emit("note", {{"message", error.what()}});
  }
}

// ---- the end of a call

lua::HookSet::Talk::Failure TrainingHooks::agree(const std::string& hook, const std::string& failure) {
  end_handles();
  Requests requests = std::exchange(requests_, {});
  uint32_t bits = (failure.empty() ? 0 : bit_failed) | (requests.stop ? bit_stop : 0) |
                  (requests.checkpoint ? bit_checkpoint : 0) | (requests.skip ? bit_skip : 0) |
                  (requests.lr ? bit_lr : 0) |
                  (std::exchange(tensors_.parameters_written, false) ? bit_parameters : 0) |
                  (std::exchange(tensors_.gradients_written, false) ? bit_gradients : 0);
  auto written = std::exchange(tensors_.written, {});
  std::sort(written.begin(),
            written.end());  // the order has no effect, and pairs() of Lua has another one on each rank
  std::string names;
  for (const auto& logged : requests.synced) names += logged.metric->first + "\n" + logged.sync + "\n";
  auto rows =
      exchange_.end({static_cast<double>(bits), requests.lr.value_or(0), static_cast<double>(requests.synced.size()),
                     hash_of(names), requests.restored ? static_cast<double>(*requests.restored) + 1 : 0,
                     hash_of(std::exchange(tensors_of_states_, {})), static_cast<double>(written.size()),
                     hash_of(join(written, "\n"))});
  if (any(rows, bit_parameters)) {
    lent_ |= in_validation(moment_);
    setup_.strategy.state_loaded();
  }
  // Changes of parameters during a validation are undone after it.
  bool changed = any(rows, bit_gradients) || (any(rows, bit_parameters) && !in_validation(moment_));
  if (any(rows, bit_failed)) return {first_text(exchange_.texts(failure)), changed};
  if (auto wrong = contradiction(rows); !wrong.empty()) return {wrong, changed};
  grant(hook, std::move(requests), rows);
  return {};
}

std::string TrainingHooks::contradiction(const HookExchange::Rows& rows) const {
  auto said = [&](const std::function<std::string(const std::vector<double>&)>& describe) {
    std::vector<std::string> parts;
    for (size_t rank = 0; rank < rows.size(); ++rank)
      parts.push_back(fmt::format("rank {} {}", rank, describe(rows[rank])));
    return join(parts, ", ");
  };
  auto differs = [&](Word word) {
    return std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return row[word] != rows[0][word]; });
  };
  auto without_lr = [](const auto& row) { return !(bits_of(row) & bit_lr); };
  if (any(rows, bit_lr) && (std::any_of(rows.begin(), rows.end(), without_lr) || differs(word_lr)))
    return "set_lr: every rank must set the same rate: " + said([&](const auto& row) {
             return without_lr(row) ? std::string("sets none") : fmt::format("sets {}", row[word_lr]);
           });
  if (differs(word_logged))
    return "log with a sync: every rank must log the same names, in the same order: " +
           said([](const auto& row) { return fmt::format("logs {}", row[word_logged]); });
  if (differs(word_names))
    return "log with a sync: every rank must log the same names with the same sync, in the same order";
  if (differs(word_restored))
    return "restore: every rank must restore the same snapshot: " + said([](const auto& row) {
             return row[word_restored] == 0 ? std::string("restores none")
                                            : fmt::format("restores that of step {}", row[word_restored] - 1);
           });
  if (differs(word_changes) || differs(word_changed))
    return "every rank must change the same parameters and gradients: " +
           said([](const auto& row) { return "makes " + counted(static_cast<int64_t>(row[word_changes]), "change"); });
  if (differs(word_tensors)) return "the tensors in its state, or their names, differ between ranks";
  return "";
}

void TrainingHooks::grant(const std::string& hook, Requests requests, const HookExchange::Rows& rows) {
  if (any(rows, bit_stop)) {
    auto texts = exchange_.texts(requests.stop ? *requests.stop + " " : "");  // not empty, although the reason may be
    if (stop_reason_.empty())                                                 // scripts often decide on rank 0 only
      stop_reason_ = fmt::format("hook {}: {}", hook, trim(texts[0].empty() ? first_text(texts) : texts[0]));
  }
  if (requests.restore) {
    requests.restore();
    setup_.strategy.state_loaded();
  }
  checkpoint_ |= any(rows, bit_checkpoint);
  skip_ |= any(rows, bit_skip);
  if (requests.lr) progress_.lr_factor = *requests.lr / setup_.recipe.optimizer.lr;
  if (!requests.synced.empty()) {
    std::vector<double> mine;
    for (const auto& logged : requests.synced) mine.push_back(logged.value);
    auto all = exchange_.alone() ? HookExchange::Rows{mine} : exchange_.meet("log", mine);
    for (size_t i = 0; i < mine.size(); ++i) {
      const auto& logged = requests.synced[i];
      requests.logged.push_back({logged.metric, reduced(column_of(all, i), logged.sync)});
    }
  }
  publish(hook, std::move(requests.logged));
}

void TrainingHooks::publish(const std::string& hook, std::vector<Requests::Logged> all) {
  if (all.empty()) return;
  for (const auto& logged : all) logged.metric->second.value = logged.value;
  if (rank() != 0) return;
  for (const auto& logged : all)
    if (!std::isfinite(logged.value) && !std::exchange(logged.metric->second.odd, true))
      setup_.events.emit("note",
                         {{"message", lua::nonfinite_note(hook, logged.metric->first, logged.value, progress_.step)}});
  // The event shares ownership of `metrics`, because it uses the names in it.
  const bool at_end = moment_ == Moment::on_train_end || moment_ == Moment::teardown;
  setup_.events.emit_soon("metrics", [metrics = metrics_, step = progress_.step, at_end, all = std::move(all)] {
    json values = json::object();
    for (const auto& logged : all) values[logged.metric->first] = logged.value;
    json event = {{"step", step}, {"values", std::move(values)}};
    if (at_end) event["at_end"] = true;
    return event;
  });
}

// ---- parameters that hooks change for a validation

void TrainingHooks::keep_for_training(const StateTensor& place) {
  if (!in_validation(moment_)) return;
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
      hooks.in_loss_ = true;
      hooks.exchange_.close("not in `loss`, because the number of its calls differs between ranks");
    }
    ~Inside() {
      hooks.in_loss_ = false;
      hooks.exchange_.close({});
    }
  } inside(*this);
  auto losses = hooks_.loss(Value(context_), make_matrix(logits), make_matrix(targets.unsqueeze(1)));
  auto made = tensor_of(*losses).squeeze(1);
  if (logits.requires_grad() && !made.requires_grad())
    throw Error(ExitCode::run_failed, "a hook's `loss` does not depend on its logits, so nothing would be learnt");
  return made;
}

void TrainingHooks::end_handles() {
  for (auto& weak : handles_)
    if (auto object = weak.lock()) object->invalidate("it is valid only in the call that got it; keep a clone()");
  handles_.clear();
  parameter_pieces_.reset();
  gradient_pieces_.reset();
}

// ---- lua::HookWorld

double TrainingHooks::all_reduce(double value, const std::string& operation) {
  return reduced(column_of(exchange_.meet("all_reduce (" + operation + ")", {value}), 0), operation);
}

std::vector<double> TrainingHooks::all_gather(double value) {
  return column_of(exchange_.meet("all_gather", {value}), 0);
}

double TrainingHooks::broadcast(double value, int root) {
  return exchange_.meet(fmt::format("broadcast from rank {}", root), {value}).at(static_cast<size_t>(root)).at(0);
}

// ---- StepObserver

void TrainingHooks::before_backward() { call(Moment::on_before_backward); }
void TrainingHooks::after_backward() { call(Moment::on_after_backward); }

StepObserver::Decision TrainingHooks::before_optimizer_step(const Gradients& gradients, double scale, double) {
  gradients_ = &gradients;
  gradient_scale_ = scale;
  call(Moment::on_before_optimizer_step);
  gradients_ = nullptr;
  return {std::exchange(skip_, false), progress_.lr_factor};
}

}  // namespace runner
