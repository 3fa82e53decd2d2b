// Data plug-ins, end to end: their records and samples train under every strategy, a killed run continues exactly, and a plug-in that
// crashes ends neither `runner` nor the record of the run.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "runner/checkpoint/checkpoint.hpp"
#include "tests/commands/resume_support.hpp"
#include "tests/plugin/data_support.hpp"

using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

std::string recipe(const std::string& model, const std::string& data) {
  return "[model]\n" + model + "[data]\n" + data +
         R"([devices]
accelerator = "cpu"
cpu_processes = 2
[optimizer]
lr = 0.01
[train]
max_steps = 30
global_batch_size = 8
log_every_n_steps = 1
[checkpoint]
every_n_steps = 2
keep_last = 0
)";
}

const std::string gpt = "name = \"gpt\"\nn_layers = 1\ndim = 16\nn_heads = 2\nmax_seq_len = 16\n",
                  mlp = "name = \"mlp\"\nhidden_sizes = [8]\n";

std::vector<std::string> verses() {
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i)
    texts.push_back("verse " + std::to_string(i * 7919 % 300) + " of the song, and no more\n");
  return texts;
}

/// texts.toml and rows.toml, with the libraries and files that they name.
void write_inputs(const Workplace& place) {
  static const TemporaryFolder folder;
  static const std::string texts = build_data_plugin(folder.path, "libtexts.so", plugin_source("texts.c")),
                           rows = build_data_plugin(folder.path, "librows.so", plugin_source("rows.cpp"));
  fs::copy_file(texts, place.path() / "libtexts.so");
  fs::copy_file(rows, place.path() / "librows.so");
  place.write("verses.texts", texts_file(verses()));
  place.write("rows.bin", "rows");
  place.write("texts.toml", recipe(gpt, "format = \"plugin\"\nplugin = \"libtexts.so\"\ntrain = [\"verses.texts\"]\n"));
  place.write("rows.toml", recipe(mlp,
                                  "format = \"plugin\"\nplugin = \"librows.so\"\ntrain = [\"rows.bin\"]\n"
                                  "options = { count = 50, width = 5 }\nnum_workers = 2\nvalidation_fraction = 0.2\n"));
}

json trained(const Workplace& place, const std::string& file, const std::vector<std::string>& settings) {
  std::vector<std::string> words = {"run", file, "--json", "--set"};
  words.insert(words.end(), settings.begin(), settings.end());
  const auto result = place.run(words);
  INFO(result.err);
  REQUIRE(result.code == 0);
  return result.json();
}

}  // namespace

TEST_CASE("rank 14: a data plug-in trains under every strategy, with the losses of JSON lines", "[rank14]") {
  Workplace place;
  write_inputs(place);
  std::string lines;
  for (const auto& text : verses()) lines += json{{"text", text}}.dump() + "\n";
  place.write("verses.jsonl", lines);
  place.write("jsonl.toml", recipe(gpt, "format = \"jsonl\"\ntrain = [\"verses.jsonl\"]\n"));
  const std::vector<std::string> one = {"strategy=single", "devices.cpu_processes=1"};
  for (const std::string file : {"texts.toml", "rows.toml"}) {
    CAPTURE(file);
    trained(place, file == "texts.toml" ? "jsonl.toml" : file, one);
    const auto single = losses(place);
    REQUIRE(single.size() == 30);
    CHECK(single.back() < single.front());
    for (const std::vector<std::string>& form : {one,
                                                 {"strategy=ddp"},
                                                 {"strategy=fsdp"},
                                                 {"strategy=deepspeed_stage_3"},
                                                 {"strategy=ddp", "train.micro_batch_size=2", "data.num_workers=0"},
                                                 {"strategy=ddp", "data.num_workers=3"}}) {
      CAPTURE(form);
      trained(place, file, form);
      const auto other = losses(place);
      REQUIRE(other.size() == single.size());
      for (size_t i = 0; i < other.size(); ++i) CHECK(std::abs(other[i] - single[i]) < 2e-5);
    }
  }
}

TEST_CASE("rank 14: a killed run on a data plug-in resumes to the same state", "[rank14]") {
  for (const std::string file : {"texts.toml", "rows.toml"}) {
    CAPTURE(file);
    const std::vector<std::string> run = {"run", file, "--json", "--set", "train.max_steps=60", "strategy=ddp"};
    Workplace calm, killed;
    write_inputs(calm);
    write_inputs(killed);
    const auto expected = calm.run(run);
    INFO(expected.err);
    REQUIRE(expected.code == 0);
    const pid_t supervisor = killed.start(run);
    REQUIRE(wait_until([&] { return has_checkpoint(killed, 1); }, 60));
    const auto workers = children_of(supervisor);
    std::vector<pid_t> readers;
    for (const pid_t worker : workers)
      for (const pid_t reader : children_of(worker)) readers.push_back(reader);
    CHECK(readers.empty() == (file == "texts.toml"));  // records are read before the training
    ::kill(supervisor, SIGKILL);
    for (const pid_t worker : workers) ::kill(worker, SIGKILL);
    killed.finish(supervisor);
    check_end(killed, killed.run({"resume", "--json"}),
              {expected.json().at("final_loss"), final_state(expected.json().at("run_dir"))});
    for (const pid_t reader : readers)
      CHECK(wait_until([&] { return !fs::exists("/proc/" + std::to_string(reader)); }, 10));
  }
}

