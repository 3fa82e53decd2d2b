#include "runner/lua/training.hpp"

#include <algorithm>

#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"
#include "runner/lua/error.hpp"

namespace runner::lua {

using nlohmann::json;

namespace {

std::string shown_json(const json& value) { return json_text(value); }

/// Returns `value` if it is one of `words`. Throws with the most similar word otherwise.
std::string word(const std::string& value, const std::vector<std::string>& words, const std::string& what) {
  if (std::find(words.begin(), words.end(), value) != words.end()) return value;
  auto near = nearest(value, words);
  throw ScriptMistake(fmt::format("{} cannot be \"{}\"{}", what, value,
                                  near ? "; did you mean \"" + *near + "\"?" : "; it is one of " + join(words, ", ")));
}

}  // namespace

const Class& world_class() {
  static const Class kind = [] {
    Class made("world");
    auto world = [](const Arguments& arguments) -> HookWorld& { return *arguments.as<HookWorld*>(0, world_class()); };
    made.property("rank", [](Object& self) { return Value(self.as<HookWorld*>()->rank()); });
    made.property("size", [](Object& self) { return Value(self.as<HookWorld*>()->size()); });
    made.method("all_reduce", 2, [world](const Arguments& arguments) {
      auto operation = word(arguments.text(2, "sum"), {"sum", "mean", "min", "max"}, "all_reduce: the operation");
      return Value(world(arguments).all_reduce(arguments.number(1), operation));
    });
    made.method("all_gather", 2, [world](const Arguments& arguments) {
      const auto rows = arguments.value(1), sync_grads = arguments.value(2);
      if (!rows.object && arguments.has(2))
        throw ScriptMistake("all_gather: sync_grads is for tensors of `loss`; a number has no second argument");
      if (!rows.object) return Value(json(world(arguments).all_gather(arguments.number(1))));
      if (arguments.has(2) && !sync_grads.plain.is_boolean()) arguments.wrong(2, "a boolean (sync_grads)");
      return world(arguments).all_gather(rows, arguments.has(2) && sync_grads.plain.get<bool>());
    });
    made.method("broadcast", 2, [world](const Arguments& arguments) {
      auto root = arguments.integer(2, 0);
      auto& there = world(arguments);
      if (root < 0 || root >= there.size())
        throw ScriptMistake(fmt::format("broadcast: there is no rank {} of {}", root, there.size()));
      return Value(there.broadcast(arguments.number(1), static_cast<int>(root)));
    });
    made.method("barrier", 0, [world](const Arguments& arguments) { world(arguments).barrier(); });
    return made;
  }();
  return kind;
}

namespace {

const Class& artifact_class();
const Class& snapshot_class();

struct ArtifactFile {
  Training* training;
  std::string name, path;
};

const Class& artifact_class() {
  static const Class kind = [] {
    Class made("artifact");
    made.property("path", [](Object& self) { return Value(json(self.as<ArtifactFile>().path)); });
    made.method("write", [](const Arguments& arguments) {
      auto& file = arguments.as<ArtifactFile>(0, artifact_class());
      std::string text;
      for (int i = 1; i <= arguments.count(); ++i) {
        auto value = arguments.value(i);
        if (value.plain.is_string())
          text += value.plain.get_ref<const std::string&>();
        else if (value.plain.is_number_integer())
          text += std::to_string(value.plain.get<int64_t>());
        else if (value.plain.is_number())
          text += fmt::format("{:.14g}", value.plain.get<double>());
        else
          arguments.wrong(i, "a string or a number");
      }
      file.training->append_artifact(file.name, text);
      return arguments.value(0);
    });
    return made;
  }();
  return kind;
}

const Class& snapshot_class() {
  static const Class kind = [] {
    Class made("snapshot");
    auto self = [](const Arguments& arguments) -> Snapshot& {
      arguments.at_most(0);
      return *arguments.as<std::shared_ptr<Snapshot>>(0, snapshot_class());
    };
    made.property("step", [](Object& object) { return Value(json(object.as<std::shared_ptr<Snapshot>>()->step())); });
    made.method("take", [self](const Arguments& arguments) {
      self(arguments).take();
      return arguments.value(0);
    });
    made.method("restore", [self](const Arguments& arguments) {
      self(arguments).restore();
      return arguments.value(0);
    });
    return made;
  }();
  return kind;
}

Training& training_of(const Arguments& arguments) { return *arguments.as<Training*>(0, hook_context_class()); }

std::string sync_of(const Arguments& arguments) {
  if (!arguments.has(3)) return "none";
  json options = arguments.table(3);
  for (const auto& [name, value] : options.items())
    if (!options.is_object() || name != "sync" || !value.is_string())
      throw ScriptMistake("log: argument 3 must be a table such as {sync = \"mean\"}");
  return options.empty() ? "none" : word(options["sync"], {"none", "sum", "mean", "min", "max"}, "log: sync");
}

/// The first argument as a file name without folders.
std::string file_name(const Arguments& arguments) {
  auto name = arguments.text(1);
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos ||
      name.find('\0') != std::string::npos)
    throw ScriptMistake(fmt::format("artifact: \"{}\" is not a plain file name", escape_invalid_utf8(name)));
  if (first_invalid_utf8(name))
    throw ScriptMistake(fmt::format("artifact: the name \"{}\" is not UTF-8 text", escape_invalid_utf8(name)));
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
  add("max_steps", [](Training& training) {
    auto steps = training.max_steps();
    return steps ? json(*steps) : json();
  });
  add("is_last_step", [](Training& training) { return json(training.is_last_step()); });
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
  made.method("log", 3, [](const Arguments& arguments) {
    auto& training = training_of(arguments);
    auto name = arguments.text(1);
    double value = arguments.number(2);
    training.log(name, value, sync_of(arguments));
  });
  made.method("artifact", 1, [](const Arguments& arguments) {
    auto& training = training_of(arguments);
    auto name = file_name(arguments);
    auto path = training.artifact(name);
    return Value(Object::make(artifact_class(), ArtifactFile{&training, name, path}));
  });
  made.method("stop", 1,
              [](const Arguments& arguments) { training_of(arguments).stop(escape_invalid_utf8(arguments.text(1))); });
  made.method("checkpoint", 0, [](const Arguments& arguments) { training_of(arguments).checkpoint(); });
  made.method("set_lr", 1, [](const Arguments& arguments) {
    double lr = arguments.number(1);
    if (!(lr >= 0) || lr > 1e30) throw ScriptMistake(fmt::format("set_lr: {} is not a learning rate", lr));
    training_of(arguments).set_lr(lr);
  });
  made.method("skip_step", 0, [](const Arguments& arguments) { training_of(arguments).skip_step(); });
}

void add_parameters(Class& made) {
  made.method("parameter_names", 0,
              [](const Arguments& arguments) { return Value(json(training_of(arguments).parameter_names())); });
  made.method("parameter", 1,
              [](const Arguments& arguments) { return training_of(arguments).parameter(known_parameter(arguments)); });
  made.method("gradient", 1,
              [](const Arguments& arguments) { return training_of(arguments).gradient(known_parameter(arguments)); });
}

/// Checks the argument of ctx:generate{...}.
Generation generation_of(const json& wanted) {
  static const std::vector<std::string> fields = {"prompt", "max_new_tokens", "temperature", "top_k", "seed"};
  Generation generation;
  if (!wanted.is_object()) throw ScriptMistake("generate: argument 1 must be a table such as {prompt = \"Once\"}");
  for (const auto& [name, value] : wanted.items()) word(name, fields, "generate: a field");
  auto number = [&](const char* name, auto otherwise, double least, double most) {
    if (!wanted.contains(name)) return otherwise;
    const auto& value = wanted[name];
    constexpr bool whole = std::is_integral_v<decltype(otherwise)>;
    if (!(whole ? value.is_number_integer() : value.is_number()) || !(value.template get<double>() >= least) ||
        value.template get<double>() > most)
      throw ScriptMistake(fmt::format("generate: {} must be {}, {} to {}, not {}", name,
                                      whole ? "an integer" : "a number", least, most, shown_json(value)));
    return value.template get<decltype(otherwise)>();
  };
  constexpr double largest = 1e6;
  generation.max_new_tokens = number("max_new_tokens", generation.max_new_tokens, 0, largest);
  generation.temperature = number("temperature", generation.temperature, 0, largest);
  generation.top_k = number("top_k", generation.top_k, 0, 1e9);
  if (wanted.contains("seed")) generation.seed = number("seed", int64_t{0}, -1e15, 1e15);
  json prompt = wanted.value("prompt", json());
  bool tokens = prompt.is_array() && !prompt.empty();
  for (const auto& token : tokens ? prompt : json::array()) {
    tokens = tokens && token.is_number_integer();
    if (tokens) generation.tokens.push_back(token);
  }
  if (prompt.is_string() && !prompt.get_ref<const std::string&>().empty())
    generation.text = prompt;
  else if (!tokens)
    throw ScriptMistake("generate: prompt must be a text or a list of tokens, and not empty");
  return generation;
}

void add_larger(Class& made) {
  made.method("snapshot", 0, [](const Arguments& arguments) {
    return Value(Object::make(snapshot_class(), training_of(arguments).snapshot()));
  });
  made.method("generate", 1, [](const Arguments& arguments) {
    return Value(training_of(arguments).generate(generation_of(arguments.table(1, Strings::any))));
  });
}

}  // namespace

const Class& hook_context_class() {
  static const Class kind = [] {
    Class made("context");
    add_properties(made);
    add_control(made);
    add_parameters(made);
    add_larger(made);
    return made;
  }();
  return kind;
}

std::shared_ptr<Object> make_context(Training& training) { return Object::make(hook_context_class(), &training); }

}  // namespace runner::lua
