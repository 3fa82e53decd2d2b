// The functions of `ctx` in the worker: TrainingHooks as implementation of lua::Training.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/config/config.hpp"
#include "runner/lua/known_metrics.hpp"
#include "runner/train/hooks/generate.hpp"
#include "runner/train/hooks/training_hooks.hpp"

namespace runner {

using lua::ScriptMistake;
using lua::Value;
using nlohmann::json;

namespace {

bool at_any(lua::Moment) { return true; }
bool goes_on(lua::Moment moment) {
  return moment != lua::Moment::on_train_end && moment != lua::Moment::teardown && moment != lua::Moment::on_exception;
}
bool outside_steps(lua::Moment moment) { return !inside_step(moment) && moment != lua::Moment::on_exception; }
/// Moments of a step before the optimizer's update.
bool before_update(lua::Moment moment) { return moment == lua::Moment::on_train_batch_start || inside_step(moment); }
bool before_optimizer_step_only(lua::Moment moment) { return moment == lua::Moment::on_before_optimizer_step; }

}  // namespace

void TrainingHooks::require_moment(const char* what, bool (*allowed)(Moment), const char* when) const {
  if (in_loss_) throw ScriptMistake(fmt::format("{}: not in `loss`, which is called for each chunk of tokens", what));
  if (!allowed(*moment_))
    throw ScriptMistake(
        fmt::format("{}: not in {}: {}", what, lua::moment_names()[static_cast<size_t>(*moment_)], when));
}

double TrainingHooks::loss() { return metrics_->at("loss").second.value.value_or(std::nan("")); }
double TrainingHooks::lr() { return setup_.recipe.optimizer.lr * progress_.lr_factor; }

lua::Reference TrainingHooks::recipe() {
  if (!recipe_) recipe_ = hooks_.state().read_only(recipe_to_json(setup_.recipe));
  return *recipe_;
}

void TrainingHooks::log(const std::string& name, double value, const std::string& sync) {
  require_moment("log", at_any, "");
  auto& metric = metrics_->at(name);
  if (!metric.second.allowed) lua::check_metric_name(name);
  metric.second.allowed = true;
  metric.second.rank_0 = sync == "none";
  if (sync == "none") {
    if (rank() == 0) requests_.logged.push_back({&metric, value});
  } else {
    requests_.synced.push_back({{&metric, value}, sync});
  }
}

std::string TrainingHooks::artifact(const std::string& name) {
  require_moment("artifact", at_any, "");
  auto path = artifact_path(name);
  if (rank() != 0 || artifacts_.contains(name)) return path.string();
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  if (error)
    throw ScriptMistake(fmt::format("artifact: cannot make {}: {}", path.parent_path().string(), error.message()));
  // Creates the empty file directly. After a kill, a temporary file could remain.
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) throw ScriptMistake(fmt::format("artifact: cannot make {}: {}", path.string(), std::strerror(errno)));
  ::close(fd);
  artifacts_[name] = 0;
  fault_point("artifact");
  setup_.events.record("artifact", {{"step", progress_.step}, {"path", path.string()}});
  return path.string();
}

