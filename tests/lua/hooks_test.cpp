// Hook files and sets. Wrong ones are data: tests/cases/lua/hooks/NAME.toml and the diagnostics in NAME.expected.
// RUNNER_UPDATE_CASES=1 rewrites the expected texts; read the diff before you commit it.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <set>

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/lua/known_metrics.hpp"
#include "runner/lua/shipped.hpp"
#include "tests/lua/pretended_training.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::lua;
using nlohmann::json;
using runner::lua::testing::PretendedTraining;

namespace {

std::string said_about(const std::string& file) {
  try {
    load_recipe(file, {}, check_hooks);
  } catch (const RecipeError& error) {
    return std::string(error.what()) + "\n";
  }
  return "nothing\n";
}

/// Records what hooks log, and their stop.
struct Recorder : PretendedTraining {
  std::vector<std::string> lines;
  using PretendedTraining::PretendedTraining;
  void log(const std::string& name, double value, const std::string& sync) override {
    PretendedTraining::log(name, value, sync);
    lines.push_back(fmt::format("log {} = {}{}", name, value, sync == "none" ? "" : " (" + sync + ")"));
  }
  void stop(const std::string& reason) override {
    PretendedTraining::stop(reason);
    lines.push_back("stop: " + reason);
  }
};

/// A recipe with hook files that have these texts.
struct Hooks {
  TemporaryFolder folder;
  Recipe recipe;
  explicit Hooks(const std::vector<std::string>& texts) {
    for (const auto& text : texts) {
      auto path = folder.path / fmt::format("hook{}.lua", recipe.hooks.files.size());
      write_file_atomic(path, text);
      recipe.hooks.files.push_back(path.string());
    }
  }
  /// Lines that say what the hooks do in a pretended training, a checkpoint and a resume from it; errors are last.
  std::vector<std::string> run() {
    std::vector<std::string> lines;
    try {
      HookSet::Talk talk;
      talk.report = [&](const std::string& text) { lines.push_back(text); };
      HookSet hooks(recipe, talk);
      Recorder training(hooks.state(), recipe);
      auto collect = [&] { lines.insert(lines.end(), training.lines.begin(), training.lines.end()); };
      try {
        training.run(hooks);
        training.lines.push_back("state: " + hooks.save(Value(training.context())).dump());
        auto saved = json::parse(training.lines.back().substr(std::string("state: ").size()));
        hooks.load(saved, Value(training.context()));
      } catch (const Error& error) {
        training.lines.push_back(error.what());
      }
      collect();
    } catch (const Error& error) {
      lines.push_back(error.what());
    }
    for (auto& line : lines) line = without_folder(line);
    return lines;
  }
  std::string without_folder(std::string text) const {
    for (size_t at; (at = text.find(folder.path.string() + "/")) != std::string::npos;)
      text.erase(at, folder.path.string().size() + 1);
    return text;
  }
};

}  // namespace

TEST_CASE("every wrong hook file or option gives the expected diagnostics") {
  auto folder = fs::path(RUNNER_SOURCE_DIR) / "tests/cases/lua/hooks";
  auto before = fs::current_path();
  fs::current_path(folder);
  int count = 0;
  for (const auto& entry : fs::directory_iterator(".")) {
    auto name = entry.path().filename();
    if (name.extension() != ".toml" || name.stem().string().starts_with("base_")) continue;
    ++count;
    INFO(name.string());
    auto said = said_about(name.string());
    for (size_t at; (at = said.find(folder.string() + "/")) != std::string::npos;)
      said.erase(at, folder.string().size() + 1);
    auto expected = fs::path(name).replace_extension(".expected");
    if (std::getenv("RUNNER_UPDATE_CASES")) write_file_atomic(expected, said);
    CHECK(said != "nothing\n");
    CHECK(said == read_file(expected));
  }
  fs::current_path(before);
  CHECK(count >= 13);
}

