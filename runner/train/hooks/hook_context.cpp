#include "runner/train/hooks/hook_context.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/fault_point.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/metric_names.hpp"
#include "runner/config/config.hpp"
#include "runner/lua/known_metrics.hpp"
#include "runner/train/hooks/generate.hpp"

namespace runner {

namespace {

class StateSnapshot : public lua::Snapshot, public std::enable_shared_from_this<StateSnapshot> {
 public:
  explicit StateSnapshot(const SnapshotHost& host) : host_(host) { take(); }

  int64_t step() override { return taken_; }

  void take() override {
    host_.require_allowed("snapshot");
    torch::NoGradGuard no_grad;
    auto pieces = host_.strategy.state();
    values_.resize(pieces.size());
    for (size_t i = 0; i < pieces.size(); ++i) {
      auto& kept = values_[i];
      if (kept.defined() && !pieces[i].swapped)
        kept.copy_(pieces[i].local);
      else
        kept = pieces[i].read(0, pieces[i].numel());
    }
    scalars_ = host_.strategy.scalars();
    taken_ = host_.step();
  }

  void restore() override {
    host_.require_allowed("restore");
    host_.restore(taken_, [self = shared_from_this()] { self->apply(); });
  }

 private:
  void apply() {
    torch::NoGradGuard no_grad;
    auto pieces = host_.strategy.state();
    RUNNER_CHECK(pieces.size() == values_.size(), "the training state and its snapshot have different tensors");
    for (size_t i = 0; i < pieces.size(); ++i)
      if (values_[i].numel() > 0) pieces[i].write(0, values_[i]);
    host_.strategy.load_scalars(scalars_);
  }

  const SnapshotHost& host_;
  std::vector<torch::Tensor> values_;  ///< by piece of the state
  nlohmann::json scalars_;
  int64_t taken_ = 0;
};

}  // namespace

std::shared_ptr<lua::Snapshot> take_snapshot(const SnapshotHost& host) { return std::make_shared<StateSnapshot>(host); }

using lua::ScriptMistake;

bool Artifacts::create(const std::string& name) {
  if (rank_ != 0 || bytes_.contains(name)) return false;
  const auto file = path(name);
  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  if (error)
    throw ScriptMistake(fmt::format("artifact: cannot make {}: {}", file.parent_path().string(), error.message()));
  // Creates the empty file directly. After a kill, a temporary file could remain.
  int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) throw ScriptMistake(fmt::format("artifact: cannot make {}: {}", file.string(), std::strerror(errno)));
  ::close(fd);
  bytes_[name] = 0;
  fault_point("artifact");
  return true;
}

void Artifacts::append(const std::string& name, const std::string& text) {
  if (rank_ != 0) return;
  const auto file = path(name);
  int fd = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  size_t done = 0;
  while (fd >= 0 && done < text.size()) {
    ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<size_t>(written);
  }
  int error = errno;
  if (fd >= 0) ::close(fd);
  bytes_[name] += static_cast<int64_t>(done);
  written_.insert(name);
  if (fd < 0 || done < text.size())
    throw ScriptMistake(fmt::format("write: cannot write to {}: {}", file.string(), std::strerror(error)));
}

std::vector<fs::path> Artifacts::take_written() {
  std::vector<fs::path> files;
  for (const auto& name : std::exchange(written_, {})) files.push_back(path(name));
  return files;
}

void Artifacts::restore(const nlohmann::json& sizes) {
  if (rank_ != 0) return;
  std::error_code ignored;
  if (sizes.is_null())
    for (fs::recursive_directory_iterator entry(folder_, ignored), end; entry != end; entry.increment(ignored))
      if (entry->is_regular_file(ignored))
        bytes_[entry->path().lexically_relative(folder_).string()] = static_cast<int64_t>(entry->file_size(ignored));
  for (const auto& [name, bytes] : sizes.items()) {
    auto size = static_cast<uintmax_t>(bytes.get<int64_t>());
    const auto file = path(name);
    if (!fs::is_regular_file(file, ignored)) continue;
    if (fs::file_size(file) > size) fs::resize_file(file, size);
    bytes_[name] = static_cast<int64_t>(fs::file_size(file));
  }
}

using lua::Value;
using nlohmann::json;