TEST_CASE("rank 14: a resumed run refuses another library or other options of a data plug-in", "[rank14]") {
  Workplace place;
  write_inputs(place);
  trained(place, "rows.toml", {"strategy=ddp", "train.max_steps=4"});
  CHECK_THAT(place.run({"show", "--json"}).out, ContainsSubstring("librows.so"));
  const auto refused = [&](const std::vector<std::string>& words) {
    const auto result = place.run(words);
    CHECK(result.code != 0);
    return result.out + result.err;
  };
  CHECK_THAT(refused({"resume", "--set", "train.max_steps=6", "data.options={ count = 49, width = 5 }"}),
             ContainsSubstring("data.options"));
  build_data_plugin(place.path(), "librows.so", plugin_source("rows.cpp") + "int more;\n");
  CHECK_THAT(refused({"resume", "--set", "train.max_steps=6"}),
             ContainsSubstring("the library librows.so has changed"));
}

TEST_CASE("rank 14: runner check reports mistakes of data plug-ins with the place in the recipe", "[rank14]") {
  Workplace place;
  write_inputs(place);
  CHECK(place.run({"check", "texts.toml"}).code == 0);
  const auto checked = place.run({"check", "rows.toml"});
  INFO(checked.err);
  CHECK(checked.code == 0);
  CHECK_THAT(place.run({"data", "rows.toml"}).out + place.run({"data", "rows.toml"}).err,
             ContainsSubstring("40 samples of"));
  CHECK_THAT(place.run({"recommend", "rows.toml"}).out, ContainsSubstring("ddp"));
  const auto refused = [&](const std::string& file, const std::vector<std::string>& settings) {
    std::vector<std::string> words = {"check", file, "--set"};
    words.insert(words.end(), settings.begin(), settings.end());
    const auto result = place.run(words);
    CHECK(result.code == 2);
    return result.out + result.err;
  };
  CHECK_THAT(refused("texts.toml", {"data.plugin=libtext.so"}),
             ContainsSubstring("there is no file") && ContainsSubstring("did you mean libtexts.so?"));
  CHECK_THAT(refused("texts.toml", {"data.options={ mots = 3 }"}), ContainsSubstring("did you mean `most`?"));
  place.write("plain.toml", recipe(gpt, "format = \"text\"\nplugin = \"libtexts.so\"\ntrain = [\"verses.texts\"]\n"));
  CHECK_THAT(refused("plain.toml", {"train.max_steps=2"}), ContainsSubstring("plugin is for data.format"));
  CHECK_THAT(refused("rows.toml", {"data.options={ width = 0 }"}),
             ContainsSubstring("rows.toml:") && ContainsSubstring("width must be at least 1"));
  CHECK_THAT(refused("rows.toml", {"model.num_labels=2"}), ContainsSubstring("the classes of data.train are 3"));
  CHECK_THAT(refused("texts.toml", {"data.plugin=librows.so"}), ContainsSubstring("the model gpt needs `inputs`"));
  build_data_plugin(place.path(), "libtexts.so",
                    replaced(plugin_source("texts.c"), ".version = RUNNER_DATA_VERSION", ".version = 9"));
  CHECK_THAT(refused("texts.toml", {"run.name=again"}),
             ContainsSubstring("texts.toml:") &&
                 ContainsSubstring("was built for version 9 of the interface of data plug-ins"));
}

TEST_CASE("rank 14: a data plug-in that crashes while it reads ends the run with its sample, and nothing else",
          "[rank14]") {
  Workplace place;
  write_inputs(place);
  build_data_plugin(
      place.path(), "librows.so",
      replaced(plugin_source("rows.cpp"), "const int64_t label = index % 3;",
               "const int64_t label = index % 3; if (index == 17) *static_cast<volatile int*>(nullptr) = 1;"));
  const auto result = place.run({"run", "rows.toml", "--set", "strategy=ddp", "data.validation_fraction=0.02"});
  CHECK(result.code != 0);
  CHECK_THAT(result.err, ContainsSubstring("rows.bin, sample 17: the plug-in librows.so crashed (Segmentation fault)"));
  CHECK(place.run({"ls", "--json"}).json().at("runs")[0].at("status") == "failed");
  build_data_plugin(place.path(), "libtexts.so",
                    replaced(plugin_source("texts.c"), "const size_t bytes = (size_t)(",
                             "if (index == 250) abort();\n  const size_t bytes = (size_t)("));
  const auto records = place.run({"run", "texts.toml"});
  CHECK(records.code == 2);
  CHECK_THAT(records.out + records.err,
             ContainsSubstring("verses.texts, record 250: the plug-in libtexts.so crashed (Aborted)"));
}
