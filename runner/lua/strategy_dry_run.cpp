#include "runner/lua/strategy_dry_run.hpp"

#include <map>

#include "runner/lua/error.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

/// What is behind every object.
struct Nothing {};

std::shared_ptr<Object> object_of(const Class& kind) { return Object::make(kind, Nothing{}); }

using Kind = const Class& (*)();

/// Adds a property, or a method, whose value is an object of another class.
void add_property(Class& made, const std::string& name, Kind kind) {
  made.property(name, [kind](Object&) { return Value(object_of(kind())); });
}
void add_method(Class& made, const std::string& name, Kind kind) {
  made.method(name, [kind](const Arguments&) { return Value(object_of(kind())); });
}
/// The same for constants.
void add_constant(Class& made, const std::string& name, const json& value) {
  made.property(name, [value](Object&) { return Value(value); });
}
void add_answer(Class& made, const std::string& name, const json& value) {
  made.method(name, [value](const Arguments&) { return Value(value); });
}

const std::vector<std::string>& tensor_methods() {
  static const std::vector<std::string> names = {
      "norm",  "min",    "is_finite", "histogram",   "sum",    "mean",   "max",       "logsumexp",
      "pow",   "clone",  "exp",       "log",         "abs",    "sqrt",   "tanh",      "sigmoid",
      "to",    "gather", "softmax",   "log_softmax", "detach", "narrow", "largest",   "take",
      "zero_", "scale_", "copy_",     "add_",        "lerp_",  "put_",   "index_add_"};
  return names;
}

const Class& tensor_stand_in() {
  static const Class kind = [] {
    Class made("tensor");
    for (const char* name : {"numel", "rows", "columns"}) add_constant(made, name, 1);
    add_constant(made, "shape", json::array({1}));
    const json histogram = {{"min", 1}, {"max", 1}, {"counts", json::array({1})}};
    for (const auto& name : tensor_methods()) add_method(made, name, tensor_stand_in);
    for (const char* name : {"norm", "min"}) add_answer(made, name, 1);
    // With a dimension the result is a tensor.
    for (const char* name : {"sum", "mean", "max"})
      made.method(name, [](const Arguments& arguments) {
        return arguments.count() > 0 ? Value(object_of(tensor_stand_in())) : Value(json(1));
      });
    add_answer(made, "is_finite", true);
    add_answer(made, "histogram", histogram);
    for (const char* name : {"__add", "__sub", "__mul", "__div", "__pow", "__unm"})
      made.operation(name, [](const Arguments&) { return Value(object_of(tensor_stand_in())); });
    return made;
  }();
  return kind;
}

const Class& work_stand_in() {
  static const Class kind = [] {
    Class made("work");
    add_answer(made, "wait", nullptr);
    return made;
  }();
  return kind;
}

void add_collectives(Class& made) {
  add_constant(made, "rank", 0);
  add_constant(made, "size", 2);
  for (const auto& [name, operation] : std::map<std::string, int>{
           {"all_reduce", 2}, {"all_gather", 0}, {"reduce_scatter", 3}, {"broadcast", 0}, {"shift", 0}}) {
    const auto check = [operation](const Arguments& arguments) {
      if (operation > 0) reduction_at(arguments, operation);
    };
    made.method(name, [check](const Arguments& arguments) {
      check(arguments);
      return arguments.value(1);
    });
    made.method(name + "_async", [check](const Arguments& arguments) {
      check(arguments);
      return Value(object_of(work_stand_in()));
    });
  }
  add_answer(made, "barrier", nullptr);
}

const Class& group_stand_in() {
  static const Class kind = [] {
    Class made("group");
    add_collectives(made);
    add_constant(made, "name", "node");
    add_constant(made, "ranks", json::array({0, 1}));
    return made;
  }();
  return kind;
}

const Class& world_stand_in() {
  static const Class kind = [] {
    Class made("world");
    add_collectives(made);
    add_method(made, "group", group_stand_in);
    return made;
  }();
  return kind;
}

const Class& model_stand_in() {
  static const Class kind = [] {
    Class made("model");
    add_method(made, "parameter", tensor_stand_in);
    add_answer(made, "parameter_names", json::array({"embedding.tokens.weight", "head.weight"}));
    return made;
  }();
  return kind;
}

