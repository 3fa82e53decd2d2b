// Data plug-ins: their records and samples are those of other formats, for any number of processes, and their mistakes are refused.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "runner/data/data_check.hpp"
#include "runner/data/data_meaning.hpp"
#include "runner/data/loader.hpp"
#include "runner/data/records.hpp"
#include "runner/data/source_files.hpp"
#include "strategies/engine/row_batch.hpp"
#include "tests/data/support.hpp"
#include "tests/plugin/data_support.hpp"

using namespace runner;
using namespace runner::test;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

/// The libraries of the examples, built once for all tests of this program.
const std::string& example(const std::string& name) {
  static const DataFolder folder;
  static std::map<std::string, std::string> built;
  auto& library = built[name];
  if (library.empty()) library = build_data_plugin(folder.path, "lib" + name + ".so", plugin_source(name));
  return library;
}

Recipe::Data texts_data(const std::string& file, const std::string& library = example("texts.c")) {
  Recipe::Data data;
  data.format = "plugin";
  data.plugin_gives = "records";
  data.plugin = library;
  data.train = {file};
  return data;
}

Recipe::Data rows_data(const std::string& file, const json& options = {{"count", 50}},
                       const std::string& library = example("rows.cpp")) {
  Recipe::Data data;
  data.format = "plugin";
  data.plugin_gives = "rows";
  data.plugin = library;
  data.options = options;
  data.train = {file};
  return data;
}

std::vector<std::string> many_texts() {
  std::vector<std::string> texts = {"", "a", "Grüße, 世界 🙂 \"quoted\" \\ \n next line"};
  for (int i = 0; i < 9000; ++i) texts.push_back("text " + std::to_string(i));
  texts.push_back(std::string(3'000'000, 'x'));
  texts.push_back("last");
  return texts;
}

std::vector<std::byte> bytes_of(const StepBatch& step) {
  std::vector<std::byte> all;
  for (const auto& micro : step.micro_batches)
    for (const auto& field : micro.fields) all.insert(all.end(), field.bytes.begin(), field.bytes.end());
  return all;
}

}  // namespace

TEST_CASE("rank 14: the records of a plug-in are its texts, in parts and from several threads, however long they are",
          "[rank14]") {
  const DataFolder folder;
  const auto texts = many_texts();
  const auto file = folder.write("a.texts", texts_file(texts));
  const auto records = open_records(texts_data(file), file);
  CHECK(records->size() == texts.size());
  std::vector<std::string> read;
  const auto parts = records->parts(1);
  CHECK(parts.size() > 1);
  for (const auto& part : parts) {
    CHECK(part.begin == read.size());
    records->for_each(part, [&](const JsonRecord& record, size_t end) {
      read.push_back(record.at("text"));
      CHECK(end == read.size());
      return true;
    });
  }
  CHECK(read == texts);
}

TEST_CASE("rank 14: language data of a plug-in are the same samples as JSON lines", "[rank14]") {
  const DataFolder folder;
  const auto texts = many_texts();
  std::string lines;
  for (const auto& text : texts) lines += json{{"text", text}}.dump() + "\n";
  Recipe::Data other;
  other.format = "jsonl";
  other.train = {folder.write("a.jsonl", lines)};
  for (const char* packing : {"wrapped", "none", "best_fit"}) {
    auto data = texts_data(folder.write("a.texts", texts_file(texts)));
    data.packing = other.packing = packing;
    const auto own = open_dataset(data, Split::train, 32, 257, folder / "cache"),
               same = open_dataset(other, Split::train, 32, 257, folder / "cache");
    REQUIRE(own->size() == same->size());
    for (int64_t sample = 0; sample < own->size(); sample += 97) {
      HostBatch a(1, own->fields()), b(1, same->fields());
      own->read(sample, a, 0);
      same->read(sample, b, 0);
      for (size_t f = 0; f < a.fields.size(); ++f) CHECK(a.fields[f].bytes == b.fields[f].bytes);
    }
  }
}