TEST_CASE("hooks are called in order, with their state and options") {
  Hooks hooks({R"(
    return {
      name = "first",
      options = {step = {type = "integer", default = 3}},
      on_train_start = function(ctx, state, options) state.best = math.huge; state.list = {options.step} end,
      on_train_batch_end = function(ctx, state)
        state.seen = (state.seen or 0) + 1
        if ctx.step == 7 then ctx:log("seen", state.seen, {sync = "mean"}); ctx:stop("enough") end
      end,
    })",
               "return {name = 'second', on_train_start = function(ctx) ctx:log('loss_is_nan', ctx.loss ~= ctx.loss "
               "and 1 or 0) end,"
               "teardown = function(ctx) ctx:log('norm', ctx:parameter('head.weight'):norm()) end}"});
  hooks.recipe.hooks.options = {{"first", {{"step", 5}}}};
  CHECK(hooks.run() == std::vector<std::string>{"log loss_is_nan = 1", "log seen = 7 (mean)", "stop: enough",
                                                "log norm = 1",
                                                R"(state: {"first":{"best":{"$number":"inf"},"list":[5],"seen":7}})"});
}

TEST_CASE("a hook that fails stops the run with its name, moment and place in the recipe") {
  Hooks hooks({"return {\n  on_train_batch_end = function(ctx)\n    ctx:log(ctx.step, 1)\n  end,\n}"});
  Origin place;
  place.kind = Origin::Kind::file;
  place.file = "recipe.toml";
  place.line = 12;
  place.column = 9;
  hooks.recipe.origins["hooks.files"] = place;
  CHECK(hooks.run().back() ==
        "hook hook0 failed in on_train_batch_end: hook0.lua:3: log: argument 1 must be a string, not a number\n"
        "  the recipe names it at recipe.toml:12:9");
}

TEST_CASE("on_error = disable disables a failing hook with one note, and other hooks continue") {
  Hooks hooks(
      {"return {name = 'bad', on_train_batch_end = function(ctx, state) if ctx.step == 2 then while true do "
       "pcall(error) end end end}",
       "return {name = 'good', teardown = function(ctx) ctx:log('steps_made', ctx.step) end}"});
  hooks.recipe.hooks.on_error = "disable";
  hooks.recipe.hooks.instruction_limit = 100'000;
  auto lines = hooks.run();
  CHECK(std::find(lines.begin(), lines.end(), "log steps_made = 10") != lines.end());
  int reports = 0;
  for (const auto& line : lines)
    if (line.find("disabled") != std::string::npos) {
      ++reports;
      CHECK(line ==
            "hook bad failed in on_train_batch_end: hook0.lua:1: took more than 100000 Lua instructions\n"
            "  it is disabled from now on (hooks.on_error = \"disable\")");
    }
  CHECK(reports == 1);
}

TEST_CASE("a state that contains something else than plain data is refused with its place") {
  Hooks hooks({"return {name = 'keeper', setup = function(ctx, state) state.deep = {{ctx}} end}"});
  CHECK(hooks.run().back() ==
        "hook keeper failed in saving its state: state at deep[1][1]: a context is not plain data");
}

