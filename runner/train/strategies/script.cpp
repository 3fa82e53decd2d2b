#include "runner/train/strategies/script.hpp"

#include <algorithm>
#include <cstdio>

#include "runner/base/text.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/selection/comm_hook_options.hpp"
#include "runner/selection/script_strategy.hpp"
#include "runner/train/torch_mistake.hpp"

namespace runner {

using lua::Arguments, lua::Class, lua::Object, lua::ScriptMistake, lua::Value;
using nlohmann::json;

namespace {

// ---- buckets

struct BucketHandle {
  StrategyScript* script;
  size_t index;
  const Reducer::Bucket& tensors() const { return script->buckets()[index]; }
};

const Class& bucket_class() {
  static const Class kind = [] {
    Class made("bucket");
    auto tensor = [&](const char* name, torch::Tensor Reducer::Bucket::*member, ScriptTensor::Kind kind) {
      made.property(name, [=](Object& object) {
        const auto& handle = object.as<BucketHandle>();
        const auto& values = handle.tensors().*member;
        return values.defined() ? tensor_handle(handle.script->shared().tensors, values, kind) : Value();
      });
    };
    made.property(
        "index", [](Object& object) { return Value(json(static_cast<int64_t>(object.as<BucketHandle>().index) + 1)); });
    made.property("numel", [](Object& object) {
      const auto& tensors = object.as<BucketHandle>().tensors();
      int64_t numel = 0;
      for (const auto& values : {tensors.gradients, tensors.parameters})
        if (values.defined()) numel = values.numel();
      if (numel == 0)
        for (const auto& item : tensors.items) numel = item.offset + item.numel();
      return Value(json(numel));
    });
    made.property("sharded",
                  [](Object& object) { return Value(json(object.as<BucketHandle>().tensors().shard.defined())); });
    tensor("gradients", &Reducer::Bucket::gradients, ScriptTensor::Kind::own);
    tensor("parameters", &Reducer::Bucket::parameters, ScriptTensor::Kind::parameter);
    tensor("shard", &Reducer::Bucket::shard, ScriptTensor::Kind::own);
    return made;
  }();
  return kind;
}

// ---- model

struct ModelHandle {
  StrategyScript* script;
};

const Class& model_class() {
  static const Class kind = [] {
    Class made("model");
    made.method("parameter_names", 0, [](const Arguments& arguments) {
      return Value(json(arguments.as<ModelHandle>(0, model_class()).script->parameter_names()));
    });
    made.method("parameter", 1, [](const Arguments& arguments) {
      return arguments.as<ModelHandle>(0, model_class()).script->parameter(arguments.text(1));
    });
    return made;
  }();
  return kind;
}

// ---- ctx

struct ContextHandle {
  StrategyScript* script;
};

const Class& context_class();

StrategyScript& script_of(const Arguments& arguments) {
  return *arguments.as<ContextHandle>(0, context_class()).script;
}

const Class& context_class() {
  static const Class kind = [] {
    Class made("context");
    auto property = [&](const char* name, Value (*read)(StrategyScript&)) {
      made.property(name, [read](Object& object) { return read(*object.as<ContextHandle>().script); });
    };
    property("step", [](StrategyScript& script) { return Value(json(script.steps())); });
    property("loss_scale", [](StrategyScript& script) { return Value(json(script.loss_scale())); });
    property("model", [](StrategyScript& script) { return script.model(); });
    property("world", [](StrategyScript& script) { return script.world(); });
    property("buckets", [](StrategyScript& script) { return script.bucket_list(); });
    made.method("kept", 2, [](const Arguments& arguments) {
      std::optional<int64_t> numel;
      if (arguments.has(2)) numel = arguments.integer(2);
      return script_of(arguments).kept(arguments.text(1), numel);
    });
    made.method("zeros", 2, [](const Arguments& arguments) {
      auto& script = script_of(arguments);
      int64_t numel = arguments.integer(1);
      if (numel < 0) throw ScriptMistake(fmt::format("zeros: cannot make {} elements", numel));
      auto options = script.options();
      if (arguments.has(2)) options = options.dtype(script_dtype(arguments, 2));
      return made_tensor(script.shared().tensors, torch::zeros({numel}, options));
    });
    return made;
  }();
  return kind;
}

const char* const make_list = "return function(...) return {...} end";

}  // namespace

std::vector<const Class*> strategy_classes() {
  return {&context_class(),      &bucket_class(),      &model_class(), &script_world_class(),
          &script_group_class(), &script_work_class(), &tensor_class()};
}

StrategyScript::StrategyScript(Kind kind, const Recipe& recipe, World& world, json options)
    : exchange_(world),
      shared_{
          world,
          {.exchange = &exchange_, .parameters_change_in = "setup, setup_module or after_update", .collects = &state_}},
      kind_(kind),
      noun_(kind == Kind::strategy ? "strategy" : "comm hook"),
      state_([&] {
        auto chosen = lua::script_state_options(recipe);
        chosen.print = [](std::string_view line) {
          std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
        };
        chosen.mistake_of = torch_mistake;
        return chosen;
      }()),
      draws_(recipe.run.seed),
      option_values_(std::move(options)) {
  std::vector<Diagnostic> diagnostics;
  if (kind == Kind::strategy) {
    name_ = recipe.strategy.name;
    if (auto file = lua::load_strategy_file(state_, lua::strategy_request(recipe, built_in_strategies()), diagnostics))
      file_ = std::move(*file);
  } else {
    name_ = recipe.strategy.options.at("ddp_comm_hook");
    if (auto file = lua::load_comm_hook_file(state_, name_, recipe.origin("strategy.ddp_comm_hook"), diagnostics))
      static_cast<lua::ScriptFile&>(file_) = std::move(*file);
  }
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  options_ = state_.read_only(option_values_);
  own_state_ = state_.table(json::object());
  world_ = script_world(shared_);
  context_ = Value(Object::make(context_class(), ContextHandle{this}));
  model_ = Value(Object::make(model_class(), ModelHandle{this}));
}

void StrategyScript::prepare(std::vector<Bucket> buckets, const torch::TensorOptions& kept, Host host) {
  buckets_ = std::move(buckets);
  if (kind_ == Kind::comm_hook)
    for (auto& bucket : buckets_) bucket.parameters.reset();  // a comm hook only reduces gradients
  pending_.resize(buckets_.size());
  kept_options_ = kept;
  host_ = std::move(host);
  shared_.local_size = host_.local_size;
  for (size_t i = 0; i < buckets_.size(); ++i)
    bucket_handles_.push_back(Value(Object::make(bucket_class(), BucketHandle{this, i})));
  Value list = state_.load_text(make_list, "buckets");
  bucket_list_ = state_.call(list.reference, bucket_handles_).reference;
  in_setup_ = shared_.may_make_groups = true;
  if (has("setup")) call_between_steps("setup", {});
  if (has("setup_module")) call_between_steps("setup_module", {model_});
  in_setup_ = shared_.may_make_groups = false;
}

void StrategyScript::begin(size_t bucket) {
  if (!has("reduce")) return;
  Value returned = call("reduce", {bucket_handles_[bucket]});
  const bool work = returned.object && &returned.object->kind() == &script_work_class();
  if (!returned.is_nil() && !work && !returned.reference.is_function())
    throw Error(ExitCode::run_failed, fmt::format("{} {}: `reduce` must return a work, a function or nothing, not {}",
                                                  noun_, name_, lua::kind_of(returned)));
  pending_[bucket] = returned;
}

void StrategyScript::finish(size_t bucket) {
  Value pending = std::exchange(pending_[bucket], Value());
  if (pending.reference.is_function()) call_function("reduce", pending.reference, {});
  if (pending.object) pending.object->as<ScriptWork>().wait();
  if (bucket + 1 == buckets_.size()) wait_for_works();
}

void StrategyScript::after_update() {
  if (has("after_update")) call_between_steps("after_update", {});
}

void StrategyScript::call_between_steps(const std::string& function, std::vector<Value> arguments) {
  between_steps_ = shared_.tensors.parameters_writable = true;
  call(function, std::move(arguments));
  wait_for_works();
  between_steps_ = shared_.tensors.parameters_writable = false;
  for (const auto& handle : std::exchange(parameter_handles_, {}))
    handle->invalidate(fmt::format("a tensor of model:parameter() is valid during one call of `{}`", function));
  stored_.reset();
  const bool written = std::exchange(shared_.tensors.parameters_written, false);
  shared_.tensors.written.clear();
  // Every call ends together on all ranks, so a statistic of a parameter that only some ranks ask for is an error there.
  const auto on_ranks = HookExchange::column(exchange_.end({written ? 1.0 : 0.0}), 0);
  if (std::ranges::any_of(on_ranks, [&](double other) { return other != on_ranks.front(); }))
    throw Error(ExitCode::run_failed,
                lua::failure_text(noun_ + " " + name_, function,
                                  "parameters are changed on some ranks only; all ranks must make the same changes",
                                  file_.asked_at));
  if (written) host_.state_written(host_.steps());
}

std::vector<std::string> StrategyScript::parameter_names() const {
  std::vector<std::string> names;
  for (const auto& [name, shape] : host_.shapes) names.push_back(name);
  return names;
}

Value StrategyScript::parameter(const std::string& name) {
  if (!between_steps_ || !host_.parameters)
    throw ScriptMistake("parameter: not inside of a step: call it in setup, setup_module or after_update");
  const auto found = host_.shapes.find(name);
  if (found == host_.shapes.end()) {
    const auto near = nearest(name, parameter_names());
    throw ScriptMistake(fmt::format("parameter: the model has no parameter \"{}\"{}", name,
                                    near ? "; did you mean \"" + *near + "\"?" : ""));
  }
  if (!stored_) stored_ = host_.parameters();
  auto handle = make_tensor_handle(shared_.tensors, ScriptTensor::Kind::parameter, name, found->second, *stored_);
  parameter_handles_.push_back(handle);
  return Value(handle);
}

void StrategyScript::wait_for_works() {
  for (auto& work : std::exchange(shared_.works, {})) work->as<ScriptWork>().wait();
}

Value StrategyScript::call(const std::string& function, std::vector<Value> arguments) {
  for (const auto& value : {context_, Value(own_state_), Value(options_)}) arguments.push_back(value);
  return call_function(function, file_.functions.at(function), arguments);
}

Value StrategyScript::call_function(const std::string& doing, const lua::Reference& function,
                                    const std::vector<Value>& arguments) {
  torch::NoGradGuard no_grad;
  draws_.seed(state_, name_, doing, host_.steps ? host_.steps() : 0);
  try {
    return state_.call(function, arguments);
  } catch (const lua::LuaError& error) {
    throw Error(ExitCode::run_failed, lua::failure_text(noun_ + " " + name_, doing, error.what(), file_.asked_at));
  }
}

Value StrategyScript::kept(const std::string& name, std::optional<int64_t> numel) {
  auto found = kept_.find(name);
  if (found == kept_.end()) {
    if (!in_setup_ || !numel)
      throw ScriptMistake(
          fmt::format("kept: there is no tensor `{}`; create it in setup: ctx:kept(name, numel)", name));
    if (*numel < 0) throw ScriptMistake(fmt::format("kept: cannot make {} elements", *numel));
    found = kept_.emplace(name, torch::zeros({*numel}, kept_options_)).first;
  }
  if (numel && *numel != found->second.numel())
    throw ScriptMistake(fmt::format("kept: `{}` has {} elements, not {}", name, found->second.numel(), *numel));
  return tensor_handle(shared_.tensors, found->second);
}

std::vector<StateTensor> StrategyScript::state() {
  std::vector<StateTensor> list;
  for (const auto& [name, tensor] : kept_) {
    int64_t numel = tensor.numel();
    list.push_back({.name = (reduces() ? "lua/" : "lua/strategy/") + name,
                    .global_shape = {shared_.world.size, numel},
                    .offset = shared_.world.rank * numel,
                    .local = tensor,
                    .write_end = numel,
                    .optional = true});
  }
  return list;
}

json StrategyScript::scalars() const {
  if (!acts()) return nullptr;
  try {
    return lua::storable(state_.to_json(own_state_, "state", {}, lua::Strings::any));
  } catch (const ScriptMistake& mistake) {
    throw Error(ExitCode::run_failed,
                fmt::format("{} {}: a checkpoint cannot contain its state: {}", noun_, name_, mistake.what()));
  }
}

void StrategyScript::load_scalars(const json& scalars) {
  if (!scalars.is_null()) own_state_ = state_.table(lua::restore_stored(scalars));
}

std::unique_ptr<Strategy> make_script_strategy(const Recipe& recipe, StrategySetup setup) {
  auto script =
      std::make_shared<StrategyScript>(StrategyScript::Kind::strategy, recipe, setup.world, setup.job.options);
  if (script->reduces())
    setup.reducer = std::move(script);
  else if (script->acts())
    setup.extension = std::move(script);
  return make_strategy(recipe.strategy.name, std::move(setup));
}

std::shared_ptr<Reducer> make_script_comm_hook(const Recipe& recipe, World& world) {
  if (!has_script_hook(recipe.strategy.options)) return nullptr;
  std::vector<Diagnostic> diagnostics;
  auto options = comm_hook_options(recipe, diagnostics);
  if (!diagnostics.empty()) throw RecipeError(diagnostics);
  return std::make_shared<StrategyScript>(StrategyScript::Kind::comm_hook, recipe, world, std::move(options));
}

}  // namespace runner