TEST_CASE("rank 14: batches of a plug-in's samples are the same for every number of workers", "[rank14]") {
  const DataFolder folder;
  const auto file = folder.write("rows", "x");
  std::vector<std::vector<std::byte>> expected;
  for (const int64_t workers : {0, 1, 2, 5}) {
    auto data = rows_data(file);
    data.num_workers = workers;
    const auto rows = open_dataset(data, Split::train, 1, 3, "");
    CHECK(rows->describe() == "50 samples of `features` (float32 [4]), `labels` (int64 [])");
    Loader loader(*rows, {.global_batch_size = 8, .micro_batch_size = 4, .seed = 3, .workers = workers});
    std::vector<std::vector<std::byte>> batches;
    StepBatch step;
    for (int i = 0; i < 20; ++i) {
      REQUIRE(loader.next(step));
      batches.push_back(bytes_of(step));
    }
    if (expected.empty()) expected = batches;
    CHECK(batches == expected);
  }
}

TEST_CASE("rank 14: samples of several paths follow one another, and a share of them validates", "[rank14]") {
  const DataFolder folder;
  auto data = rows_data(folder.write("rows", "x"));
  data.train.push_back(folder.write("more", "x"));
  CHECK(open_dataset(data, Split::train, 1, 3, "")->size() == 100);
  CHECK(open_dataset(data, Split::validation, 1, 3, "") == nullptr);
  data.validation_fraction = 0.1;
  const auto training = open_dataset(data, Split::train, 1, 3, ""),
             validation = open_dataset(data, Split::validation, 1, 3, "");
  CHECK(training->size() == 90);
  CHECK(validation->size() == 10);
}

TEST_CASE("rank 14: records of a plug-in are the rows of a table", "[rank14]") {
  const DataFolder folder;
  std::string csv = "id,kind,x,y\n";
  std::vector<std::string> texts;
  for (int i = 0; i < 40; ++i) {
    const int64_t id = (int64_t{1} << 53) + i % 3;  // a double does not hold it
    json row = {{"id", id}, {"x", i * 0.5}, {"kind", i % 3 == 0 ? "a" : "b"}, {"y", i % 2 == 0 ? "even" : "odd"}};
    if (i == 7) row["x"] = nullptr;
    csv += std::to_string(id) + "," + row["kind"].get<std::string>() + "," + (i == 7 ? "" : std::to_string(i * 0.5)) +
           "," + row["y"].get<std::string>() + "\n";
    texts.push_back(row.dump());
  }
  const auto library = build_data_plugin(
      folder.path, "libjson.so", replaced(plugin_source("texts.c"), ".records_are_text = 1", ".records_are_text = 0"));
  auto data = texts_data(folder.write("rows", texts_file(texts)), library);
  data.target = {"y"};
  Recipe::Data table;
  table.format = "csv";
  table.train = {folder.write("rows.csv", csv)};
  table.target = {"y"};
  data.categorical = table.categorical = {"id"};
  const auto own = open_dataset(data, Split::train, 1, 1, ""), same = open_dataset(table, Split::train, 1, 1, "");
  REQUIRE(own->size() == 40);
  CHECK(own->learned() == same->learned());
  for (int64_t sample = 0; sample < own->size(); ++sample) {
    HostBatch a(1, own->fields()), b(1, same->fields());
    own->read(sample, a, 0);
    same->read(sample, b, 0);
    for (size_t f = 0; f < a.fields.size(); ++f) CHECK(a.fields[f].bytes == b.fields[f].bytes);
  }
}

TEST_CASE("rank 14: a folder can be the path of a plug-in, and its files are what a resumed run compares", "[rank14]") {
  const DataFolder folder;
  fs::create_directories(folder.path / "store/deep");
  folder.write("store/b", "1");
  folder.write("store/deep/a", "2");
  CHECK(files_of({folder / "store"}) == std::vector<std::string>{folder / "store/b", folder / "store/deep/a"});
  Recipe recipe;
  recipe.data = rows_data(folder / "store");
  const auto before = data_meaning(recipe, 8, folder / "cache");
  CHECK(before.at("files").size() == 2);
  CHECK(before.at("data.plugin").at("name") == "librows.cpp.so");
  folder.write("store/deep/a", "3");
  CHECK(changed_meaning(before, data_meaning(recipe, 8, folder / "cache")) ==
        std::vector<std::string>{"the content of " + (folder / "store/deep/a") + " has changed"});
  folder.write("store/deep/a", "2");
  recipe.data.options["count"] = 60;
  CHECK(changed_meaning(before, data_meaning(recipe, 8, folder / "cache")) ==
        std::vector<std::string>{"data.options was {\"count\":50} and is {\"count\":60}"});
  recipe.data =
      rows_data(folder / "store", {{"count", 50}},
                build_data_plugin(folder.path, "librows.cpp.so", plugin_source("rows.cpp") + "// more\nint more;\n"));
  CHECK(changed_meaning(before, data_meaning(recipe, 8, folder / "cache")) ==
        std::vector<std::string>{"data.plugin: the library librows.cpp.so has changed"});
}

