#include "runner/train/hooks/training_hooks.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/config/config.hpp"

namespace runner {

using lua::ScriptMistake;
using lua::Value;
using nlohmann::json;

namespace {

/// What the trainer itself records; a hook's value under such a name could not be told from it.
const std::vector<std::string> own_metrics = {
    "loss", "lr", "grad_norm", "tokens_per_s", "step_seconds", "memory_bytes", "epoch", "data_wait_share", "val_loss"};

double reduced(const std::vector<double>& values, const std::string& operation) {
  if (operation == "min") return *std::min_element(values.begin(), values.end());
  if (operation == "max") return *std::max_element(values.begin(), values.end());
  double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return operation == "mean" ? sum / static_cast<double>(values.size()) : sum;
}

std::vector<double> column(const HookExchange::Rows& rows, size_t index) {
  std::vector<double> values;
  for (const auto& row : rows) values.push_back(row.at(index));
  return values;
}

/// "rank 1: TEXT" of the first rank that has one; without the rank where all have it.
std::string first_text(const std::vector<std::string>& texts) {
  bool all = std::all_of(texts.begin(), texts.end(), [&](const auto& text) { return text == texts[0]; });
  if (all) return texts[0];
  for (size_t rank = 0; rank < texts.size(); ++rank)
    if (!texts[rank].empty()) return fmt::format("rank {}: {}", rank, texts[rank]);
  return "";
}

// ---- the words that a call's end exchanges: bits, the rate, what was logged with a sync
constexpr uint32_t bit_failed = 1, bit_stop = 2, bit_checkpoint = 4, bit_skip = 8, bit_lr = 16, bit_parameters = 32;
enum Word : size_t { word_bits, word_lr, word_logged, word_names };

uint32_t bits_of(const std::vector<double>& row) { return static_cast<uint32_t>(row.at(word_bits)); }

bool inside_step(lua::Moment moment) {
  return moment == lua::Moment::on_before_backward || moment == lua::Moment::on_after_backward ||
         moment == lua::Moment::on_before_optimizer_step;
}

bool any(const HookExchange::Rows& rows, uint32_t bit) {
  return std::any_of(rows.begin(), rows.end(), [&](const auto& row) { return (bits_of(row) & bit) != 0; });
}

}  // namespace

std::unique_ptr<TrainingHooks> make_training_hooks(const TrainingHooksSetup& setup) {
  return lua::hook_sources(setup.recipe).empty() ? nullptr : std::make_unique<TrainingHooks>(setup);
}

TrainingHooks::TrainingHooks(TrainingHooksSetup setup)
    : setup_(std::move(setup)),
      exchange_(setup_.world),
      tensors_{exchange_},
      hooks_(make_hooks()),
      context_(lua::make_context(*this)) {
  setup_.strategy.observe(this);
}

TrainingHooks::~TrainingHooks() {
  setup_.strategy.observe(nullptr);
  end_handles();
  context_->invalidate("the training is over");
}

lua::HookSet TrainingHooks::make_hooks() {
  lua::HookSet::Talk talk;
  talk.print = [](std::string_view line) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
  };
  talk.report = [this](const std::string& text) {
    if (rank() == 0 || exchange_.alone()) setup_.events.emit("note", {{"message", text}});
  };
  talk.agree = [this](const std::string& hook, const std::string& failure) { return agree(hook, failure); };
  return lua::HookSet(setup_.recipe, talk);
}

void TrainingHooks::call(Moment moment) {
  if (!hooks_.wants(moment)) return;
  torch::NoGradGuard no_grad;
  moment_ = moment;
  tensors_.parameters_writable = !inside_step(moment);
  hooks_.call(moment, Value(context_));
  moment_.reset();
}

void TrainingHooks::call_exception(const std::string& what) noexcept {
  try {
    exchange_.leave_alone();
    end_handles();
    wishes_ = {};
    gradients_ = nullptr;
    tensors_.parameters_written = false;
    exception_ = what;
    call(Moment::on_exception);
  } catch (const std::exception& error) {
    setup_.events.emit("note", {{"message", error.what()}});
  }
}