namespace {

bool between_steps(lua::Moment moment) {
  using M = lua::Moment;
  return moment == M::on_train_start || moment == M::on_train_epoch_start || moment == M::on_train_batch_start ||
         moment == M::on_train_batch_end || moment == M::on_train_epoch_end;
}
bool at_any(lua::Moment) { return true; }
bool goes_on(lua::Moment moment) {
  return moment != lua::Moment::on_train_end && moment != lua::Moment::teardown && moment != lua::Moment::on_exception;
}
bool outside_steps(lua::Moment moment) { return !inside_step(moment) && moment != lua::Moment::on_exception; }
/// Moments of a step before the optimizer's update.
bool before_update(lua::Moment moment) { return moment == lua::Moment::on_train_batch_start || inside_step(moment); }
bool before_optimizer_step_only(lua::Moment moment) { return moment == lua::Moment::on_before_optimizer_step; }

}  // namespace

bool inside_step(lua::Moment moment) {
  return moment == lua::Moment::on_before_backward || moment == lua::Moment::on_after_backward ||
         moment == lua::Moment::on_before_optimizer_step;
}

HookContext::HookContext(const TrainingHooksSetup& setup, HookCall& call, HookExchange& exchange, TensorHost& tensors,
                         Metrics& metrics, lua::State& state)
    : setup_(setup),
      call_(call),
      exchange_(exchange),
      tensors_(tensors),
      metrics_(metrics),
      state_(state),
      object_(lua::make_context(*this)),
      artifacts_(setup_.run_dir / "artifacts", exchange.rank()),
      snapshots_{setup_.strategy, [this] { return call_.progress.step; },
                 [this](const char* what) {
                   require_moment(what, between_steps, "between steps: in on_train_batch_start or on_train_batch_end");
                 },
                 [this](int64_t taken, std::function<void()> apply) {
                   call_.requests.restored = taken;
                   call_.requests.restore = std::move(apply);
                 }} {}

HookContext::~HookContext() {
  end_handles();
  object_->invalidate("the training is over");
}

void HookContext::end_handles() {
  for (auto& weak : handles_)
    if (auto object = weak.lock()) object->invalidate("it is valid only in the call that got it; keep a clone()");
  handles_.clear();
  parameter_pieces_.reset();
  gradient_pieces_.reset();
}

void HookContext::require_moment(const char* what, bool (*allowed)(Moment), const char* when) const {
  if (call_.in_loss)
    throw ScriptMistake(fmt::format("{}: not in `loss`, which is called for each chunk of tokens", what));
  if (!allowed(*call_.moment))
    throw ScriptMistake(
        fmt::format("{}: not in {}: {}", what, lua::moment_names()[static_cast<size_t>(*call_.moment)], when));
}

double HookContext::loss() { return metrics_.at(metric::loss).second.value.value_or(std::nan("")); }
double HookContext::lr() { return setup_.recipe.optimizer.lr * call_.progress.lr_factor; }

lua::Reference HookContext::recipe() {
  if (!recipe_) recipe_ = state_.read_only(recipe_to_json(setup_.recipe));
  return *recipe_;
}

void HookContext::log(const std::string& name, double value, const std::string& sync) {
  require_moment("log", at_any, "");
  auto& metric = metrics_.at(name);
  if (!metric.second.allowed) lua::check_metric_name(name);
  metric.second.allowed = true;
  metric.second.rank_0 = sync == "none";
  if (sync == "none") {
    if (exchange_.rank() == 0) call_.requests.logged.push_back({&metric, value});
  } else {
    call_.requests.synced.push_back({{&metric, value}, sync});
  }
}

std::string HookContext::artifact(const std::string& name) {
  require_moment("artifact", at_any, "");
  const std::string path = artifacts_.path(name).string();
  if (artifacts_.create(name)) setup_.events.record("artifact", {{"step", call_.progress.step}, {"path", path}});
  return path;
}

void HookContext::append_artifact(const std::string& name, const std::string& text) {
  require_moment("write", at_any, "");
  artifacts_.append(name, text);
}

void HookContext::stop(const std::string& reason) {
  require_moment("stop", goes_on, "the training is over");
  call_.requests.stop = reason;
}

void HookContext::checkpoint() {
  require_moment("checkpoint", goes_on, "the training is over");
  call_.requests.checkpoint = true;
}

void HookContext::set_lr(double lr) {
  require_moment("set_lr", before_update,
                 "each step begins with the schedule's rate, so set it from on_train_batch_start to "
                 "on_before_optimizer_step");
  if (!(setup_.recipe.optimizer.lr > 0)) throw ScriptMistake("set_lr: optimizer.lr is 0, and a rate is a factor of it");
  call_.requests.lr = lr;
}