TEST_CASE("rank 14: mistakes of a plug-in that gives records are refused with the record", "[rank14]") {
  const DataFolder folder;
  const auto file = folder.write("a.texts", texts_file({"one", "two", "three"}));
  const auto refused = [&](const std::string& from, const std::string& to, const std::string& path) {
    const auto library = build_data_plugin(folder.path, "libbad.so", replaced(plugin_source("texts.c"), from, to));
    return error_of([&] {
      const auto records = open_records(texts_data(path, library), path);
      for (const auto& part : records->parts(1))
        records->for_each(part, [](const JsonRecord&, size_t) { return true; });
    });
  };
  const auto read = [&](const std::string& code) {
    return refused("const size_t bytes = (size_t)(", code + "\n  const size_t bytes = (size_t)(", file);
  };
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they report the crash themselves
  CHECK(read("if (index == 1) *(volatile int*)0 = 1;") ==
        "usage: data.plugin: " + file + ", record 1: the plug-in libbad.so crashed (Segmentation fault)");
#endif
  CHECK(read("if (index == 2) abort();") ==
        "usage: data.plugin: " + file + ", record 2: the plug-in libbad.so crashed (Aborted)");
  CHECK(read("if (index == 2) exit(7);") ==
        "usage: data.plugin: " + file + ", record 2: the plug-in libbad.so ended its process with exit status 7");
  CHECK(read("if (index == 1) { snprintf(error, error_size, \"block 4 is damaged\"); return -1; }") ==
        "usage: data.plugin: " + file + ", record 1: the plug-in libbad.so failed: record(): block 4 is damaged");
  CHECK(read("if (index == 1) return -1;") ==
        "usage: data.plugin: " + file +
            ", record 1: the plug-in libbad.so failed: record(): it failed, and gives no reason");
  CHECK(read("if (index != 1) { snprintf(error, error_size, \"block %d is damaged\", (int)index); return -1; }") ==
        "usage: data.plugin: " + file +
            ", record 0: the plug-in libbad.so failed: record(): block 0 is damaged (and 1 more row: 2)");
  const auto no_json = refused(".records_are_text = 1", ".records_are_text = 0", file);
  CHECK(no_json.starts_with("usage: " + file + ", record 0: not JSON: "));
  CHECK(no_json.ends_with(" (and 2 more rows: 1, 2)"));
  const auto broken = folder.write("broken.texts", texts_file({"fine", "\xc3(", "fine", "\xc3("}));
  CHECK(refused("static void* open_texts", "static void* open_texts", broken) ==
        "usage: " + broken + ", record 1: the text is not UTF-8 (and 1 more row: 3)");
  const auto records = open_records(texts_data(file), file);
  CHECK(error_of([&] {
          records->for_each({0, 3}, [](const JsonRecord& record, size_t) -> bool {
            if (record.at("text") != "two") throw usage_error("no label");
            return true;
          });
        }) == "usage: " + file + ", record 0: no label (and 1 more row: 2)");
  const auto cut = folder.write("cut.texts", texts_file({"fine"}).substr(0, 6));
  CHECK(refused("static void* open_texts", "static void* open_texts", cut) ==
        "usage: data.plugin: " + cut + ": the plug-in libbad.so failed: open(): " + cut + " is cut off behind text 0");
  const auto none = folder.write("none.texts", texts_file({"only"}));
  CHECK(refused("return ((struct texts*)data)->count;", "(void)data; return 0;", none) ==
        "usage: data.plugin: " + none + " has no record");
}

