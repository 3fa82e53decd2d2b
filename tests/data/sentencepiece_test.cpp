// SentencePiece: training once, round trips, tokenising in parts, the cache.
#include <sentencepiece_trainer.h>
#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sstream>

#include "runner/data/data_check.hpp"
#include "runner/data/formats.hpp"
#include "runner/data/record_reader.hpp"
#include "runner/data/records.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Prose, code and markup in several scripts, with many kinds of white space.
const std::string sample_text =
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness,\n"
    "it was the epoch of belief, it was the epoch of incredulity, it was the season of Light,\r\n\r\n"
    "\tint main() {  return 0x2A;  }   // 42\n"
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.\n\n\n"
    "Съешь же ещё этих мягких французских булок, да выпей чаю.   \n"
    "いろはにほへと ちりぬるを 😀👩‍👩‍👧‍👦 ① ﬁ Å Å \n"
    " leading and trailing spaces \n";

/// `sample_text` with numbered lines between, long enough for several parts.
std::string long_text(size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) {
    text += sample_text;
    for (int k = 0; k < 20; ++k)
      text += "line " + std::to_string(i * 37 + k) + " of the age, the season and the epoch\n";
  }
  return text;
}

struct Fixture {
  DataFolder folder;
  std::string cache = folder / "cache";
  Recipe::Data data;
  explicit Fixture(const std::string& text = long_text(300'000)) : data(text_data({folder.write("corpus.txt", text)})) {
    data.tokenizer = "sentencepiece";
    data.tokenizer_vocab_size = 512;
  }
  std::vector<std::string> cached(const std::string& extension = "") const {
    std::vector<std::string> names;
    if (fs::exists(cache))
      for (const auto& entry : fs::directory_iterator(cache))
        if (extension.empty() || entry.path().extension() == extension)
          names.push_back(entry.path().filename().string());
    return names;
  }
};

/// A model as other tools train it: with a leading space (dummy prefix) and `normalization`.
std::string foreign_model(const DataFolder& folder, const std::string& text, const std::string& normalization,
                          bool squeeze, bool byte_fallback = true) {
  folder.write("foreign.txt", text);
  auto status = sentencepiece::SentencePieceTrainer::Train({{"input", folder / "foreign.txt"},
                                                            {"model_prefix", folder / ("foreign-" + normalization)},
                                                            {"model_type", "bpe"},
                                                            {"vocab_size", "600"},
                                                            {"byte_fallback", byte_fallback ? "true" : "false"},
                                                            {"normalization_rule_name", normalization},
                                                            {"remove_extra_whitespaces", squeeze ? "true" : "false"},
                                                            {"minloglevel", "2"}});
  INFO(status.ToString());
  REQUIRE(status.ok());
  return folder / ("foreign-" + normalization + ".model");
}

}  // namespace

TEST_CASE("a trained tokenizer has the requested size and decodes every text to itself") {
  Fixture fixture;
  auto tokenizer = make_tokenizer(fixture.data, fixture.cache);
  CHECK(tokenizer->vocab_size() == 512);
  CHECK(tokenizer_vocab_size(fixture.data, fixture.cache) == 512);
  for (const std::string& text :
       {sample_text, std::string(), std::string(" "), std::string("   "), std::string("\n"), std::string("a"),
        std::string("unseen: 漢字 ß ¿qué? \u00a0\u200b\ufeff"), std::string(" a  b\t\tc\n\nd ")}) {
    INFO(text);
    CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
  }
  CHECK(tokenizer->encode(sample_text).size() < sample_text.size() / 2);
}

TEST_CASE("the bytes of a character that the model does not know have the place of that character") {
  Fixture fixture;
  auto tokenizer = make_tokenizer(fixture.data, fixture.cache);
  const std::string text = "the 🦊🦊 age";
  size_t of_foxes = 0;
  for (const auto& token : tokenizer->encode_with_offsets(text, false)) {
    CHECK(token.begin < token.end);
    of_foxes += token.begin >= 4 && token.end <= 12;
    if (token.begin > 4 && token.begin < 12) CHECK(token.begin == 8);
  }
  CHECK(of_foxes == 8);
}