TEST_CASE("bytes that are not UTF-8 are kept in a state, and refused in names") {
  Hooks hooks({R"(return {name = 'keeper',
    on_train_start = function(ctx, state)
      state.number, state.list, state.text = string.pack("<d", -1.5), {"\xe9"}, "caf\u{e9}"
      ctx:artifact("a.txt"):write("\xe9")
    end,
    on_load_checkpoint = function(ctx, state)
      local same = state.list[1] == "\xe9" and state.text == "caf\u{e9}"
      ctx:log('number', same and string.unpack("<d", state.number) or 0)
    end,
    on_train_end = function(ctx) ctx:stop("caf\xe9") end})"});
  auto lines = hooks.run();
  CHECK(lines.back() == "log number = -1.5");
  CHECK(std::count(lines.begin(), lines.end(),
                   R"(state: {"keeper":{"list":[{"$bytes":"e9"}],"number":{"$bytes":"000000000000f8bf"},)"
                   "\"text\":\"caf\xc3\xa9\"}}") == 1);
  CHECK(std::count(lines.begin(), lines.end(), "stop: caf\\xE9") == 1);
  auto said = [](const std::string& body) {
    return Hooks({"return {name = 'h', on_train_start = function(ctx, state)\n" + body + " end}"}).run().back();
  };
  const std::string failed = "hook h failed in on_train_start: hook0.lua:2: ";
  CHECK(said("ctx:log('caf\\xe9', 1)") == failed + "log: the name \"caf\\xE9\" is not UTF-8 text");
  CHECK(said("ctx:artifact('caf\\xe9.txt')") == failed + "artifact: the name \"caf\\xE9.txt\" is not UTF-8 text");
  CHECK(said("ctx:generate{prompt = 'x', top_k = '\\xe9'}").starts_with(failed + "generate: top_k must be an integer"));
  CHECK(said("state['caf\\xe9'] = 1") ==
        "hook h failed in saving its state: state at caf\\xE9: this key is not UTF-8 text");
}

TEST_CASE("a checkpoint restores objects in a state, at any depth and under any name") {
  Hooks hooks({R"(return {name = 'keeper',
    on_train_start = function(ctx, state) state.kept = {["a/b~.c"] = {ctx.world}} end,
    on_load_checkpoint = function(ctx, state) ctx:log('size', state.kept["a/b~.c"][1].size) end})"});
  HookSet set(hooks.recipe);
  Recorder training(set.state(), hooks.recipe);
  const Value context(training.context());
  std::shared_ptr<Object> kept;
  auto keep = [&](const std::string&, const std::shared_ptr<Object>& object) {
    kept = object;
    return json{{"numel", 4}};
  };
  set.call(Moment::on_train_start, context);
  auto saved = set.save(context, keep);
  CHECK(saved.dump() == R"({"keeper":{"kept":{"a/b~.c":[{"$object":"keeper/kept/a~1b~0.c/[1]","numel":4}]}}})");
  set.load(saved, context, [&](const std::string& name, const json& given) {
    CHECK(name == "keeper/kept/a~1b~0.c/[1]");
    CHECK(given.at("numel") == 4);
    return kept;
  });
  CHECK(training.lines == std::vector<std::string>{"log size = 1"});
}

TEST_CASE("two hooks with a loss are refused") {
  Hooks two({"return {name = 'a', loss = function(ctx, logits) return logits:max() end}",
             "return {name = 'b', loss = function(ctx, logits) return logits:max() end}"});
  CHECK(two.run().back().find("the hooks a and b both have a `loss`, and a training can have only one") !=
        std::string::npos);
}

TEST_CASE("names of metrics that hooks must not log are refused, and known without a training") {
  for (const auto& name : trainer_metrics()) {
    Hooks hooks({"return {on_train_batch_end = function(ctx) ctx:log('" + name + "', 1) end}"});
    INFO(name);
    const auto refusal = "log: the trainer itself records a metric named \"" + name + "\"";
    CHECK(hooks.run().back().find(refusal) != std::string::npos);
    CHECK(hooks.without_folder(known_metrics(hooks.recipe).mistake).starts_with("hook0.lua:1: " + refusal));
  }
  for (const std::string name : {"step", "run", "name", "run_id", "run_name"}) {
    Hooks hooks({"return {on_train_batch_end = function(ctx) ctx:log('" + name + "', 1) end}"});
    CHECK(hooks.run().back().find("log: a table of metrics has another column named \"" + name +
                                  "\"; take another name, such as \"hook/" + name + "\"") != std::string::npos);
  }
  CHECK(Hooks({"return {on_train_start = function(ctx) ctx:log('', 1) end}"})
            .run()
            .back()
            .find("log: the name is empty") != std::string::npos);
}

