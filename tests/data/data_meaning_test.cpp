// Changes that give a position in the data another meaning, and changes that do not.
#include "runner/data/data_meaning.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>

#include "support.hpp"
#include "tests/support/trained_bpe.hpp"

using namespace runner;
using namespace runner::test;
using nlohmann::json;

namespace {

struct Meaning {
  DataFolder folder;
  Recipe recipe;
  int64_t global_batch_size = 12;
  Meaning() {
    recipe.data = text_data({folder.write("a.txt", "first"), folder.write("b.txt", "second")});
    recipe.data.seq_len = 32;
  }
  json now() const { return data_meaning(recipe, global_batch_size, folder / "cache"); }
};

using Changes = std::vector<std::string>;

}  // namespace

TEST_CASE("each key that changes the meaning of a position is named, with its old and new value") {
  struct Row {
    std::function<void(Recipe&)> change;
    Changes said;
  };
  const std::vector<Row> table{
      {[](Recipe&) {}, {}},
      {[](Recipe& recipe) { recipe.data.seq_len = 64; }, {"data.seq_len was 32 and is 64"}},
      {[](Recipe& recipe) { recipe.run.seed = 9; }, {"run.seed was 1234 and is 9"}},
      {[](Recipe& recipe) { recipe.data.shuffle = false; }, {"data.shuffle was true and is false"}},
      {[](Recipe& recipe) { recipe.data.validation_fraction = 0.5; },
       {"data.validation_fraction was not set and is 0.5"}},
      {[](Recipe& recipe) { recipe.data.train.pop_back(); }, {"the number of files in data.train was 2 and is 1"}},
      {[](Recipe& recipe) { recipe.optimizer.lr = 1; }, {}},
      {[](Recipe& recipe) { recipe.data.prefetch = 7; }, {}}};
  for (const auto& row : table) {
    Meaning meaning;
    const json before = json::parse(meaning.now().dump());
    row.change(meaning.recipe);
    CHECK(changed_meaning(before, meaning.now()) == row.said);
  }
}

TEST_CASE("without shuffling, seed and batch size do not change the meaning of a position") {
  Meaning meaning;
  meaning.recipe.data.shuffle = false;
  const json before = meaning.now();
  meaning.recipe.run.seed = 9;
  meaning.global_batch_size = 24;
  CHECK(changed_meaning(before, meaning.now()).empty());
  CHECK(meaning.now().at("global_batch_size") == 24);
}

TEST_CASE("a file with changed content is named, also with equal size and modification time") {
  Meaning meaning;
  const json before = meaning.now();
  const std::string file = meaning.folder / "b.txt";
  struct stat status {};
  REQUIRE(::stat(file.c_str(), &status) == 0);
  meaning.folder.write("b.txt", "SECOND");
  const timespec times[2] = {status.st_atim, status.st_mtim};
  REQUIRE(::utimensat(AT_FDCWD, file.c_str(), times, 0) == 0);
  CHECK(changed_meaning(before, meaning.now()) == Changes{"the content of " + file + " has changed"});
  meaning.folder.write("b.txt", "second");
  CHECK(changed_meaning(before, meaning.now()).empty());
}

TEST_CASE("files may be moved, but their order must not change") {
  Meaning meaning;
  const json before = meaning.now();
  fs::rename(meaning.folder / "b.txt", meaning.folder / "moved.txt");
  meaning.recipe.data.train[1] = meaning.folder / "moved.txt";
  CHECK(changed_meaning(before, meaning.now()).empty());
  std::swap(meaning.recipe.data.train[0], meaning.recipe.data.train[1]);
  CHECK(changed_meaning(before, meaning.now()) == Changes{"data.train: " + meaning.folder / "moved.txt" +
                                                          " has other contents than " + meaning.folder / "a.txt"});
}

TEST_CASE("changed validation data are named, and need no training data") {
  Meaning meaning;
  auto& data = meaning.recipe.data;
  const auto now = [&] { return validation_meaning(data, meaning.folder / "cache"); };
  CHECK(now().empty());
  const std::string file = meaning.folder.write("v.txt", "third");
  data.validation = {file};
  const json text = now();
  data.format = "images";
  fs::create_directories(meaning.folder.path / "images" / "cat");
  meaning.folder.write("images/cat/1.png", "first");
  data.validation = {meaning.folder / "images"};
  const json images = now();
  meaning.folder.write("images/cat/2.png", "other");
  CHECK(changed_meaning(images, now()) ==
        Changes{"images of data.validation were added, removed, renamed, or have other sizes"});
  data = text_data({meaning.folder / "gone.txt"});
  data.validation = {file};
  CHECK(changed_meaning(text, now()).empty());
  meaning.folder.write("v.txt", "THIRD");
  CHECK(changed_meaning(text, now()) == Changes{"the content of " + file + " has changed"});
  data.validation.push_back(meaning.folder / "a.txt");
  CHECK(changed_meaning(text, now()).front() == "the number of files in data.validation was 1 and is 2");
}