void HookContext::skip_step() {
  require_moment("skip_step", before_update,
                 "skip a step from on_train_batch_start to on_before_optimizer_step, before its update");
  call_.requests.skip = true;
}

std::vector<std::string> HookContext::parameter_names() {
  std::vector<std::string> names;
  for (const auto* parameter : setup_.model.parameters())
    if (!parameter->of_base) names.push_back(parameter->name);  // the base of adapters is not of this training
  return names;
}

const ParameterSpec& HookContext::spec_of(const std::string& parameter) const {
  return *setup_.model.parameters().at(setup_.model.slot(parameter));
}

Value HookContext::handle(ScriptTensor::Kind kind, const std::string& name, const std::vector<StateTensor>& pieces,
                          double divisor) {
  auto object = make_tensor_handle(tensors_, kind, name, spec_of(name).shape, pieces, divisor);
  handles_.push_back(object);
  return Value(object);
}

Value HookContext::parameter(const std::string& name) {
  require_moment("parameter", at_any, "");
  if (exchange_.alone()) throw ScriptMistake("parameter: not in on_exception: a step may be incomplete");
  if (spec_of(name).quantized)
    throw ScriptMistake("parameter: `" + name + "` is stored in 4 bits (fine_tune.quantization)");
  if (!parameter_pieces_) parameter_pieces_ = setup_.strategy.parameters();
  return handle(ScriptTensor::Kind::parameter, name, *parameter_pieces_, 1);
}

Value HookContext::gradient(const std::string& name) {
  require_moment("gradient", before_optimizer_step_only,
                 "gradients are available in on_before_optimizer_step, after their sum over ranks");
  if (!spec_of(name).trainable) return {};  // nil
  if (!gradient_pieces_) gradient_pieces_ = (*call_.gradients)();
  return handle(ScriptTensor::Kind::gradient, name, *gradient_pieces_, call_.gradient_scale);
}

// ---- slower functions

std::shared_ptr<lua::Snapshot> HookContext::snapshot() { return take_snapshot(snapshots_); }

const Tokenizer& HookContext::tokenizer() {
  if (!tokenizer_) {
    if (setup_.recipe.data.has_token_ids()) throw ScriptMistake(lua::no_tokenizer);
    tokenizer_ = make_tokenizer(setup_.recipe.data, setup_.cache_dir);
  }
  return *tokenizer_;
}

std::vector<int64_t> HookContext::prompt_of(const lua::Generation& wanted, int64_t vocab) {
  auto tokens = wanted.tokens;
  if (wanted.text)
    for (int32_t token : tokenizer().encode(*wanted.text)) tokens.push_back(token);
  if (tokens.empty()) throw ScriptMistake("generate: the prompt has no tokens");
  for (int64_t token : tokens)
    if (token < 0 || token >= vocab)
      throw ScriptMistake(fmt::format("generate: the prompt has token {}, and the vocabulary has {}", token, vocab));
  return tokens;
}

json HookContext::generate(const lua::Generation& wanted) {
  require_moment("generate", outside_steps,
                 "a step is in progress; generate between steps, such as in on_validation_end");
  if (setup_.model.task) throw ScriptMistake("generate: the model predicts labels or numbers, not tokens");
  json request = {{"prompt", wanted.text ? json(*wanted.text) : json(wanted.tokens)},
                  {"max_new_tokens", wanted.max_new_tokens},
                  {"temperature", wanted.temperature},
                  {"top_k", wanted.top_k},
                  {"seed", wanted.seed.value_or(setup_.recipe.run.seed)}};
  exchange_.meet("generate of " + json_text(request));
  GenerationLimits limits{setup_.model.seq_len, setup_.model.vocab_size};
  auto tokens = prompt_of(wanted, limits.vocab);
  if (wanted.text) limits.vocab = std::min(limits.vocab, tokenizer().vocab_size());
  auto rank_0s = [&](int64_t token) {
    return static_cast<int64_t>(exchange_.meet("a token of generate", {static_cast<double>(token)})[0][0]);
  };
  tokens = runner::generate(setup_.strategy, tokens, wanted, request["seed"].get<uint64_t>(), limits, rank_0s);
  json made = tokens;
  if (wanted.text) made = tokenizer().decode(std::vector<int32_t>(tokens.begin(), tokens.end()));
  if (exchange_.rank() == 0)
    setup_.events.record(
        "sample",
        {{"step", call_.progress.step}, {"prompt", request["prompt"]}, {wanted.text ? "text" : "tokens", made}});
  return made;
}

}  // namespace runner