TEST_CASE("early stopping stops when val_loss rises") {
  Recipe stopping;
  stopping.train.early_stopping = Recipe::Train::EarlyStopping();
  HookSet set(stopping);
  PretendedTraining training(set.state(), stopping);
  training.run(set);
  CHECK(training.stopped() == "val_loss has not improved on 1.5 for 3 validations");
}

TEST_CASE("checkpoints restore states, and states without a hook are reported") {
  Hooks hooks(
      {"return {name = 'counter', on_train_start = function(ctx, state) state.n = (state.n or 0) + 1 end,"
       " on_load_checkpoint = function(ctx, state) state.loaded = state.n end}"});
  std::vector<std::string> reports;
  HookSet::Talk talk;
  talk.report = [&](const std::string& text) { reports.push_back(text); };
  HookSet set(hooks.recipe, talk);
  PretendedTraining training(set.state(), hooks.recipe);
  const auto& context = training.context();
  set.load({{"counter", {{"n", 41}}}, {"gone", {{"x", 1}}}}, Value(context));
  set.call(Moment::on_train_start, Value(context));
  CHECK(set.save(Value(context)) == json{{"counter", {{"n", 42}, {"loaded", 41}}}});
  CHECK(reports ==
        std::vector<std::string>{"the checkpoint has the state of a hook gone, which this recipe does not have"});
  CHECK_FALSE(set.wants(Moment::on_before_backward));
}

TEST_CASE("the random numbers of a call are the same in a run that was resumed") {
  Hooks hooks(
      {"local function draw(ctx, state) state.drawn = math.random(1 << 40) end\n"
       "return {name = 'noise', on_before_backward = draw, on_train_batch_end = draw}"});
  /// The numbers drawn in the steps from `first` to 5: in two micro-batches, and at the end of the step.
  auto drawn_from = [&](int64_t first) {
    int64_t step = first;
    HookSet::Talk talk;
    talk.step = [&] { return step; };
    HookSet set(hooks.recipe, talk);
    PretendedTraining training(set.state(), hooks.recipe);
    const auto& context = training.context();
    std::vector<int64_t> numbers;
    for (; step < 6; ++step)
      for (auto moment : {Moment::on_before_backward, Moment::on_before_backward, Moment::on_train_batch_end}) {
        set.call(moment, Value(context));
        numbers.push_back(set.save(Value(context)).at("noise").at("drawn"));
      }
    return numbers;
  };
  const auto all = drawn_from(0), resumed = drawn_from(4);
  CHECK(std::vector(all.end() - 6, all.end()) == resumed);
  CHECK(std::set(all.begin(), all.end()).size() == all.size());
  hooks.recipe.run.seed += 1;
  CHECK(drawn_from(4) != resumed);
}

TEST_CASE("train.early_stopping is the shipped hook") {
  Recipe recipe;
  recipe.train.early_stopping = Recipe::Train::EarlyStopping{"val_loss", 2, 0.1, "min"};
  HookSet hooks(recipe);
  REQUIRE(hooks.hooks().size() == 1);
  struct Falling : PretendedTraining {
    using PretendedTraining::PretendedTraining;
    json metrics() override { return {{"val_loss", value}}; }
    double value = 0;
  } training(hooks.state(), recipe);
  const auto& context = training.context();
  auto validate = [&](double value) {
    training.value = value;
    hooks.call(Moment::on_validation_end, Value(context));
    return training.stopped();
  };
  CHECK(validate(3).empty());
  CHECK(validate(2).empty());
  CHECK(validate(1.95).empty());  // an improvement of less than min_delta
  CHECK(validate(1.5).empty());   // a sufficient improvement: counts from 0 again
  CHECK(validate(std::nan("")).empty());
  CHECK(validate(1.45) == "val_loss has not improved on 1.5 for 2 validations");
}