TEST_CASE("rank 14: a library that is no plug-in for this program is refused", "[rank14]") {
  const DataFolder folder;
  const auto file = folder.write("a.texts", texts_file({"one", "two", "three"}));
  const auto refused = [&](const std::string& library) {
    return error_of([&] { open_records(texts_data(file, library), file); });
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    return refused(build_data_plugin(folder.path, "libbad.so", replaced(plugin_source("texts.c"), from, to)));
  };
  const auto library = folder / "libbad.so";
  CHECK(with(".version = RUNNER_DATA_VERSION", ".version = 9") ==
        "usage: data.plugin: " + library +
            " was built for version 9 of the interface of data plug-ins, and this program has version "
            "1; build it again with the header of this program");
  CHECK(with("plugin* runner_data(void)", "plugin* runner_dat(void)").find("the function runner_data() is missing") !=
        std::string::npos);
  CHECK(with(".count = count_texts,", "") == "usage: data.plugin: " + library + " has no function `count`");
  CHECK(with(".record = read_text,", "") ==
        "usage: data.plugin: " + library + " has neither the function `record` nor `fields` and `sample`");
  CHECK(with(".size = sizeof(runner_data_plugin)", ".size = 8")
            .starts_with("usage: data.plugin: " + library + " says that its runner_data_plugin has 8 bytes"));
  CHECK_THAT(refused(folder.write("libtext.so", "no library")), ContainsSubstring("data.plugin: cannot load "));
  CHECK_THAT(refused(folder / "libba.so"), ContainsSubstring("there is no file") && ContainsSubstring("did you mean "));
  auto data = texts_data(file);
  data.options = {{"mots", 3}};
  CHECK(error_of([&] { open_records(data, file); }) ==
        "usage: data.options: the plug-in has no option `mots`; did you mean `most`?");
  data.options = {{"most", 2}};
  CHECK(open_records(data, file)->size() == 2);
  data.plugin_gives = "samples";
  CHECK_THAT(error_of([&] { open_dataset(data, Split::train, 8, 257, ""); }),
             ContainsSubstring("gives records, and samples are"));
}

TEST_CASE("rank 14: mistakes of a plug-in that gives samples are refused with the sample", "[rank14]") {
  const DataFolder folder;
  const auto file = folder.write("rows", "x");
  const auto refused = [&](const std::string& from, const std::string& to) {
    const auto library = build_data_plugin(folder.path, "libbad.so", replaced(plugin_source("rows.cpp"), from, to));
    return error_of([&] {
      const auto rows = open_dataset(rows_data(file, {{"count", 50}}, library), Split::train, 1, 3, "");
      Loader loader(*rows, {.global_batch_size = 50, .micro_batch_size = 5, .shuffle = false, .workers = 3});
      StepBatch step;
      loader.next(step);
    });
  };
  const std::string in_read = "const auto& rows = *static_cast<Rows*>(data);",
                    sample = "usage: data.plugin: " + file + ", sample 7: ";
  CHECK(refused(in_read, in_read + " if (index == 7) throw std::runtime_error(\"no row\");") ==
        sample + "the plug-in libbad.so failed: sample(): no row");
  CHECK(refused(in_read, in_read + " if (index == 7) std::abort();") ==
        sample + "the plug-in libbad.so crashed (Aborted)");
  CHECK(refused(in_read, in_read + " if (index == 7) static_cast<float*>(memory[0])[rows.width] = 1;") ==
        sample +
            "the plug-in libbad.so failed: the plug-in writes behind the end of the field `features`, which has 16 "
            "bytes");
  CHECK(refused("const int64_t label = index % 3;", "const int64_t label = index == 7 ? 3 : index % 3;") ==
        "usage: " + file + ", sample 7: the field `labels` contains 3, and must be at least 0 and less than 3");
  CHECK(refused("const int64_t label = index % 3;", "const int64_t label = index % 20 == 7 ? 3 : index % 3;") ==
        "usage: " + file +
            ", sample 7: the field `labels` contains 3, and must be at least 0 and less than 3 (and at least 2 more "
            "rows: 27, 47)");
  CHECK(refused("const int64_t label = index % 3;", "const int64_t label = index == 7 ? -100 : index % 3;")
            .find("needs a function `weight`") != std::string::npos);
  CHECK_THAT(refused("{\"labels\", RUNNER_DATA_INT64,", "{\"labels\", 17,"), ContainsSubstring("the unknown type 17"));
  CHECK_THAT(refused("number(\"width\", 4)", "number(\"width\", 0)"), ContainsSubstring("width must be at least 1"));
}