TEST_CASE("the space that a model writes before a text is supervised with it") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "jsonl";
  data.train = {folder.write("fox.jsonl", "{\"text\": \"🦊\"}\n")};
  auto tokenizer = open_sentencepiece(foreign_model(folder, long_text(20'000), "nmt_nfkc", false));
  const auto space = tokenizer->token_to_id("\u2581"), bos = tokenizer->special_tokens().bos;
  REQUIRE((space && bos));
  const auto document = make_record_reader(data, data.train, std::move(tokenizer))->read({{"text", "🦊"}});
  REQUIRE(document.tokens.size() == 7);  // BOS, the space, four bytes, EOS
  CHECK(document.tokens[1] == *space);
  for (size_t i = 0; i < document.tokens.size(); ++i) CHECK(document.supervised[i] == (document.tokens[i] != *bos));
}

TEST_CASE("a tokenizer trained on a part of a real text decodes the complete text to itself") {
  fs::path corpus = fs::path(RUNNER_SOURCE_DIR) / ".deps/data/shakespeare.txt";
  if (!fs::exists(corpus)) SKIP("scripts/setup has not downloaded the corpus");
  std::string text = read_file(corpus).substr(0, 400'000);
  Fixture fixture(text.substr(0, 200'000));
  auto tokenizer = make_tokenizer(fixture.data, fixture.cache);
  CHECK(tokenizer->decode(tokenizer->encode(text)) == text);
}

TEST_CASE("a tokenizer is trained once for the same files and size, and again when they change") {
  Fixture fixture;
  auto before = make_tokenizer(fixture.data, fixture.cache)->encode(sample_text);
  auto model = fixture.cached(".model");
  REQUIRE(model.size() == 1);
  auto written = fs::last_write_time(fs::path(fixture.cache) / model[0]);
  CHECK(make_tokenizer(fixture.data, fixture.cache)->encode(sample_text) == before);
  CHECK(fixture.cached(".model") == model);
  CHECK(fs::last_write_time(fs::path(fixture.cache) / model[0]) == written);
  fixture.data.tokenizer_vocab_size = 500;
  make_tokenizer(fixture.data, fixture.cache);
  CHECK(fixture.cached(".model").size() == 2);
  fixture.folder.write("corpus.txt", long_text(200'000));
  make_tokenizer(fixture.data, fixture.cache);
  CHECK(fixture.cached(".model").size() == 3);
}

TEST_CASE("training twice gives the same model") {
  Fixture fixture;
  make_tokenizer(fixture.data, fixture.cache);
  make_tokenizer(fixture.data, fixture.folder / "other");
  auto name = fixture.cached(".model")[0];
  CHECK(read_file(fs::path(fixture.cache) / name) == read_file(fs::path(fixture.folder / "other") / name));
}

TEST_CASE("the dataset of a trained tokenizer has the tokens of the complete text") {
  Fixture fixture;
  auto tokenizer = make_tokenizer(fixture.data, fixture.cache);
  auto dataset = open_dataset(fixture.data, Split::train, 16, 512, fixture.cache);
  auto whole = tokenizer->encode(read_file(fixture.data.train[0]));
  CHECK(dataset->size() == (std::ssize(whole) - 1) / 16);
  whole.resize(static_cast<size_t>(dataset->size() * 16 + 1));
  CHECK(stream_of(*dataset) == std::vector<int64_t>(whole.begin(), whole.end()));
}

TEST_CASE("tokenising a file in parts gives the tokens of the complete file, for models of any kind") {
  DataFolder folder;
  std::string text = long_text(300'000), one_line = text;
  std::ranges::replace(one_line, '\n', ' ');
  for (const auto& [normalization, squeeze] : {std::pair{"identity", false}, {"nmt_nfkc", true}})
    for (const std::string& content : {text, one_line}) {
      if (&content == &one_line && !squeeze) continue;
      INFO(normalization << ", " << content.size());
      const std::shared_ptr<const Tokenizer> model =
          open_sentencepiece(foreign_model(folder, text, normalization, squeeze));
      const auto& tokenizer = *model;
      std::string file = folder.write("text.txt", content);
      const auto cached =
          make_parts(*text_parts({file}, model, folder / ("cache" + std::to_string(content[110])), cached_part_bytes));
      REQUIRE(cached.size() == 1);
      auto tokens = read_file(cached[0]);
      std::vector<uint16_t> found(tokens.size() / 2);
      std::memcpy(found.data(), tokens.data(), tokens.size());
      auto expected = tokenizer.encode(content);
      CHECK(found == std::vector<uint16_t>(expected.begin(), expected.end()));
    }
}

TEST_CASE("each file is tokenised separately, and nothing is inserted between files") {
  DataFolder folder;
  const auto tokenizer = open_sentencepiece(foreign_model(folder, long_text(50'000), "identity", false));
  std::vector<std::string> files{folder.write("b.txt", "the age of wisdom"), folder.write("a.txt", "the season\n")};
  auto expected = tokenizer->encode("the age of wisdom"), second = tokenizer->encode("the season\n");
  expected.insert(expected.end(), second.begin(), second.end());
  auto data = text_data(files);
  data.tokenizer = folder / "foreign-identity.model";
  auto dataset = open_dataset(data, Split::train, 1, 600, folder / "cache");
  CHECK(stream_of(*dataset) == std::vector<int64_t>(expected.begin(), expected.end()));
  CHECK(make_tokenizer(data, folder / "cache")->encode("the season\n") == second);
  CHECK(tokenizer_vocab_size(data, folder / "cache") == 600);
}

TEST_CASE("after prepare_data nothing is left to do, until text or tokenizer change") {
  Fixture fixture;
  fixture.data.validation = {fixture.folder.write("validation.txt", sample_text)};
  prepare_data(fixture.data, fixture.cache);
  CHECK(fixture.cached(".model").size() == 1);
  CHECK(fixture.cached(".bin").size() == 2);
  CHECK(fixture.cached().size() == 3);
  open_dataset(fixture.data, Split::train, 16, 512, fixture.cache);
  open_dataset(fixture.data, Split::validation, 16, 512, fixture.cache);
  prepare_data(fixture.data, fixture.cache);
  CHECK(fixture.cached().size() == 3);
  fixture.folder.write("validation.txt", sample_text + "more");
  prepare_data(fixture.data, fixture.cache);
  CHECK(fixture.cached(".model").size() == 1);
  CHECK(fixture.cached(".bin").size() == 3);
  fixture.data.tokenizer_vocab_size = 500;
  prepare_data(fixture.data, fixture.cache);
  CHECK(fixture.cached(".model").size() == 2);
  CHECK(fixture.cached(".bin").size() == 5);
}

TEST_CASE("records train one model on the texts that the run reads, of all sources") {
  DataFolder folder;
  std::string chats, pairs;
  for (int i = 0; i < 400; ++i) {
    const auto line = fmt::format("line {} of the age, the season and the epoch", i * 37 % 1000);
    const JsonRecord question = {{"role", "user"}, {"content", line}},
                     answer = {{"role", "assistant"}, {"content", "foolishness"}};
    chats += JsonRecord{{"messages", {question, answer}}, {"source", "wxqj wxqj"}}.dump() + "\n";
    pairs += JsonRecord{{"instruction", line}, {"output", "Zwölf Boxkämpfer"}}.dump() + "\n";
  }
  Recipe::Data data;
  data.format = "jsonl";
  data.chat_template = "chatml";
  data.tokenizer = "sentencepiece";
  data.tokenizer_vocab_size = 400;
  data.sources = {{.name = "chats", .train = {folder.write("chats.jsonl", chats)}},
                  {.name = "pairs", .train = {folder.write("pairs.jsonl", pairs)}, .layout = "alpaca"}};
  CHECK(find_data_problems(data, 64, 400, folder / "cache").empty());
  CHECK(data_notes(data).empty());
  CHECK_FALSE(fs::exists(folder / "cache"));  // no model is trained to check the data
  prepare_data(data, folder / "cache");
  const auto tokenizer = make_tokenizer(data, folder / "cache");
  const auto pieces = [&](const char* text) { return tokenizer->encode(text).size(); };
  CHECK(pieces("<|im_start|>") == 1);
  CHECK(pieces("foolishness") < 3);
  CHECK(pieces("Boxkämpfer") < 4);
  CHECK(pieces("wxqj") == 4);  // it is in a column that the run does not read
  CHECK(pieces("assistant\n") <= 2);
  const auto samples = open_dataset(data, Split::train, 64, 400, folder / "cache");
  REQUIRE(samples->size() == 800);
  int64_t models = 0;
  for (const auto& entry : fs::directory_iterator(folder / "cache")) models += entry.path().extension() == ".model";
  CHECK(models == 1);

  Recipe::Data labelled;
  labelled.format = "csv";
  labelled.objective = "classification";
  labelled.target = {"label"};
  labelled.tokenizer = "sentencepiece";
  labelled.tokenizer_vocab_size = 300;
  std::string table = "text,label\n";
  for (int i = 0; i < 200; ++i) table += fmt::format("the worst of times {},{}\n", i, i % 2 ? "wxqj" : "jqxw");
  labelled.train = {folder.write("labels.csv", table)};
  const auto of_texts = make_tokenizer(labelled, folder / "cache");
  CHECK(of_texts->encode("worst").size() < 3);
  CHECK(of_texts->encode("wxqj").size() >= 4);
}

TEST_CASE("a record that is wrong ends the training of a model with its place") {
  DataFolder folder;
  Recipe::Data data;
  data.format = "jsonl";
  data.train = {folder.write("a.jsonl", "{\"text\": \"the season of Light\"}\n{\"text\": 5}\n")};
  data.tokenizer = "sentencepiece";
  data.tokenizer_vocab_size = 300;
  CHECK_THAT(error_of([&] { make_tokenizer(data, folder / "cache"); }),
             ContainsSubstring("usage: " + data.train[0] + ":2: "));
}

TEST_CASE("of more than 64 MiB, every second line trains a model") {
  std::istringstream lines(long_text(size_t{40} << 20));
  std::string text;
  for (std::string line; std::getline(lines, line);)
    if (!line.empty()) text += line + "\n" + "wxqj wxqj wxqj wxqj wxqj wxqj wxqj wxqj wxqj\n";
  REQUIRE(text.size() > size_t{64} << 20);
  const Fixture fixture(text);
  const auto tokenizer = make_tokenizer(fixture.data, fixture.cache);
  CHECK(tokenizer->encode("season").size() < 3);
  CHECK(tokenizer->encode("wxqj").size() == 4);
}

TEST_CASE("prepare_data finds wrong files before any worker starts") {
  DataFolder folder;
  CHECK(error_of([&] { prepare_data(text_data({folder / "none"}), "unused"); }) ==
        "usage: data.train: there is no file " + folder / "none");
  CHECK_THAT(error_of([&] { prepare_data(text_data({folder.write("bad", "a\xff")}), "unused"); }),
             ContainsSubstring("is not UTF-8"));
  CHECK_THAT(error_of([&] { prepare_data(bin_data({folder.write("odd", "abc")}), "unused"); }),
             ContainsSubstring("not a whole number"));
  auto data = text_data({folder.write("good", "abc")});
  data.validation = {folder / "no"};
  CHECK_THAT(error_of([&] { prepare_data(data, "unused"); }), ContainsSubstring("data.validation: there is no file"));
  CHECK_FALSE(fs::exists("unused"));
}

TEST_CASE("two processes that prepare the same data make one model and one token file") {
  Fixture fixture;
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    pid_t child = ::fork();
    if (child == 0) ::_exit(error_of([&] { prepare_data(fixture.data, fixture.cache); }).empty() ? 0 : 1);
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(fixture.cached().size() == 2);
  Recipe::Data alone = fixture.data;
  prepare_data(alone, fixture.folder / "alone");
  for (const auto& name : fixture.cached())
    CHECK(read_file(fs::path(fixture.cache) / name) == read_file(fs::path(fixture.folder / "alone") / name));
}

TEST_CASE("text that is not UTF-8 stops tokenising with its position, and nothing remains in the cache") {
  DataFolder folder;
  std::string model = foreign_model(folder, long_text(50'000), "identity", false);
  std::string text = long_text(3'000'000);
  text[2'900'000] = '\xff';
  auto data = text_data({folder.write("bad.txt", text)});
  data.tokenizer = model;
  CHECK_THAT(error_of([&] { prepare_data(data, folder / "cache"); }),
             ContainsSubstring(folder / "bad.txt" + " is not UTF-8: byte 0xff at offset 2900000 (line "));
  CHECK(fs::is_empty(folder / "cache"));
  auto found = find_data_problems(data, 16, 512, folder / "cache");  // before a run starts
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0].message, ContainsSubstring("byte 0xff at offset 2900000"));
}

TEST_CASE("text that the tokenizer does not know gives a note with its share") {
  DataFolder folder;
  const std::string model = foreign_model(folder, long_text(50'000), "nmt_nfkc", true, /*byte_fallback=*/false);
  const auto note = [&](const std::string& text) {
    auto data = text_data({folder.write("a.txt", text)});
    data.tokenizer = model;
    auto notes = data_notes(data);
    return notes.empty() ? std::string() : notes[0];
  };
  CHECK(note(long_text(1000)).empty());
  std::string greek;
  while (greek.size() < 1000) greek += "\u03b1\u03b2\u03b3 a ";
  CHECK_THAT(note(greek), ContainsSubstring("% of the tokens at the beginning of data.train are <unk>"));
}

TEST_CASE("a missing tokenizer is refused with a solution") {
  Fixture fixture("a few words only\n");
  auto error = [&] { return error_of([&] { make_tokenizer(fixture.data, fixture.cache); }); };
  CHECK_THAT(error(),
             ContainsSubstring("usage: data.tokenizer_vocab_size = 512 is too large: the texts give at most "));
  fixture.data.tokenizer_vocab_size = 100;
  CHECK(error() ==
        "usage: data.tokenizer_vocab_size = 100 is too small: the texts need at least 271 tokens, for their "
        "characters, for bytes, and special ones");
  CHECK(fs::is_empty(fixture.cache));
  fixture.data.tokenizer_vocab_size.reset();
  CHECK(error() ==
        "usage: data.tokenizer = \"sentencepiece\" trains a tokenizer and needs data.tokenizer_vocab_size, for example "
        "8192");
  fixture.data.tokenizer = fixture.folder / "sentencepeice";
  CHECK(error() == "usage: data.tokenizer: there is no file " + fixture.data.tokenizer +
                       ", and it is neither \"bytes\" nor \"sentencepiece\"; did you mean sentencepiece?");
  fixture.data.tokenizer = fixture.folder / "corpsu.txt";
  CHECK(error() == "usage: data.tokenizer: there is no file " + fixture.data.tokenizer +
                       ", and it is neither \"bytes\" nor \"sentencepiece\"; did you mean corpus.txt?");
  fixture.data.tokenizer = fixture.folder.path.string();
  CHECK(
      error() ==
      "usage: data.tokenizer: " + fixture.data.tokenizer +
          " is a folder without a tokenizer: it has neither tokenizer.json nor tokenizer.model nor a file *.tiktoken");
  for (const char* content : {"", "not a model at all"}) {
    fixture.data.tokenizer = fixture.folder.write("junk.model", content);
    CHECK(error() == "usage: data.tokenizer: " + fixture.data.tokenizer +
                         " is neither a tokenizer.json nor a SentencePiece model nor a tiktoken file");
  }
}

TEST_CASE("the smallest vocabulary is known before a tokenizer is trained, and is the one that can be trained") {
  std::string text = "A tab\tis no character of the vocabulary, and a space is one.\n";
  for (int i = 0; i < 300; ++i)
    text += std::string("\xE4") + static_cast<char>(0xB8 + i / 64) + static_cast<char>(0x80 + i % 64);
  Fixture fixture(text + "\n");
  const auto problems = [&](int64_t size) {
    fixture.data.tokenizer_vocab_size = size;
    const auto found = find_data_problems(fixture.data, 4, size, fixture.cache);
    return found.empty() ? std::string() : found[0].key + " | " + found[0].message;
  };
  const auto refused = problems(320);
  CHECK(refused.starts_with(
      "data.tokenizer_vocab_size | data.tokenizer_vocab_size = 320 is too small: the texts need at least "));
  const auto needed = std::stoll(refused.substr(refused.find("least ") + 6));
  CHECK_FALSE(problems(needed - 1).empty());
  CHECK(problems(needed).empty());
  CHECK(fixture.cached().empty());
  CHECK(make_tokenizer(fixture.data, fixture.cache)->vocab_size() == needed);
}

TEST_CASE("a corpus of blank lines cannot train a tokenizer") {
  Fixture fixture("\n\n\n");
  CHECK_THAT(error_of([&] { make_tokenizer(fixture.data, fixture.cache); }),
             ContainsSubstring("usage: data.tokenizer_vocab_size = 512: "));
}

TEST_CASE("ids outside the vocabulary are not decoded, and a model with a smaller vocabulary is refused") {
  Fixture fixture;
  auto tokenizer = make_tokenizer(fixture.data, fixture.cache);
  CHECK(error_of([&] { tokenizer->decode(std::vector<int32_t>{512}); }) ==
        "usage: token 512 is not in the tokenizer's vocabulary of 512");
  CHECK(error_of([&] { open_dataset(fixture.data, Split::train, 16, 300, fixture.cache); }) ==
        "usage: data.tokenizer = \"sentencepiece\" has 512 tokens, but the model's vocabulary has only 300; set "
        "model.vocab_size to 512 or more");
}