TEST_CASE("train.early_stopping runs after the hook files, and its options are not also in [hooks]") {
  Recipe recipe;
  recipe.hooks.files = {"ema"};
  recipe.train.early_stopping = Recipe::Train::EarlyStopping();
  CHECK(HookSet(recipe).hooks().back().file.name == "early_stopping");
  recipe.hooks.options["early_stopping"] = {{"patience", 9}};
  Origin here, there;
  here.kind = there.kind = Origin::Kind::file;
  here.file = there.file = "recipe.toml";
  here.line = 3;
  there.line = 8;
  recipe.origins["hooks.early_stopping.patience"] = here;
  recipe.origins["train.early_stopping"] = there;
  std::vector<Diagnostic> diagnostics;
  check_hooks(recipe, diagnostics);
  REQUIRE(diagnostics.size() == 1);
  CHECK(diagnostics[0].code == "contradiction");
  CHECK(diagnostics[0].message == "[hooks.early_stopping] and train.early_stopping set the same options");
  CHECK(diagnostics[0].place.line == 3);
  CHECK(diagnostics[0].other->line == 8);
}

TEST_CASE("hooks and their options are kept through extends, --set and printing") {
  TemporaryFolder folder;
  write_file_atomic(
      folder.path / "base.toml",
      "[model]\nname = \"gpt\"\nn_layers = 1\ndim = 8\nn_heads = 2\nmax_seq_len = 8\n[data]\nformat = \"text\"\n"
      "train = [\"none.txt\"]\n[train]\nmax_steps = 2\n[hooks]\nfiles = [\"a.lua\", \"early_stopping\"]\n"
      "on_error = \"disable\"\n[hooks.a]\nx = 1\ny = [1, 2]\n");
  write_file_atomic(folder.path / "upper.toml", "extends = \"base.toml\"\nhooks.a.x = 2\n");
  auto recipe =
      load_recipe((folder.path / "upper.toml").string(), {"hooks.a.z=true", "hooks.early_stopping.patience=9"});
  CHECK(recipe.hooks.files == std::vector<std::string>{(folder.path / "a.lua").string(), "early_stopping"});
  CHECK(recipe.hooks.options ==
        json{{"a", {{"x", 2}, {"y", {1, 2}}, {"z", true}}}, {"early_stopping", {{"patience", 9}}}});
  auto again = parse_recipe(print_recipe(recipe), "printed.toml");
  CHECK(again.hooks.files == recipe.hooks.files);
  CHECK(recipe_to_json(again) == recipe_to_json(recipe));
  CHECK(origins_to_json(recipe)["hooks.a.z"] == "--set hooks.a.z=true");
}

TEST_CASE("every shipped hook loads and runs") {
  for (const auto& [name, text] : shipped_hooks()) {
    INFO(name);
    Recipe recipe;
    recipe.hooks.files = {name};
    if (name == "freezing") recipe.hooks.options[name] = {{"parameters", {"head."}}, {"thaw_every", 3}};
    HookSet hooks(recipe);
    CHECK(hooks.hooks().front().file.name == name);
    CHECK_FALSE(hooks.hooks().front().file.about.empty());
    PretendedTraining training(hooks.state(), recipe);
    CHECK_NOTHROW(training.run(hooks));
  }
}

TEST_CASE("the editor's type definitions contain everything that a hook can use") {
  Recipe recipe;
  State state;
  PretendedTraining training(state, recipe);
  std::string stubs = stubs_text;
  const auto& context = training.context();
  auto check = [&](const Class& kind) {
    for (const auto& [name, body] : kind.methods())
      CHECK(stubs.find(fmt::format("function {}:{}(", kind.name(), name)) != std::string::npos);
    for (const auto& [name, read] : kind.properties())
      CHECK(stubs.find("---@field " + name + " ") != std::string::npos);
  };
  check(context->kind());
  check(context->kind().properties().at("world")(*context).object->kind());
  for (const char* moment : moment_names())
    CHECK(stubs.find(fmt::format("---@field {}? runner.Hook", moment)) != std::string::npos);
  CHECK_NOTHROW(state.load_text(stubs, "runner.lua"));
}