TEST_CASE("rank 14: a plug-in states how many targets of a sample count", "[rank14]") {
  const DataFolder folder;
  const auto file = folder.write("rows", "x");
  auto source = replaced(plugin_source("rows.cpp"), "const int64_t label = index % 3;",
                         "const int64_t label = index == 7 ? -100 : index % 3;");
  source = replaced(source, ".weight = nullptr",
                    ".weight = [](void*, int64_t index) -> int64_t { return index == 7 ? 0 : 1; }");
  const auto zero = build_data_plugin(folder.path, "libzero.so", source);
  CHECK_THAT(error_of([&] {
               open_dataset(rows_data(file, {{"count", 50}}, zero), Split::train, 1, 3, "");
             }),
             ContainsSubstring("gives sample 7 the weight 0; it must be at least 1"));
  const auto tokens =
      build_data_plugin(folder.path, "libtokens.so", R"(// Tokens, of which the last one of odd samples does not count.
#include <runner/data_plugin.h>
static int64_t length = 0;
static runner_data_field fields[2] = {{"inputs", RUNNER_DATA_INT64, 1, &length, 64}, {"targets", RUNNER_DATA_INT64, 1, &length, 64}};
static void* open_tokens(const runner_data_request* request, char*, size_t) { length = request->seq_len; return &length; }
static int64_t count_tokens(void*, char*, size_t) { return 9; }
static const runner_data_field* fields_of(void*, uint32_t* count, char*, size_t) { *count = 2; return fields; }
static int64_t weight_of(void*, int64_t index) { return length - index % 2; }
static int read_tokens(void*, int64_t index, void* const* memory, char*, size_t) {
  for (int64_t t = 0; t < length; ++t) {
    static_cast<int64_t*>(memory[0])[t] = (index + t) % 64;
    static_cast<int64_t*>(memory[1])[t] = index % 2 && t + 1 == length ? -100 : (index + t + 1) % 64;
  }
  return 0;
}
const runner_data_plugin* runner_data(void) {
  static const runner_data_plugin plugin = {RUNNER_DATA_VERSION, sizeof(runner_data_plugin), open_tokens, nullptr, count_tokens,
                                            nullptr, 0, fields_of, read_tokens, weight_of};
  return &plugin;
}
)");
  auto data = rows_data(file, json::object(), tokens);
  data.plugin_gives = "samples";
  const auto samples = open_dataset(data, Split::train, 16, 64, "");
  CHECK(missing_fields(token_fields(16), samples->fields()).empty());
  CHECK(samples->weight(4) == 16);
  CHECK(samples->weight(5) == 15);
  const auto [inputs, targets] = read_sample(*samples, 5);
  CHECK(inputs.front() == 5);
  CHECK(targets.back() == -100);
}

TEST_CASE("rank 14: runner check finds what a plug-in gives, and takes sizes from it", "[rank14]") {
  const DataFolder folder;
  Recipe recipe;
  recipe.model.name = "mlp";
  recipe.data = rows_data(folder.write("rows", "x"), {{"count", 50}, {"width", 6}});
  recipe.data.plugin_gives = "auto";
  take_data_facts(recipe);
  CHECK(recipe.data.plugin_gives == "rows");
  CHECK(recipe.model.num_features == 6);
  CHECK(recipe.model.num_labels == 3);
  CHECK(recipe.train.loss == "cross_entropy");
  recipe.model.num_features = 5;
  CHECK(error_of([&] { take_data_facts(recipe); }) ==
        "usage: model.num_features = 5, but the features of data.train are 6");
  recipe.model.num_features = 6;
  recipe.data = texts_data(folder.write("a.texts", texts_file({"one"})));
  recipe.data.plugin_gives = "auto";
  CHECK_THAT(error_of([&] { take_data_facts(recipe); }), ContainsSubstring("gives records, and mlp needs rows"));
  recipe.model.name = "gpt";
  take_data_facts(recipe);
  CHECK(recipe.data.plugin_gives == "records");
}
