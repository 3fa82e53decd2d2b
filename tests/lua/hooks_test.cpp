// Hook files and sets. Wrong ones are data: tests/cases/lua/hooks/NAME.toml and the diagnostics in NAME.expected.
// RUNNER_UPDATE_CASES=1 rewrites the expected texts; read the diff before you commit it.
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstdlib>
#include <set>

#include "runner/base/text.hpp"
#include "runner/config/config.hpp"
#include "runner/lua/fake_training.hpp"
#include "runner/lua/hook_set.hpp"
#include "runner/lua/known_metrics.hpp"
#include "runner/lua/shipped.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::lua;
using nlohmann::json;

namespace {

std::string said_about(const std::string& file) {
  try {
    load_recipe(file, {}, check_hooks);
  } catch (const RecipeError& error) {
    return std::string(error.what()) + "\n";
  }
  return "nothing\n";
}

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
  /// The actions of the hooks in a fake training, one per line; errors are last.
  std::vector<std::string> run() {
    std::vector<std::string> lines;
    auto say = [&](const std::string& line) { lines.push_back(line); };
    try {
      HookSet::Talk talk;
      talk.report = say;
      HookSet hooks(recipe, talk);
      FakeTraining training(hooks.state(), recipe, say);
      training.run(hooks);
    } catch (const Error& error) {
      lines.push_back(without_folder(error.what()));
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
  CHECK(hooks.run() ==
        std::vector<std::string>{"on_train_start", "  log loss_is_nan = 1", "on_train_batch_end", "on_train_batch_end",
                                 "on_train_batch_end", "on_train_batch_end", "on_train_batch_end",
                                 R"(state in the checkpoint: {"first":{"best":{"$number":"inf"},"list":[5],"seen":5}})",
                                 "on_train_batch_end", "on_train_batch_end", "  log seen = 7 (mean)", "  stop: enough",
                                 R"(state in the checkpoint: {"first":{"best":{"$number":"inf"},"list":[5],"seen":7}})",
                                 "teardown", "  log norm = 1.5471007724127088"});
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
       "return {name = 'good', teardown = function(ctx) ctx:log('step', ctx.step) end}"});
  hooks.recipe.hooks.on_error = "disable";
  hooks.recipe.hooks.instruction_limit = 100'000;
  auto lines = hooks.run();
  CHECK(lines.back() == "  log step = 10");
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

TEST_CASE("a state with other values than plain data and its tensors is a clear error") {
  Hooks hooks({"return {name = 'keeper', setup = function(ctx, state) state.deep = {{ctx}} end}"});
  CHECK(hooks.run().back() ==
        "hook keeper failed in saving its state: state at deep[1][1]: a context is not plain data");
  Hooks handle(
      {"return {name = 'keeper', setup = function(ctx, state) state.grad = {ctx:gradient('head.weight')} end}"});
  CHECK(handle.run().back() ==
        "hook keeper failed in saving its state: state at grad[1]: a handle is valid only in the call that got it; "
        "keep a clone()");
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
  CHECK(std::count(lines.begin(), lines.end(), "  log number = -1.5") == 2);
  CHECK(std::count(
            lines.begin(), lines.end(),
            R"(state in the checkpoint: {"keeper":{"list":[{"$bytes":"e9"}],"number":{"$bytes":"000000000000f8bf"},)"
            "\"text\":\"caf\xc3\xa9\"}}") == 2);
  CHECK(std::count(lines.begin(), lines.end(), "  stop: caf\\xE9") == 1);
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

TEST_CASE("a checkpoint restores tensors in a state, at any depth and under any name") {
  Hooks hooks({R"(return {name = 'keeper',
    on_train_start = function(ctx, state) state.kept = {["a/b~.c"] = {ctx:parameter('head.weight'):clone()}} end,
    on_load_checkpoint = function(ctx, state) ctx:log('norm', state.kept["a/b~.c"][1]:norm()) end})"});
  auto lines = hooks.run();
  CHECK(
      lines[1] ==
      R"(state in the checkpoint: {"keeper":{"kept":{"a/b~.c":[{"$object":"keeper/kept/a~1b~0.c/[1]","numel":4}]}}})");
  CHECK(lines[3] == "  log norm = 1.549193338482967");
}

TEST_CASE("a loss in Lua equals its closed form, without a training") {
  Hooks hooks({R"(return {name = 'smooth', loss = function(ctx, logits, targets)
    local log_probabilities = logits:log_softmax()
    return 0.9 * -log_probabilities:gather(targets) - 0.1 * log_probabilities:mean() + logits:logsumexp() ^ 2 * 0.01
  end})"});
  auto lines = hooks.run();
  REQUIRE(lines[0] == "loss");
  auto losses = json::parse(lines[1].substr(std::string("  losses ").size()));
  const std::vector<std::vector<double>> logits = {{1, 0, -1, 0.5}, {0, 0, 0, 0}, {-2, 3, 0.5, 1}};
  const std::vector<size_t> targets = {0, 3, 1};
  for (size_t row = 0; row < 3; ++row) {
    double sum = 0, mean = 0;
    for (double logit : logits[row]) sum += std::exp(logit);
    for (double logit : logits[row]) mean += (logit - std::log(sum)) / 4;
    double expected =
        -0.9 * (logits[row][targets[row]] - std::log(sum)) - 0.1 * mean + 0.01 * std::pow(std::log(sum), 2);
    CHECK(std::abs(losses[row].get<double>() - expected) < 1e-12);
  }
}

TEST_CASE("a loss that returns a wrong value, or combines wrong sizes, gives a clear error") {
  auto said = [](const std::string& body) {
    return Hooks({"return {name = 'l', loss = function(ctx, logits, targets) " + body + " end}"}).run().back();
  };
  CHECK(said("return 1") ==
        "hook l failed in loss: `loss` must return the losses of its tokens, a matrix [3, 1], not a number");
  CHECK(said("return logits") ==
        "hook l failed in loss: `loss` must return the losses of its tokens, a matrix [3, 1], not [3, 4]");
  CHECK(said("return targets") ==
        "hook l failed in loss: `loss` must return the losses of its tokens, a matrix [3, 1], not the targets");
  CHECK(said("return logits + logits:sum(1):sum(2):sum() + logits:gather(logits)") ==
        "hook l failed in loss: hook0.lua:1: gather: argument 1 must be targets [3, 1], a column for each row, not [3, "
        "4]");
  CHECK(said("return logits:max(1) * logits:gather(targets) + logits:softmax():sum(1) * (logits:max(1) - "
             "logits:sum(3))") ==
        "hook l failed in loss: hook0.lua:1: sum: dim is 1 (over the tokens) or 2 (over each token's columns), not 3");
  Hooks two({"return {name = 'a', loss = function(ctx, logits) return logits:max() end}",
             "return {name = 'b', loss = function(ctx, logits) return logits:max() end}"});
  CHECK(two.run().back().find("the hooks a and b both have a `loss`, and a training can have only one") !=
        std::string::npos);
}

TEST_CASE("the fake training rejects the same metric names as a run") {
  for (const auto& name : trainer_metrics()) {
    Hooks hooks({"return {on_train_batch_end = function(ctx) ctx:log('" + name + "', 1) end}"});
    INFO(name);
    CHECK(hooks.run().back().find("log: the trainer itself records a metric named \"" + name + "\"") !=
          std::string::npos);
  }
  CHECK(Hooks({"return {on_train_start = function(ctx) ctx:log('', 1) end}"})
            .run()
            .back()
            .find("log: the name is empty") != std::string::npos);
}

TEST_CASE("in the fake training parameters change, gradients differ between steps, and val_loss also rises") {
  Hooks hooks({R"lua(
return {
  on_train_start = function(ctx, state) state.before = ctx:parameter("head.weight"):clone() end,
  on_before_optimizer_step = function(ctx, state)
    state.norms = state.norms or {}
    state.norms[#state.norms + 1] = ctx:gradient("head.weight"):norm()
    if ctx.step == 9 then ctx:skip_step() end
  end,
  on_train_batch_end = function(ctx, state)
    local moved = (ctx:parameter("head.weight") - state.before):norm()
    if ctx.step == 1 then assert(moved > 0) end
    if ctx.step == 10 then assert(moved == state.moved, "a skipped step moves nothing") end
    state.moved = moved
    if ctx.step == 2 then assert(state.norms[2] > state.norms[1]) end
  end,
  on_validation_end = function(ctx, state)
    if ctx.metrics.val_loss > (state.best or 1e9) then ctx:log("rose", 1) end
    state.best = math.min(state.best or 1e9, ctx.metrics.val_loss)
  end,
}
)lua"});
  auto lines = hooks.run();
  CHECK(std::find(lines.begin(), lines.end(), "  log rose = 1") != lines.end());
  CHECK(lines.back().find("failed") == std::string::npos);
  Recipe stopping;
  stopping.train.early_stopping = Recipe::Train::EarlyStopping();
  HookSet set(stopping);
  FakeTraining training(set.state(), stopping, [](const std::string&) {});
  training.run(set);
  CHECK(training.stopped() == "val_loss has not improved on 1.5 for 3 validations");
}

TEST_CASE("a logged value that is not finite gives one note for each name") {
  Hooks hooks({"return {on_train_batch_end = function(ctx) ctx:log('a', 1 / 0) ctx:log('b', ctx.step) end}"});
  auto lines = hooks.run();
  CHECK(std::count(lines.begin(), lines.end(), "  note: a is not finite: a division by zero?") == 1);
  CHECK(std::count(lines.begin(), lines.end(), "  log a = inf") == 10);
}

TEST_CASE("in the fake training a rate that a hook sets applies after the call, as in a run") {
  Hooks hooks({"return {on_train_batch_start = function(ctx) local before = ctx.lr ctx:set_lr(before / 2) "
               "if ctx.lr ~= before then error('changed at once') end end,"
               "on_train_batch_end = function(ctx) ctx:log('rate', ctx.lr) end}"});
  auto lines = hooks.run();
  CHECK(std::count(lines.begin(), lines.end(), "  log rate = 0.0005") == 10);
}

TEST_CASE("a hook that generates text is a known mistake if the data are tokens") {
  Hooks hooks({"return {on_validation_end = function(ctx) ctx:generate{prompt = 'The'} end}"});
  CHECK(known_metrics(hooks.recipe).mistake.empty());
  hooks.recipe.data.format = "bin";
  CHECK(known_metrics(hooks.recipe).mistake.find("data.format = \"bin\" has no tokenizer") != std::string::npos);
}

TEST_CASE("the metrics that a recipe can record are known without training") {
  using enum KnownMetrics::Recorded;
  Recipe recipe;
  recipe.data.validation_fraction = 0.1;
  CHECK(known_metrics(recipe).recorded("val_loss") == yes);
  CHECK(known_metrics(recipe).recorded("grad_norm") == yes);
  CHECK(known_metrics(recipe).recorded("accuracy") == no);
  recipe.data.validation_fraction.reset();
  CHECK(known_metrics(recipe).recorded("val_loss") == no);

  Hooks hooks(
      {"return {on_train_batch_end = function(ctx) ctx:log('norm/' .. ctx.step, 1)"
       " if ctx.step > 99 then ctx:log('late', 1) end end}"});
  auto known = known_metrics(hooks.recipe);
  for (const char* name : {"norm/1", "norm/blocks.7", "late", "loss"}) CHECK(known.recorded(name) == yes);
  for (const char* name : {"norms", "early"}) CHECK(known.recorded(name) == maybe);
  CHECK(known.recorded("val_loss") == no);  // a hook cannot log it
  Hooks plain({"return {on_train_batch_end = function(ctx) if ctx.step > 99 then ctx:log('late', 1) end end}"});
  CHECK(known_metrics(plain.recipe).recorded("late") == yes);
  CHECK(known_metrics(plain.recipe).recorded("early") == no);
  Hooks failing({"return {on_train_start = function(ctx) error('no') end}"});
  CHECK(known_metrics(failing.recipe).recorded("anything") == maybe);
}

TEST_CASE("a hook that may compute names of metrics is recognised by its text") {
  for (const char* text : {"ctx:log('a', 1)", "ctx : log ( \"a/b\" , 1)", "local x = math.log(2)", "logs = catalog(2)",
                           "", "log", "self.log_every = 1"}) {
    INFO(text);
    CHECK_FALSE(computes_names(text));
  }
  for (const char* text : {"ctx:log('a' .. i, 1)", "ctx:log(name, 1)", "ctx:log(('%d'):format(i), 1)", "ctx:log [[a]]",
                           "ctx.log(ctx, name, 1)", "ctx['log'](ctx, name, 1)", "require 'names'",
                           "ctx:log('a\\x62', 1)", "ctx:log('a', 1) ctx:log(b, 1)"}) {
    INFO(text);
    CHECK(computes_names(text));
  }
}

TEST_CASE("checkpoints restore states, and states without a hook are reported") {
  Hooks hooks(
      {"return {name = 'counter', on_train_start = function(ctx, state) state.n = (state.n or 0) + 1 end,"
       " on_load_checkpoint = function(ctx, state) state.loaded = state.n end}"});
  std::vector<std::string> reports;
  HookSet::Talk talk;
  talk.report = [&](const std::string& text) { reports.push_back(text); };
  HookSet set(hooks.recipe, talk);
  FakeTraining training(set.state(), hooks.recipe, [](const std::string&) {});
  auto context = make_context(training);
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
    FakeTraining training(set.state(), hooks.recipe, [](const std::string&) {});
    auto context = make_context(training);
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
  struct Falling : FakeTraining {
    using FakeTraining::FakeTraining;
    json metrics() override { return {{"val_loss", value}}; }
    double value = 0;
  } training(hooks.state(), recipe, [](const std::string&) {});
  auto context = make_context(training);
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
    FakeTraining training(hooks.state(), recipe, [](const std::string&) {});
    CHECK_NOTHROW(training.run(hooks));
  }
}

TEST_CASE("the editor's type definitions contain everything that a hook can use") {
  Recipe recipe;
  State state;
  FakeTraining training(state, recipe, [](const std::string&) {});
  std::string stubs = stubs_text;
  auto context = make_context(training);
  auto check = [&](const Class& kind) {
    for (const auto& [name, body] : kind.methods())
      CHECK(stubs.find(fmt::format("function {}:{}(", kind.name(), name)) != std::string::npos);
    for (const auto& [name, read] : kind.properties())
      CHECK(stubs.find("---@field " + name + " ") != std::string::npos);
  };
  check(context->kind());
  check(training.parameter("head.weight").object->kind());
  check(matrix_class());
  check(context->kind().properties().at("world")(*context).object->kind());
  for (const char* moment : moment_names())
    CHECK(stubs.find(fmt::format("---@field {}? runner.Hook", moment)) != std::string::npos);
  CHECK_NOTHROW(state.load_text(stubs, "runner.lua"));
}