TEST_CASE("a checkpoint of an older version had no targets for white space whose offsets the tokenizer trims") {
  Meaning meaning;
  const auto& folder = meaning.folder;
  meaning.recipe.data.format = "jsonl";
  meaning.recipe.data.train = {folder.write("a.jsonl", R"({"text": "a  b"})")};
  const auto noted = [&](const char* post_processor, const json& before) {
    auto tokenizer = json::parse(trained_bpe("", 258, {"<s>", "</s>"}));
    tokenizer["post_processor"] = json::parse(post_processor);
    meaning.recipe.data.tokenizer = folder.write("tokenizer.json", tokenizer.dump());
    return !older_targets_note(before, meaning.now(), meaning.recipe.data, folder / "cache").empty();
  };
  for (const char* trims :
       {R"({"type": "ByteLevel"})", R"({"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<s>", 0]})",
        R"({"type": "Sequence", "processors": [{"type": "ByteLevel", "trim_offsets": true}]})"}) {
    CHECK(noted(trims, json::object()));
    CHECK_FALSE(noted(trims, meaning.now()));
  }
  for (const char* keeps : {"null", R"({"type": "ByteLevel", "trim_offsets": false})"})
    CHECK_FALSE(noted(keeps, json::object()));
  meaning.recipe.data = text_data({folder / "a.txt"});
  CHECK(older_targets_note(json::object(), meaning.now(), meaning.recipe.data, folder / "cache").empty());
}

TEST_CASE("files are hashed once, and again after a change") {
  Meaning meaning;
  const json before = meaning.now();
  auto cached = [&] {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(meaning.folder / "cache")) files.push_back(entry.path());
    return files;
  };
  REQUIRE(cached().size() == 1);
  std::ofstream(cached()[0]) << R"([{"path": "a.txt", "bytes": 1, "xxh3": "from the cache"}])";
  CHECK(meaning.now().at("files")[0].at("xxh3") == "from the cache");
  meaning.folder.write("a.txt", "first, and more");
  CHECK(meaning.now().at("files").size() == 2);
  CHECK(cached().size() == 2);
}

TEST_CASE("of large files, blocks spread over the length are hashed, including the first and the last") {
  Meaning meaning;
  const std::string file = meaning.folder.write("large.bin", "");
  constexpr int64_t size = 3 << 20, hashed = 1 << 20;
  auto write_at = [&](int64_t offset) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(offset);
    stream.write("changed", 7);
  };
  fs::resize_file(file, size);
  meaning.recipe.data = bin_data({file});
  meaning.recipe.data.seq_len = 32;
  auto now_hashed = [&] { return data_meaning(meaning.recipe, 12, meaning.folder / "cache", hashed); };
  json before = now_hashed();
  // 16 blocks of 64 KiB; the 9th starts at 1,642,769
  for (int64_t offset : {int64_t{0}, int64_t{1'642'900}, size - 7}) {
    write_at(offset);
    json now = now_hashed();
    CHECK(changed_meaning(before, now) == Changes{"the content of " + file + " has changed"});
    before = now;
  }
}

TEST_CASE("a value that a checkpoint of an older version does not contain is not compared") {
  Meaning meaning;
  CHECK(changed_meaning(json::object(), meaning.now()).empty());
  CHECK(changed_meaning({{"data.seq_len", 16}}, meaning.now()) == Changes{"data.seq_len was 16 and is 32"});
}

TEST_CASE("the keys that change the meaning of a position are known without data") {
  for (const char* format : {"text", "bin"})
    for (bool shuffle : {true, false}) {
      Meaning meaning;
      meaning.recipe.data.format = format;
      meaning.recipe.data.shuffle = shuffle;
      const json now = meaning.now();
      for (const auto& [key, value] : now.items())
        if (key != "files" && key != "global_batch_size") CHECK(changes_meaning(meaning.recipe, key));
      CHECK(changes_meaning(meaning.recipe, "data.train"));
      CHECK(changes_meaning(meaning.recipe, "run.seed") == shuffle);
      CHECK_FALSE(changes_meaning(meaning.recipe, "optimizer.lr"));
    }
}

TEST_CASE("the keys that change images are part of their meaning") {
  Meaning meaning;
  for (const char* name : {"cat", "dog"}) {
    fs::create_directories(meaning.folder.path / "images" / name);
    meaning.folder.write(std::string("images/") + name + "/1.png", name);
  }
  meaning.recipe.data.format = "images";
  meaning.recipe.data.train = {meaning.folder / "images"};
  const json before = meaning.now();
  for (const auto& [key, value] : before.items())
    if (key.starts_with("data.") && key != "data.validation_fraction") CHECK(changes_meaning(meaning.recipe, key));
  meaning.recipe.data.mixup = 0.2;
  CHECK(changed_meaning(before, meaning.now()) == Changes{"data.mixup was 0.0 and is 0.2"});
}

TEST_CASE("an image whose content changes without a change of its size is noticed, and its class is named") {
  Meaning meaning;
  const auto& folder = meaning.folder;
  for (const char* name : {"cat", "dog"}) fs::create_directories(folder.path / "images" / name);
  const auto write = [&](const std::string& name, const std::string& bytes) { folder.write("images/" + name, bytes); };
  write("cat/1.png", "first");
  write("cat/2.png", "other");
  write("dog/1.png", "third");
  meaning.recipe.data.format = "images";
  meaning.recipe.data.train = {folder / "images"};
  const json before = json::parse(meaning.now().dump());
  CHECK(changed_meaning(before, meaning.now()).empty());
  write("dog/1.png", "THIRD");
  CHECK(changed_meaning(before, meaning.now()) == Changes{"the content of an image of the class `dog` has changed"});
  // Of data that are too large to be hashed, evenly spaced images are.
  const auto part = [&] { return data_meaning(meaning.recipe, 12, folder / "cache", /*hashed_bytes=*/10); };
  const json partly = part();
  write("cat/2.png", "OTHER");
  CHECK(changed_meaning(partly, part()) == Changes{"the content of an image of the class `cat` has changed"});
  write("cat/3.png", "more");
  CHECK(changed_meaning(before, meaning.now()).back() ==
        "images of data.train were added, removed, renamed, or have other sizes");
}