json TrainingHooks::save() {
  torch::NoGradGuard no_grad;
  moment_ = Moment::on_save_checkpoint;
  tensors_.parameters_writable = false;
  auto saved = hooks_.save(Value(context_));
  moment_.reset();
  return saved;
}

void TrainingHooks::load(const json& saved) {
  torch::NoGradGuard no_grad;
  moment_ = Moment::on_load_checkpoint;
  tensors_.parameters_writable = true;
  hooks_.load(saved, Value(context_));
  moment_.reset();
}

// ---- the end of a call

std::string TrainingHooks::agree(const std::string& hook, const std::string& failure) {
  end_handles();
  Wishes wishes = std::exchange(wishes_, {});
  uint32_t bits = (failure.empty() ? 0 : bit_failed) | (wishes.stop ? bit_stop : 0) |
                  (wishes.checkpoint ? bit_checkpoint : 0) | (wishes.skip ? bit_skip : 0) | (wishes.lr ? bit_lr : 0) |
                  (std::exchange(tensors_.parameters_written, false) ? bit_parameters : 0);
  std::string names;
  for (const auto& logged : wishes.synced) names += logged.name + "\n" + logged.sync + "\n";
  auto rows =
      exchange_.end({static_cast<double>(bits), wishes.lr.value_or(0), static_cast<double>(wishes.synced.size()),
                     static_cast<double>(std::hash<std::string>()(names) >> 12)});
  if (any(rows, bit_parameters)) setup_.strategy.state_loaded();
  if (any(rows, bit_failed)) return first_text(exchange_.texts(failure));
  if (auto wrong = contradiction(rows); !wrong.empty()) return wrong;
  grant(hook, wishes, rows);
  return "";
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
  if (differs(word_names)) return "log with a sync: ranks log other names, or with another sync, than rank 0";
  return "";
}

void TrainingHooks::grant(const std::string& hook, const Wishes& wishes, const HookExchange::Rows& rows) {
  if (any(rows, bit_stop)) {
    auto texts = exchange_.texts(wishes.stop ? *wishes.stop + " " : "");  // never empty where somebody asks
    if (stop_reason_.empty()) stop_reason_ = fmt::format("hook {}: {}", hook, trim(first_text(texts)));
  }
  checkpoint_ |= any(rows, bit_checkpoint);
  skip_ |= any(rows, bit_skip);
  if (wishes.lr) lr_factor_ = *wishes.lr / setup_.recipe.optimizer.lr;
  Wishes published;
  published.logged = wishes.logged;
  if (!wishes.synced.empty()) {
    std::vector<double> mine;
    for (const auto& logged : wishes.synced) mine.push_back(logged.value);
    auto all = exchange_.alone() ? HookExchange::Rows{mine} : exchange_.meet("log", mine);
    for (size_t i = 0; i < mine.size(); ++i) {
      const auto& logged = wishes.synced[i];
      published.logged.push_back({logged.name, logged.sync, reduced(column(all, i), logged.sync)});
    }
  }
  publish(published);
}

void TrainingHooks::publish(const Wishes& wishes) {
  if (wishes.logged.empty()) return;
  json values = json::object();
  for (const auto& logged : wishes.logged) metrics_[logged.name] = values[logged.name] = logged.value;
  if (rank() == 0) setup_.events.emit("metrics", {{"step", step_}, {"values", values}});
}

void TrainingHooks::end_handles() {
  for (auto& weak : handles_)
    if (auto object = weak.lock()) object->invalidate("it ended with the call of the hook that got it; keep a clone()");
  handles_.clear();
  parameter_pieces_.reset();
  gradient_pieces_.reset();
}

// ---- lua::Training

void TrainingHooks::require_moment(const char* what, bool allowed, const char* when) const {
  if (!allowed)
    throw ScriptMistake(
        fmt::format("{}: not in {}: {}", what, lua::moment_names()[static_cast<size_t>(*moment_)], when));
}

double TrainingHooks::loss() { return metrics_.value("loss", std::nan("")); }
double TrainingHooks::lr() { return setup_.recipe.optimizer.lr * lr_factor_; }

lua::Reference TrainingHooks::recipe() {
  if (!recipe_) recipe_ = hooks_.state().read_only(recipe_to_json(setup_.recipe));
  return *recipe_;
}

