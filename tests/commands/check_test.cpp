// Errors that are known before anything starts: `check` reports them, and `run` and `sweep` refuse them without
// creating a run.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <set>

#include "runner/commands/plan_here.hpp"
#include "runner/commands/preflight.hpp"
#include "runner/config/config.hpp"
#include "tests/support/command.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

/// `check` and `run` give the same error, and afterwards there is no run.
void check_refused(const Workplace& place, const std::string& message, const std::vector<std::string>& overrides = {}) {
  for (const char* verb : {"check", "run"}) {
    std::vector<std::string> arguments = {verb, "tiny.toml"};
    for (const auto& text : overrides) arguments.insert(arguments.end(), {"--set", text});
    auto result = place.run(arguments);
    INFO(verb << ": " << result.err);
    CHECK(result.code == 2);
    CHECK_THAT(result.err, ContainsSubstring(message));
  }
  CHECK_FALSE(fs::exists(place.home() / "runs"));
}

}  // namespace

TEST_CASE("expectation 10: missing, too short or wrong data are found by check, and no run is created for them") {
  Workplace place;
  write_tiny_recipe(place);
  check_refused(place, "error: data.train: there is no file", {"data.train=[\"txt.text\"]"});
  check_refused(place, "--set data.train=\"tex.txt\": error: data.train: there is no file", {"data.train=\"tex.txt\""});
  check_refused(place, "did you mean text.txt?", {"data.train=\"tex.txt\""});
  check_refused(place, "no file matches", {"data.train=\"*.text\""});
  place.write("short.txt", "too short");
  check_refused(place, "one training and one validation sample of data.seq_len = 32 need 66",
                {"data.train=\"short.txt\"", "data.validation_fraction=0.1"});
  check_refused(place, "--set model.max_seq_len=100000: note: model.max_seq_len sets the length of a sample",
                {"model.max_seq_len=100000"});
  place.write("chat.jsonl",
              R"({"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]})");
  check_refused(
      place, "--set data.train_on=\"asistant\": error: data.train_on cannot be asistant (did you mean assistant?)",
      {"data.format=jsonl", "data.train=\"chat.jsonl\"", "data.chat_template=chatml", "data.train_on=\"asistant\""});
  check_refused(place, "is neither a tokenizer.json nor a SentencePiece model nor a tiktoken file",
                {"data.tokenizer=\"text.txt\""});
}

TEST_CASE("check notes that an epoch is one step, and counts the files that a tokenizer is trained on") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("small.txt", std::string(400, 'a'));
  const auto said = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"check", "tiny.toml", "--set"});
    const auto result = place.run(words);
    CHECK(result.code == 0);
    return result.err;
  };
  const std::vector<std::string> small = {"data.train=small.txt", "data.validation_fraction=0.1"};
  CHECK_THAT(said(small), ContainsSubstring("note: a global batch has 12 samples, and the training data 11: each epoch "
                                            "is one step of 11 samples\n"));
  CHECK_THAT(said({small[0], small[1], "data.drop_last=true"}),
             ContainsSubstring("the training data 11: data.drop_last leaves no batch\n"));
  CHECK_THAT(said({small[0], small[1], "train.global_batch_size=2"}), !ContainsSubstring("a global batch has"));
  CHECK_THAT(said({"data.tokenizer=sentencepiece", "data.tokenizer_vocab_size=300", "data.validation=small.txt",
                   "--unset", "data.validation_fraction"}),
             ContainsSubstring("data: 1 file with ") && ContainsSubstring("first trains the tokenizer on them"));
}

TEST_CASE("an option that the strategy refuses is reported where it is set") {
  Workplace place;
  write_tiny_recipe(place);
  check_refused(place, "--set strategy.stage=4: error: `stage` must be at most 3, not 4",
                {"strategy.name=zero", "strategy.stage=4"});
  check_refused(place, "--set strategy.gradient_predivide_factor=0: error: `gradient_predivide_factor` must be",
                {"strategy.name=zero", "strategy.gradient_predivide_factor=0"});
}

