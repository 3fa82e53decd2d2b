#include "runner/lua/training.hpp"

#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/lua/error.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

/// One of a few words, or the nearest of them.
std::string word(const std::string& value, const std::vector<std::string>& words, const std::string& what) {
  if (std::find(words.begin(), words.end(), value) != words.end()) return value;
  auto near = nearest(value, words);
  throw ScriptMistake(fmt::format("{} cannot be \"{}\"{}", what, value,
                                  near ? "; did you mean \"" + *near + "\"?" : "; it is one of " + join(words, ", ")));
}

const Class& world_class() {
  static const Class kind = [] {
    Class made("world");
    auto world = [](const Arguments& arguments) -> HookWorld& { return *arguments.as<HookWorld*>(0, world_class()); };
    made.property("rank", [](Object& self) { return Value(self.as<HookWorld*>()->rank()); });
    made.property("size", [](Object& self) { return Value(self.as<HookWorld*>()->size()); });
    made.method("all_reduce", [world](const Arguments& arguments) {
      arguments.at_most(2);
      auto operation = word(arguments.text(2, "sum"), {"sum", "mean", "min", "max"}, "all_reduce: the operation");
      return Value(world(arguments).all_reduce(arguments.number(1), operation));
    });
    made.method("all_gather", [world](const Arguments& arguments) {
      arguments.at_most(1);
      return Value(json(world(arguments).all_gather(arguments.number(1))));
    });
    made.method("broadcast", [world](const Arguments& arguments) {
      arguments.at_most(2);
      auto root = arguments.integer(2, 0);
      auto& there = world(arguments);
      if (root < 0 || root >= there.size())
        throw ScriptMistake(fmt::format("broadcast: there is no rank {} of {}", root, there.size()));
      return Value(there.broadcast(arguments.number(1), static_cast<int>(root)));
    });
    made.method("barrier", [world](const Arguments& arguments) {
      arguments.at_most(0);
      world(arguments).barrier();
      return Value();
    });
    return made;
  }();
  return kind;
}

const Class& context_class();

Training& training_of(const Arguments& arguments) { return *arguments.as<Training*>(0, context_class()); }

std::string sync_of(const Arguments& arguments) {
  if (!arguments.has(3)) return "none";
  json options = arguments.table(3);
  for (const auto& [name, value] : options.items())
    if (!options.is_object() || name != "sync" || !value.is_string())
      throw ScriptMistake("log: argument 3 must be a table such as {sync = \"mean\"}");
  return options.empty() ? "none" : word(options["sync"], {"none", "sum", "mean", "min", "max"}, "log: sync");
}

/// A name of a file without folders.
std::string file_name(const Arguments& arguments) {
  auto name = arguments.text(1);
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos)
    throw ScriptMistake(fmt::format("artifact: \"{}\" is no plain file name", name));
  return name;
}

std::string known_parameter(const Arguments& arguments) {
  auto name = arguments.text(1);
  auto names = training_of(arguments).parameter_names();
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  auto near = nearest(name, names);
  throw ScriptMistake(fmt::format("{}: the model has no parameter \"{}\"{}", arguments.function_name(), name,
                                  near ? "; did you mean \"" + *near + "\"?" : ""));
}

void add_properties(Class& made) {
  auto add = [&](const char* name, auto read) {
    made.property(name, [read](Object& self) { return Value(read(*self.as<Training*>())); });
  };
  add("step", [](Training& training) { return json(training.step()); });
  add("epoch", [](Training& training) { return json(training.epoch()); });
  add("loss", [](Training& training) { return json(training.loss()); });
  add("lr", [](Training& training) { return json(training.lr()); });
  add("metrics", [](Training& training) { return training.metrics(); });
  add("recipe", [](Training& training) { return training.recipe(); });
  add("is_global_zero", [](Training& training) { return json(training.world().rank() == 0); });
  add("world", [](Training& training) { return Object::make(world_class(), &training.world()); });
  add("exception", [](Training& training) {
    auto text = training.exception();
    return text.empty() ? json() : json(text);
  });
}

void add_control(Class& made) {
  made.method("log", [](const Arguments& arguments) {
    arguments.at_most(3);
    auto& training = training_of(arguments);
    auto name = arguments.text(1);
    double value = arguments.number(2);
    training.log(name, value, sync_of(arguments));
    return Value();
  });
  made.method("artifact", [](const Arguments& arguments) {
    arguments.at_most(1);
    return Value(training_of(arguments).artifact(file_name(arguments)));
  });
  made.method("stop", [](const Arguments& arguments) {
    arguments.at_most(1);
    training_of(arguments).stop(arguments.text(1));
    return Value();
  });
  made.method("checkpoint", [](const Arguments& arguments) {
    arguments.at_most(0);
    training_of(arguments).checkpoint();
    return Value();
  });
  made.method("set_lr", [](const Arguments& arguments) {
    arguments.at_most(1);
    double lr = arguments.number(1);
    if (!(lr >= 0) || lr > 1e30) throw ScriptMistake(fmt::format("set_lr: {} is no learning rate", lr));
    training_of(arguments).set_lr(lr);
    return Value();
  });
  made.method("skip_step", [](const Arguments& arguments) {
    arguments.at_most(0);
    training_of(arguments).skip_step();
    return Value();
  });
}

void add_parameters(Class& made) {
  made.method("parameter_names", [](const Arguments& arguments) {
    arguments.at_most(0);
    return Value(json(training_of(arguments).parameter_names()));
  });
  made.method("parameter", [](const Arguments& arguments) {
    arguments.at_most(1);
    return training_of(arguments).parameter(known_parameter(arguments));
  });
  made.method("gradient", [](const Arguments& arguments) {
    arguments.at_most(1);
    return training_of(arguments).gradient(known_parameter(arguments));
  });
}

const Class& context_class() {
  static const Class kind = [] {
    Class made("context");
    add_properties(made);
    add_control(made);
    add_parameters(made);
    return made;
  }();
  return kind;
}

}  // namespace

std::shared_ptr<Object> make_context(Training& training) { return Object::make(context_class(), &training); }

}  // namespace runner::lua