void TrainingHooks::log(const std::string& name, double value, const std::string& sync) {
  if (name.empty()) throw ScriptMistake("log: the name is empty");
  if (std::find(own_metrics.begin(), own_metrics.end(), name) != own_metrics.end())
    throw ScriptMistake(fmt::format(
        "log: \"{}\" is a metric of the trainer's own; take another name, such as \"hook/{}\"", name, name));
  if (sync == "none") {
    if (rank() == 0) wishes_.logged.push_back({name, sync, value});
  } else {
    wishes_.synced.push_back({name, sync, value});
  }
}

std::string TrainingHooks::artifact(const std::string& name) {
  auto path = setup_.run_dir / "artifacts" / name;
  if (rank() != 0 || fs::exists(path)) return path.string();
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error)
    throw ScriptMistake(fmt::format("artifact: cannot make {}: {}", path.parent_path().string(), error.message()));
  write_file_atomic(path, "");
  setup_.events.emit("artifact", {{"step", step_}, {"path", path.string()}});
  return path.string();
}

namespace {

bool is_over(lua::Moment moment) {
  return moment == lua::Moment::on_train_end || moment == lua::Moment::teardown || moment == lua::Moment::on_exception;
}

/// Moments of a step before its update.
bool before_update(lua::Moment moment) { return moment == lua::Moment::on_train_batch_start || inside_step(moment); }

}  // namespace

void TrainingHooks::stop(const std::string& reason) {
  require_moment("stop", !is_over(*moment_), "the training is over");
  wishes_.stop = reason;
}

void TrainingHooks::checkpoint() {
  require_moment("checkpoint", !is_over(*moment_), "the training is over");
  wishes_.checkpoint = true;
}

void TrainingHooks::set_lr(double lr) {
  require_moment("set_lr", before_update(*moment_),
                 "each step begins with the schedule's rate, so set it from on_train_batch_start to "
                 "on_before_optimizer_step");
  if (!(setup_.recipe.optimizer.lr > 0)) throw ScriptMistake("set_lr: optimizer.lr is 0, and rates are shares of it");
  wishes_.lr = lr;
}

void TrainingHooks::skip_step() {
  require_moment("skip_step", before_update(*moment_),
                 "skip a step from on_train_batch_start to on_before_optimizer_step, before its update");
  wishes_.skip = true;
}

std::vector<std::string> TrainingHooks::parameter_names() {
  std::vector<std::string> names;
  for (const auto* parameter : setup_.model.parameters()) names.push_back(parameter->name);
  return names;
}

const std::vector<int64_t>& TrainingHooks::shape_of(const std::string& parameter) const {
  return setup_.model.parameters().at(setup_.model.slot(parameter))->shape;
}

Value TrainingHooks::handle(HookTensor::Kind kind, const std::string& name, const std::vector<StateTensor>& pieces,
                            double divisor) {
  auto object = make_tensor_handle(tensors_, kind, name, shape_of(name), pieces, divisor);
  handles_.push_back(object);
  return Value(object);
}

Value TrainingHooks::parameter(const std::string& name) {
  if (exchange_.alone()) throw ScriptMistake("parameter: not in on_exception: a step may have ended in the middle");
  if (!parameter_pieces_) parameter_pieces_ = setup_.strategy.parameters();
  return handle(HookTensor::Kind::parameter, name, *parameter_pieces_, 1);
}

Value TrainingHooks::gradient(const std::string& name) {
  require_moment("gradient", gradients_ != nullptr,
                 "gradients are there in on_before_optimizer_step, once they are summed over ranks");
  if (!gradient_pieces_) gradient_pieces_ = (*gradients_)();
  return handle(HookTensor::Kind::gradient, name, *gradient_pieces_, gradient_scale_);
}

// ---- lua::HookWorld

double TrainingHooks::all_reduce(double value, const std::string& operation) {
  return reduced(column(exchange_.meet("all_reduce (" + operation + ")", {value}), 0), operation);
}

std::vector<double> TrainingHooks::all_gather(double value) { return column(exchange_.meet("all_gather", {value}), 0); }

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
  return {std::exchange(skip_, false), lr_factor_};
}

}  // namespace runner