TEST_CASE("a file that is not a recipe is refused with the command that reads it") {
  Workplace place;
  place.write("z3.json", "{\"zero_optimization\": {\"stage\": 3}}");
  place.write("data.txt", "To be, or not to be");
  CHECK(place.run({"run", "z3.json"}).err ==
        "z3.json: error: this looks like JSON, not like a TOML recipe; for a configuration of another tool: runner "
        "import "
        "z3.json\n");
  CHECK_THAT(place.run({"check", "data.txt"}).err,
             ContainsSubstring("data.txt: error: this does not look like a recipe, which is a TOML file"));
}

TEST_CASE("faults of the outside world are told with path and reason, and not as bugs") {
  Workplace place;
  write_tiny_recipe(place);
  fs::create_symlink("loop.toml", place.path() / "loop.toml");
  const auto loop = place.run({"check", "loop.toml"});
  CHECK(loop.code == 2);
  CHECK(loop.err == "error: loop.toml: Too many levels of symbolic links\n");
  fs::create_symlink("loop", place.path() / "loop");
  const auto home = place.run({"ls"}, {{"RUNNER_HOME", (place.path() / "loop").string()}});
  CHECK(home.code == 4);
  CHECK_THAT(home.err, ContainsSubstring("Too many levels of symbolic links\n") && !ContainsSubstring("bug in runner"));
  const auto bytes = place.run({"run", "caf\xe9/tiny.toml", "--set", "run.name=x"});
  CHECK(bytes.code == 2);
  CHECK(bytes.err ==
        "error: an argument on the command line is not UTF-8: \"caf\\xE9/tiny.toml\"; rename the file, or write the "
        "text in UTF-8\n");
}

TEST_CASE("RUNNER_LOG is a known level, and errors are always printed") {
  Workplace place;
  const std::string error = "error: there is no run \"x\"";
  for (const char* level : {"info", "warning", "error"})
    CHECK_THAT(place.run({"show", "x"}, {{"RUNNER_LOG", level}}).err, StartsWith(error));
  for (const std::string level : {"off", "bogus", "critical"})
    CHECK_THAT(place.run({"show", "x"}, {{"RUNNER_LOG", level}}).err,
               StartsWith("warning: RUNNER_LOG=\"" + level +
                          "\" is no level of messages: it is info, warning or error\n" + error));
}

TEST_CASE("run --json prints the mistakes of a recipe as check --json does") {
  Workplace place;
  write_tiny_recipe(place, "max_stepz = 3\n");
  const auto run = place.run({"run", "tiny.toml", "--json"});
  CHECK(run.code == 2);
  CHECK(run.out == place.run({"check", "tiny.toml", "--json"}).out);
  CHECK(run.json().at("errors").at(0).at("suggestion") == "max_steps");
}

TEST_CASE("a name of the Hugging Face Hub that is no folder is answered with its download") {
  Workplace place;
  write_tiny_recipe(place);
  const auto error = place.run({"check", "tiny.toml", "--set", "model.init_from=HuggingFaceTB/SmolLM2-135M"}).err;
  CHECK_THAT(error, ContainsSubstring("there is no such folder; HuggingFaceTB/SmolLM2-135M looks like a name of the "
                                      "Hugging Face Hub, from which nothing is downloaded here: hf download "
                                      "HuggingFaceTB/SmolLM2-135M --local-dir DIR, and name DIR"));
}