void TrainingHooks::append_artifact(const std::string& name, const std::string& text) {
  require_moment("write", at_any, "");
  if (rank() != 0) return;
  auto path = artifact_path(name);
  int fd = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  size_t done = 0;
  while (fd >= 0 && done < text.size()) {
    ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  int error = errno;
  if (fd >= 0) ::close(fd);
  artifacts_[name] += static_cast<int64_t>(done);
  written_.insert(name);
  if (fd < 0 || done < text.size())
    throw ScriptMistake(fmt::format("write: cannot write to {}: {}", path.string(), std::strerror(error)));
}

void TrainingHooks::stop(const std::string& reason) {
  require_moment("stop", goes_on, "the training is over");
  requests_.stop = reason;
}

void TrainingHooks::checkpoint() {
  require_moment("checkpoint", goes_on, "the training is over");
  requests_.checkpoint = true;
}

void TrainingHooks::set_lr(double lr) {
  require_moment("set_lr", before_update,
                 "each step begins with the schedule's rate, so set it from on_train_batch_start to "
                 "on_before_optimizer_step");
  if (!(setup_.recipe.optimizer.lr > 0)) throw ScriptMistake("set_lr: optimizer.lr is 0, and a rate is a factor of it");
  requests_.lr = lr;
}

void TrainingHooks::skip_step() {
  require_moment("skip_step", before_update,
                 "skip a step from on_train_batch_start to on_before_optimizer_step, before its update");
  requests_.skip = true;
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
  require_moment("parameter", at_any, "");
  if (exchange_.alone()) throw ScriptMistake("parameter: not in on_exception: a step may be incomplete");
  if (!parameter_pieces_) parameter_pieces_ = setup_.strategy.parameters();
  return handle(HookTensor::Kind::parameter, name, *parameter_pieces_, 1);
}

Value TrainingHooks::gradient(const std::string& name) {
  require_moment("gradient", before_optimizer_step_only,
                 "gradients are available in on_before_optimizer_step, after their sum over ranks");
  if (!gradient_pieces_) gradient_pieces_ = (*gradients_)();
  return handle(HookTensor::Kind::gradient, name, *gradient_pieces_, gradient_scale_);
}

// ---- slower functions

std::shared_ptr<lua::Snapshot> TrainingHooks::snapshot() { return take_snapshot(snapshots_); }

const Tokenizer& TrainingHooks::tokenizer() {
  if (!tokenizer_) {
    if (setup_.recipe.data.format == "bin") throw ScriptMistake(lua::no_tokenizer);
    tokenizer_ = make_tokenizer(setup_.recipe.data, setup_.cache_dir);
  }
  return *tokenizer_;
}

std::vector<int64_t> TrainingHooks::prompt_of(const lua::Generation& wanted, int64_t vocab) {
  auto tokens = wanted.tokens;
  if (wanted.text)
    for (int32_t token : tokenizer().encode(*wanted.text)) tokens.push_back(token);
  if (tokens.empty()) throw ScriptMistake("generate: the prompt has no tokens");
  for (int64_t token : tokens)
    if (token < 0 || token >= vocab)
      throw ScriptMistake(fmt::format("generate: the prompt has token {}, and the vocabulary has {}", token, vocab));
  return tokens;
}

json TrainingHooks::generate(const lua::Generation& wanted) {
  require_moment("generate", outside_steps,
                 "a step is in progress; generate between steps, such as in on_validation_end");
  json request = {{"prompt", wanted.text ? json(*wanted.text) : json(wanted.tokens)},
                  {"max_new_tokens", wanted.max_new_tokens},
                  {"temperature", wanted.temperature},
                  {"top_k", wanted.top_k},
                  {"seed", wanted.seed.value_or(setup_.recipe.run.seed)}};
  exchange_.meet("generate of " + request.dump(-1, ' ', false, json::error_handler_t::replace));
  GenerationLimits limits{setup_.model.seq_len, setup_.model.vocab_size, setup_.world.device};
  auto tokens = prompt_of(wanted, limits.vocab);
  if (wanted.text) limits.vocab = std::min(limits.vocab, tokenizer().vocab_size());
  auto rank_0s = [&](int64_t token) {
    return static_cast<int64_t>(exchange_.meet("a token of generate", {static_cast<double>(token)})[0][0]);
  };
  tokens = runner::generate(setup_.strategy, tokens, wanted, request["seed"].get<uint64_t>(), limits, rank_0s);
  json made = tokens;
  if (wanted.text) made = tokenizer().decode(std::vector<int32_t>(tokens.begin(), tokens.end()));
  if (rank() == 0) setup_.events.record("sample", {{"step", progress_.step}, {wanted.text ? "text" : "tokens", made}});
  return made;
}

}  // namespace runner