const Class& bucket_stand_in() {
  static const Class kind = [] {
    Class made("bucket");
    for (const char* name : {"gradients", "parameters", "shard"}) add_property(made, name, tensor_stand_in);
    add_constant(made, "index", 1);
    add_constant(made, "numel", 32);
    add_constant(made, "sharded", false);
    return made;
  }();
  return kind;
}

/// The state of one dry run.
struct DryContext {
  State* state;
  int64_t step = 0;
  bool failed = false;  ///< after an error, what the file has computed is not what a training would have
};

const Class& context_stand_in() {
  static const Class kind = [] {
    Class made("context");
    made.property("step", [](Object& object) { return Value(json(object.as<DryContext*>()->step)); });
    add_constant(made, "loss_scale", 1);
    add_property(made, "world", world_stand_in);
    add_property(made, "model", model_stand_in);
    made.property("buckets", [](Object& object) {
      auto& state = *object.as<DryContext*>()->state;
      return state.call(state.load_text("return function(...) return {...} end", "buckets").reference,
                        {Value(object_of(bucket_stand_in()))});
    });
    add_method(made, "kept", tensor_stand_in);
    add_method(made, "zeros", tensor_stand_in);
    return made;
  }();
  return kind;
}

constexpr const char* no_reduction = " must be \"sum\", \"mean\", \"product\", \"min\" or \"max\", not ";

/// Whether the error does not depend on the values of the stand-ins.
bool is_certain(const std::string& message) {
  const bool no_name = message.starts_with("a ") && message.find(" has no `") != std::string::npos;
  const bool no_operation = message.find(no_reduction) != std::string::npos;
  return no_name || no_operation ||
         (message.starts_with("attempt to ") && message.find("(global '") != std::string::npos);
}

}  // namespace

std::string reduction_at(const Arguments& arguments, int index) {
  auto name = arguments.text(index, "sum");
  for (const char* known : {"sum", "mean", "product", "min", "max"})
    if (name == known) return name;
  throw ScriptMistake(fmt::format("{}: argument {}{}\"{}\"", arguments.function_name(), index, no_reduction, name));
}

std::vector<const Class*> dry_run_classes() {
  return {&context_stand_in(), &bucket_stand_in(), &model_stand_in(), &world_stand_in(),
          &group_stand_in(),   &work_stand_in(),   &tensor_stand_in()};
}

std::map<std::string, std::vector<const Class*>> strategy_arguments() {
  const Class *context = &context_stand_in(), *bucket = &bucket_stand_in(), *model = &model_stand_in();
  return {{"setup", {context}},
          {"setup_module", {model, context}},
          {"reduce", {bucket, context}},
          {"after_update", {context}}};
}

void check_strategy_calls(State& state, const StrategyFile& file, const json& options,
                          std::vector<Diagnostic>& diagnostics) {
  state.note_lines(false);
  DryContext dry{.state = &state};
  auto context = Object::make(context_stand_in(), &dry);
  const Value kept(state.table(json::object())), chosen(state.read_only(options));
  const auto call = [&](const std::string& name, const Reference& function, std::vector<Value> arguments) {
    try {
      return state.call(function, arguments);
    } catch (const LuaError& error) {
      dry.failed = true;
      if (!is_certain(error.message())) return Value();
      report_strategy_mistake(file, fmt::format("`{}`: {}", name, error.message()), diagnostics);
      diagnostics.back().place.line = error.line();
      diagnostics.back().place.column = error.line() > 0 ? 1 : 0;
      if (!error.file().empty()) diagnostics.back().place.file = error.file();
      return Value();
    }
  };
  const auto call_if = [&](const std::string& name, std::vector<Value> arguments) {
    const auto found = file.functions.find(name);
    if (found == file.functions.end() || dry.failed) return Value();
    for (const auto& value : {Value(context), kept, chosen}) arguments.push_back(value);
    return call(name, found->second, std::move(arguments));
  };
  call_if("setup", {});
  call_if("setup_module", {Value(object_of(model_stand_in()))});
  for (int step = 0; step < 10 && !dry.failed; ++step) {
    const auto pending = call_if("reduce", {Value(object_of(bucket_stand_in()))});
    if (pending.reference.is_function()) call("reduce", pending.reference, {});
    ++dry.step;
    call_if("after_update", {});
  }
  context->invalidate("the dry run is over");
}

}  // namespace runner::lua