TEST_CASE("predictions of memory are kept, and recorded again if the file that keeps them is damaged") {
  Workplace place;
  write_tiny_recipe(place);
  fs::remove_all(place.home() / "cache");  // of other tests
  const auto memory = [&] {
    const auto checked = place.run({"check", "tiny.toml", "--json"});
    INFO(checked.err);
    REQUIRE(checked.code == 0);
    return checked.json().at("plan").get<std::string>();
  };
  const auto first = memory();
  fs::path kept;
  for (const auto& file : fs::directory_iterator(place.home() / "cache"))
    if (file.path().extension() == ".profiles") kept = file.path();
  REQUIRE(!kept.empty());
  const auto text = slurp(kept);
  CHECK(memory() == first);
  CHECK(slurp(kept) == text);  // nothing was asked
  const auto places = text.find("\"of\":[");
  const auto damaged = [&](size_t at, const std::string& by) { return text.substr(0, at) + by + text.substr(at); };
  for (const auto& content :
       {text.substr(0, text.size() / 2), std::string("\0\n[]\n{}\n", 9), damaged(places + 6, "7,"),
        text.substr(0, places) + "\"of\":[]}}\n", damaged(text.find("null"), "10000000, ")}) {
    CAPTURE(content.substr(0, 100));
    std::ofstream(kept, std::ios::binary) << content;
    CHECK(memory() == first);
  }
}

TEST_CASE("missing data are reported in the same pass as other mistakes") {
  Workplace place;
  write_tiny_recipe(place, "max_stepz = 3\n");
  fs::remove(place.path() / "text.txt");
  auto result = place.run({"check", "tiny.toml", "--json"});
  CHECK(result.code == 2);
  std::set<std::string> codes;
  const auto found = result.json();
  for (const auto& error : found.at("errors")) codes.insert(error.at("code").get<std::string>());
  CHECK(codes == std::set<std::string>{"unknown-key", "data"});
}

TEST_CASE("mistakes in the data are reported in the same pass as others, by run as by check") {
  Workplace place;
  write_tiny_recipe(place, "max_stepz = 3\n");
  place.write("short.txt", "too short");
  const auto codes = [&](const std::vector<std::string>& words) {
    const auto result = place.run(words);
    CHECK(result.code == 2);
    const auto shown = result.json();
    std::vector<std::string> found;
    for (const auto& error : shown.at("errors")) found.push_back(error.at("code").get<std::string>());
    std::ranges::sort(found);
    return found;
  };
  using Codes = std::vector<std::string>;
  for (const char* verb : {"check", "run"}) {
    CHECK(codes({verb, "tiny.toml", "--json", "--set", "data.train=short.txt"}) == Codes{"data", "unknown-key"});
    // The length of a sample is a key of the model, which is wrong here.
    CHECK(codes({verb, "tiny.toml", "--json", "--set", "data.train=short.txt", "model.max_seq_lenn=8"}) ==
          Codes{"unknown-key", "unknown-key"});
  }
  place.write("rows.csv", "a,b\n1,2\n1\n");
  place.write("rows.toml",
              "[model]\nname = \"mlp\"\n[data]\nformat = \"csv\"\ntrain = \"rows.csv\"\ntarget = \"b\"\n"
              "[train]\nmax_steps = 1\nmax_stepz = 1\n");
  CHECK(codes({"run", "rows.toml", "--json"}) == Codes{"data", "unknown-key"});
}

TEST_CASE("check and data tell the same about the columns of a table, and data shows what they become") {
  Workplace place;
  place.write("table.csv", "price;size;kind;y\n\"1,5\";1;a;no\n\"2,25\";2;b;yes\n\"-3,0\";;a;no\n\"7,5\";6;a;yes\n");
  const std::string recipe =
      "[model]\nname = \"mlp\"\n[data]\nformat = \"csv\"\ntrain = \"table.csv\"\n"
      "target = \"y\"\nshuffle = false\n[train]\nmax_steps = 1\n";
  place.write("t.toml", recipe);
  const std::string note =
      "note: the column `price` becomes 4 categories: it has numbers with a comma, such as `1,5`; if "
      "it is a decimal comma, set data.decimal = \",\"; commas between groups of digits must be "
      "removed\n";
  for (const char* verb : {"check", "data"}) CHECK_THAT(place.run({verb, "t.toml"}).err, ContainsSubstring(note));
  const auto shown = place.run({"data", "t.toml", "--set", "data.decimal=comma"});
  CHECK_THAT(shown.err, !ContainsSubstring("price"));
  CHECK(shown.out ==
        "COLUMN  KIND               FEATURES  MISSING    MEAN      STD  EXAMPLES\n"
        "price   number                    1           2.0625  3.72649  1.5, 2.25, -3\n"
        "size    number                    2        1       3  2.16025  1, 2, 6\n"
        "kind    categories                2                            a, b\n"
        "y       target: 2 classes                                      no, yes\n\n"
        "price = -0.15094637870788574\nsize = -0.9258201122283936\nsize is missing = 0.0\nkind = a\n"
        "y = no\n");
  const auto refused =
      place.run({"check", "t.toml", "--set", "data.decimal=comma", "data.target=price", "train.label_smoothing=0.3"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err,
             ContainsSubstring("--set train.label_smoothing=0.3: error: label_smoothing is for cross_entropy, and the "
                               "loss is mse, which follows from the column price"));
  fs::create_directories(place.path() / "p\xFF");
  place.write("p\xFF/t.toml", recipe);
  const auto named = place.run({"check", "p\xFF/t.toml"});
  CHECK(named.code == 2);
  CHECK_THAT(named.err,
             ContainsSubstring("an argument on the command line is not UTF-8: \"p\\xFF/t.toml\"; rename the file"));
  place.write("\xFF.csv", "x,y\n1,a\n2,b\n");
  const auto pattern = place.run({"check", "t.toml", "--set", "data.train=*.csv"});
  CHECK(pattern.code == 2);
  CHECK_THAT(pattern.err, ContainsSubstring("/\\xFF.csv is not UTF-8; rename it"));
}

TEST_CASE("initial weights are compared with the model without reading their data") {
  Workplace place;
  write_tiny_recipe(place);
  check_refused(place, "there is no such folder", {"model.init_from=\"gpt2\""});
  place.write("hf/config.json", R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 256,
    "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2, "activation_function": "gelu", "resid_pdrop": 0.1,
    "embd_pdrop": 0.1, "attn_pdrop": 0.1})");
  const std::string header = R"({"transformer.wte.weight":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  place.write("hf/model.safetensors", file + header + std::string(16, '\0'));
  check_refused(place, "transformer.wte.weight is [2, 2] instead of [256, 32]", {"model.init_from=\"hf\""});
  check_refused(place, "missing: transformer.wpe.weight", {"model.init_from=\"hf\""});
  check_refused(place, "contains a different model", {"model.init_from=\"hf\"", "model.n_heads=4"});
}

TEST_CASE("check finds errors that depend on the devices, and prints notes about valid recipes") {
  Workplace place;
  write_tiny_recipe(place);
  check_refused(place, "cannot be divided among 5 data-parallel ranks", {"devices.cpu_processes=5"});
  check_refused(place, "early_stopping watches `accuracy`, which this training never reports",
                {"train.early_stopping={monitor=\"accuracy\"}"});

  place.write("late.lua",
              "return {on_train_batch_end = function(ctx) if ctx.step > 20 then ctx:log('a' .. ctx.epoch, 1) end end}");
  auto late = place.run({"check", "tiny.toml", "--set", "hooks.files=[\"./late.lua\"]", "--set",
                         "train.early_stopping={monitor=\"a0\"}"});
  CHECK(late.code == 0);
  CHECK_THAT(late.err, ContainsSubstring(
                           "note: early_stopping watches `a0`, a name that is in no hook, but hooks compute names"));
  check_refused(place, "no parameter matches the pattern `blokcs.*`",
                {"optimizer.groups=[{pattern=\"blokcs.*\", lr=1.0}]"});
  place.write("own.lua", "return { on_train_batch_end = function(ctx) ctx:log('loss', ctx.loss) end }");
  check_refused(place, "the trainer itself records a metric named \"loss\"", {"hooks.files=[\"own.lua\"]"});

  auto fine = place.run({"check", "tiny.toml"});
  CHECK(fine.code == 0);
  CHECK_THAT(fine.err, ContainsSubstring("micro-batch 6 x 2 ranks = 12 sequences of 32 tokens a step"));
  CHECK_THAT(fine.err, ContainsSubstring("predicted to need") && ContainsSubstring("tiny.toml is fine\n"));

  auto short_run = place.run({"check", "tiny.toml", "--set", "lr_scheduler.warmup_steps=20"});
  CHECK(short_run.code == 0);
  CHECK_THAT(short_run.err,
             ContainsSubstring("note: lr_scheduler.warmup_steps = 20 is more than train.max_steps = 12"));

  place.write("chat.jsonl",
              std::string(9, ' ') + R"({"messages": [{"role": "user", "content": "a long question here"}]})");
  auto lines = place
                   .run({"check", "tiny.toml", "--set", "data.train=\"chat.jsonl\"", "--set",
                         "data.validation_fraction=0.45", "--json"})
                   .json();
  CHECK(lines.at("ok") == true);
  CHECK_THAT(lines.at("notes").dump(), ContainsSubstring("chat.jsonl looks like JSON"));
  place.replace_worker("exit 7");
  auto trained =
      place.run({"run", "tiny.toml", "--set", "data.train=\"chat.jsonl\"", "--set", "data.validation_fraction=0.45"});
  CHECK_THAT(trained.err, ContainsSubstring("chat.jsonl looks like JSON"));
}

TEST_CASE("check shows the host memory that a plan for GPUs needs") {
  Workplace place;
  write_tiny_recipe(place);
  place.write("facts.json",
              R"({"cuda_module": true, "cores": 4, "memory_bytes": 64000000000, "memory_free_bytes": 60000000000,
    "cuda": [{"index": 0, "name": "A", "memory_bytes": 24000000000, "major": 9}]})");
  const auto check = [&](const std::string& strategy) {
    return place
        .run({"check", "tiny.toml", "--set", "strategy=" + strategy, "--set", "devices.accelerator=cuda", "--set",
              "devices.devices=1", "--unset", "devices.cpu_processes"},
             {{"RUNNER_FAKE_FACTS", (place.path() / "facts.json").string()}})
        .err;
  };
  CHECK_THAT(check("{name=\"single\"}"), ContainsSubstring("for tensors\n"));
  CHECK_THAT(check("{name=\"zero\", stage=2, offload_optimizer=true}"),
             ContainsSubstring("for tensors, and 911.0 KiB of host memory\n"));
}

TEST_CASE("a tokenizer that is not that of the initial weights gives a note") {
  Workplace place;
  place.write("hf/tokenizer.json", "{}");
  Recipe recipe;
  recipe.data.format = "text";
  recipe.model.init_from = (place.path() / "hf").string();
  auto notes = input_notes(recipe);
  REQUIRE(notes.size() == 1);
  CHECK_THAT(notes[0], ContainsSubstring("data.tokenizer = \"bytes\" is not the tokenizer of model.init_from"));
  recipe.data.format = "bin";
  CHECK(input_notes(recipe).empty());
  place.write("hf/tokenizer.model", "pieces");
  recipe.data.format = "text";
  recipe.data.tokenizer = (place.path() / "hf/tokenizer.model").string();
  CHECK(input_notes(recipe).empty());
}

TEST_CASE("missing resources of this machine are not errors of the recipe") {
  Workplace place;
  write_tiny_recipe(place);
  // 9 PiB of weights exceed every disk and memory.
  std::vector<std::string> huge = {"check", "tiny.toml", "--json", "--set", "strategy=fsdp"};
  for (const char* text : {"model.dim=262144", "model.n_layers=1000", "checkpoint.save_at_end=true"})
    huge.insert(huge.end(), {"--set", text});
  auto found = place.run(huge);
  CHECK(found.code == 0);
  CHECK(found.json().at("ok") == true);
  CHECK_THAT(found.json().at("not_here").dump(), ContainsSubstring("a checkpoint is predicted to take"));
  auto without = huge;
  without.back() = "checkpoint.save_at_end=false";
  CHECK(place.run(without).json().at("not_here").is_null());
}

TEST_CASE("check accepts a sweep file, and finds the same errors as sweep plan") {
  Workplace place;
  write_tiny_recipe(place);
  auto write = [&](const std::string& metric, const std::string& recipe = "tiny.toml") {
    place.write("sweep.toml",
                "[sweep]\nrecipe = \"" + recipe + "\"\nmetric = \"" + metric +
                    "\"\nbudget = { trials = 2 }\n[sweep.space]\n\"optimizer.lr\" = { uniform = [0.1, 0.2] }\n");
  };
  auto refused = [&](const std::string& message) {
    for (std::vector<std::string> verb : {std::vector<std::string>{"check"}, {"sweep", "plan"}, {"sweep", "run"}}) {
      verb.push_back("sweep.toml");
      auto result = place.run(verb);
      INFO(verb[0] << ": " << result.err);
      CHECK(result.code == 2);
      CHECK_THAT(result.err, ContainsSubstring(message));
    }
    CHECK_FALSE(fs::exists(place.home() / "runs"));
  };
  write("val_loss");
  CHECK(place.run({"check", "sweep.toml"}).code == 0);
  CHECK_THAT(place.run({"check", "sweep.toml"}).err, ContainsSubstring("sweep.toml is fine"));
  write("val_los");
  refused("no trial will report a metric `val_los`");
  write("val_loss");
  fs::rename(place.path() / "text.txt", place.path() / "texts.txt");
  refused("data.train: there is no file");

  place.write("sweep.lua", "return {recipe = 'tiny.toml', metric = 'loss', run = function(sweep) sweep:trial({}) end}");
  auto lua = place.run({"check", "sweep.lua"});
  CHECK(lua.code == 2);
  CHECK_THAT(lua.err, ContainsSubstring("data.train: there is no file"));
}

TEST_CASE("expectation 10: the size of checkpoints is compared with the free space of the disk") {
  Workplace place;
  write_tiny_recipe(place);
  auto recipe = load_recipe((place.path() / "tiny.toml").string());
  Topology topology;
  topology.devices_per_node = 2;
  topology.cores = 2;
  Plan plan = plan_on(recipe, topology, false);
  const int64_t one = checkpoint_bytes_on_disk(plan.job, *plan.model);
  CHECK(one == 12 * plan.model->parameter_count());        // float32, with Adam's two moments
  CHECK_FALSE(disk_space_note(plan, 3 * one, 0).empty());  // there are validation data, so the best one is kept, too
  plan.recipe.checkpoint.save_top_k = 0;
  CHECK(disk_space_note(plan, 3 * one, 0).empty());  // two are kept while a third is written
  CHECK_THAT(disk_space_note(plan, 2 * one, 0), ContainsSubstring("room for 2 more checkpoints of"));
  CHECK(disk_space_note(plan, 2 * one, 1).empty());
  CHECK_THROWS_WITH(disk_space_note(plan, one - 1, 0), ContainsSubstring("a checkpoint is predicted to take"));
  plan.recipe.checkpoint.save_top_k = 2;
  CHECK_FALSE(disk_space_note(plan, 3 * one, 0).empty());
  CHECK(disk_space_note(plan, 5 * one, 0).empty());
  plan.recipe.checkpoint.keep_last = 0;
  CHECK_THAT(disk_space_note(plan, 50 * one, 0), ContainsSubstring("all are kept"));
  CHECK(disk_space_note(plan, 100 * one, 0).empty());
  plan.recipe.checkpoint.save_top_k = 0;
  plan.recipe.checkpoint.save_at_end = false;
  CHECK(disk_space_note(plan, 0, 0).empty());
}
