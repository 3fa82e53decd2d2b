// Text as bytes: several files as one stream, refusals, and large files that are opened without reading.
#include <sys/mman.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <thread>

#include "runner/data/formats.hpp"
#include "runner/data/utf8.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;
using namespace std::string_literals;

namespace {

std::vector<int64_t> ids(std::string_view text) {
  std::vector<int64_t> tokens;
  for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string opening_error(const Recipe::Data& data, int64_t seq_len = 4, int64_t vocab_size = 256) {
  return error_of([&] { open_dataset(data, Split::train, seq_len, vocab_size, "unused"); });
}

/// A sparse file of `size` zero bytes with `patch` at `offset`.
std::string sparse_file(const DataFolder& folder, int64_t size, int64_t offset, std::string_view patch) {
  std::string path = folder.write("sparse", "");
  fs::resize_file(path, static_cast<uintmax_t>(size));
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(offset);
  file << patch;
  return path;
}

int64_t resident_pages(const std::string& path) {
  MappedFile map(path);
  std::vector<unsigned char> pages((map.bytes().size() + 4095) / 4096);
  REQUIRE(::mincore(const_cast<std::byte*>(map.bytes().data()), map.bytes().size(), pages.data()) == 0);
  return std::ranges::count_if(pages, [](unsigned char page) { return page & 1; });
}

constexpr int64_t MiB = int64_t{1} << 20;

}  // namespace

TEST_CASE("sample k has the bytes k*T to k*T + T, and the targets are the inputs shifted by one") {
  DataFolder folder;
  auto dataset = open_dataset(text_data({folder.write("a.txt", "abcdefghij")}), Split::train, 3, 256, "unused");
  CHECK(dataset->size() == 3);
  CHECK(dataset->fields().at(token_field::inputs).row == std::vector<int64_t>{3});
  CHECK(dataset->weight(0) == 3);
  CHECK(read_sample(*dataset, 0) == Sample{ids("abc"), ids("bcd")});
  CHECK(read_sample(*dataset, 2) == Sample{ids("ghi"), ids("hij")});
  CHECK_THROWS_AS(read_sample(*dataset, 3), std::logic_error);
}

TEST_CASE("the number of samples is floor((N - 1) / T)") {
  DataFolder folder;
  for (int64_t tokens = 5; tokens < 40; ++tokens) {
    auto data = text_data({folder.write("a.txt", std::string(static_cast<size_t>(tokens), 'x'))});
    CHECK(open_dataset(data, Split::train, 4, 256, "unused")->size() == (tokens - 1) / 4);
  }
}

TEST_CASE("several files are one stream in the given order, for any cut") {
  DataFolder folder;
  const std::string text = "The quick brown fox jumps over the lazy dog. Zwölf Boxkämpfer jagen Viktor.";
  const auto sharp = text.find("ö");
  for (size_t cut : {size_t{1}, size_t{5}, sharp, sharp + 2, text.size() - 1}) {
    auto data =
        text_data({folder.write("b.txt", text.substr(0, cut)), folder.write("a.txt", text.substr(cut, 1 + cut / 9)),
                   folder.write("c.txt", text.substr(std::min(text.size(), cut + 1 + cut / 9)))});
    if (fs::file_size(data.train[2]) == 0) data.train.pop_back();
    INFO("cut at " << cut);
    for (int64_t seq_len : {1, 2, 7, 38}) {
      auto dataset = open_dataset(data, Split::train, seq_len, 256, "unused");
      auto expected = ids(text);
      expected.resize(static_cast<size_t>(dataset->size() * seq_len + 1));
      CHECK(stream_of(*dataset) == expected);
    }
  }
}

TEST_CASE("files that cannot be read as data are refused with key, path and nearest name") {
  DataFolder folder;
  std::string file = folder.write("corpus.txt", "some text"), empty = folder.write("empty.txt", "");
  CHECK(opening_error(text_data({})) == "usage: data.train names no file");
  CHECK(opening_error(text_data({folder / "corpsu.txt"})) ==
        "usage: data.train: there is no file " + folder / "corpsu.txt" + "; did you mean corpus.txt?");
  CHECK(opening_error(text_data({folder / "zzzzzzzzzz"})) ==
        "usage: data.train: there is no file " + folder / "zzzzzzzzzz");
  CHECK(opening_error(text_data({folder / "none/corpus.txt"})) == "usage: data.train: there is no file " +
                                                                      folder / "none/corpus.txt" +
                                                                      ": there is no folder " + folder / "none");
  CHECK(opening_error(text_data({file + "/x"})) ==
        "usage: data.train: there is no file " + file + "/x: there is no folder " + file);
  CHECK(opening_error(text_data({folder / "https:/host.org/a.txt"})) ==
        "usage: data.train: https:/host.org/a.txt is an address; download the file, and name the copy");
  CHECK(opening_error(text_data({file, empty})) == "usage: data.train: " + empty + " is empty");
  CHECK(opening_error(text_data({folder.path.string()})) ==
        "usage: data.train: " + folder.path.string() + " is a folder; name the files in it");
  CHECK(opening_error(text_data({"/dev/null"})) ==
        "usage: data.train: /dev/null is not a regular file, so it cannot be mapped");
  auto data = text_data({file});
  data.validation = {folder / "corpus.tx"};
  CHECK(error_of([&] { open_dataset(data, Split::validation, 4, 256, "unused"); }) ==
        "usage: data.validation: there is no file " + folder / "corpus.tx" + "; did you mean corpus.txt?");
}

TEST_CASE("an unknown format is refused with the nearest known one") {
  auto data = text_data({"x"});
  data.format = "txt";
  CHECK(opening_error(data) ==
        "usage: data.format = \"txt\": it can be text, bin, jsonl, parquet, csv, plugin or images; did you mean text?");
  data.format = "orc";
  CHECK(opening_error(data) ==
        "usage: data.format = \"orc\": it can be text, bin, jsonl, parquet, csv, plugin or images");
}

TEST_CASE("text too short for one sample is refused with the required size") {
  DataFolder folder;
  std::string four = folder.write("four.txt", "abcd"), five = folder.write("five.txt", "abcde");
  CHECK(opening_error(text_data({four})) ==
        "usage: data.train: " + four + " has 4 tokens; one sample of data.seq_len = 4 needs 5");
  CHECK(opening_error(text_data({four, four}), 9) ==
        "usage: data.train: 2 files has 8 tokens; one sample of data.seq_len = 9 needs 10");
  CHECK(open_dataset(text_data({five}), Split::train, 4, 256, "unused")->size() == 1);
}

TEST_CASE("a vocabulary smaller than 256 is refused") {
  DataFolder folder;
  CHECK(opening_error(text_data({folder.write("a.txt", "abcdefg")}), 4, 100) ==
        "usage: data.tokenizer = \"bytes\" has 256 tokens, but the model's vocabulary has only 100; set "
        "model.vocab_size to "
        "256 or more");
}

TEST_CASE("bytes that are not UTF-8 are reported with file, offset and line") {
  DataFolder folder;
  auto error = [&](const std::string& content) { return opening_error(text_data({folder.write("bad.txt", content)})); };
  const std::string advice = "; convert it, for example with iconv -f LATIN1 -t UTF-8", path = folder / "bad.txt";
  CHECK(error("one\ntwo caf\xe9 three\n") ==
        "usage: " + path + " is not UTF-8: byte 0xe9 at offset 11 (line 2)" + advice);
  CHECK(error("plain text \xc3") == "usage: " + path + " is not UTF-8: byte 0xc3 at offset 11 (line 1)" + advice);
  CHECK(error("\xff\xfe"s + "w\0i\0d\0e\0") ==
        "usage: " + path + " is not UTF-8: byte 0xff at offset 0 (line 1)" + advice);
}

TEST_CASE("UTF-8 is checked across the borders of read windows") {
  for (size_t shift = 0; shift < 8; ++shift) {
    std::string text(65536 - 8 + shift, 'x');
    for (int i = 0; i < 40000; ++i) text += "\xf0\x9f\x98\x80";
    CHECK_NOTHROW(check_utf8("f", text, 0, text.size()));
    for (size_t bad : {text.size() - 1, size_t{65536} + shift, size_t{131072}}) {
      std::string broken = text;
      broken[bad] = 'x';
      size_t character = bad - (bad - (65536 - 8 + shift)) % 4;
      size_t expected = bad == character ? bad + 1 : character;  // an isolated or a missing continuation byte
      CHECK_THAT(error_of([&] { check_utf8("f", broken, 0, broken.size()); }),
                 Catch::Matchers::ContainsSubstring("at offset " + std::to_string(expected) + " "));
    }
  }
}

TEST_CASE("the check of a range includes the characters that extend into it, and no others") {
  const std::string text =
      "a\xff"
      "b\xe2\x82\xac"
      "c\xff";
  for (size_t begin = 2; begin <= 7; ++begin)
    for (size_t end = begin; end <= 7; ++end) CHECK_NOTHROW(check_utf8("f", text, begin, end));
  CHECK_THROWS_AS(check_utf8("f", text, 1, 2), Error);
  CHECK_THROWS_AS(check_utf8("f", text, 5, 8), Error);
}

TEST_CASE("opening a large file reads nothing, and reading a sample reads only its neighbourhood") {
  DataFolder folder;
  const int64_t size = 5000 * MiB;
  std::string path = sparse_file(folder, size, size - 3, "end");
  int64_t before = resident_pages(path);
  auto dataset = open_dataset(text_data({path}), Split::train, 1024, 256, "unused");
  CHECK(resident_pages(path) == before);
  CHECK(dataset->size() == (size - 1) / 1024);
  auto last = read_sample(*dataset, dataset->size() - 1);
  CHECK(last.targets[1020] == 0);
  read_sample(*dataset, dataset->size() / 2);
  CHECK(resident_pages(path) - before < 4096);
}

TEST_CASE("a large file is checked sample by sample") {
  DataFolder folder;
  const int64_t seq_len = 1024, bad_sample = 270 * 1024;
  std::string path = sparse_file(folder, 280 * MiB, bad_sample * seq_len + 100, "\xff");
  auto dataset = open_dataset(text_data({path}), Split::train, seq_len, 256, "unused");
  CHECK_NOTHROW(read_sample(*dataset, bad_sample - 1));
  CHECK_NOTHROW(read_sample(*dataset, bad_sample + 1));
  CHECK(error_of([&] { read_sample(*dataset, bad_sample); }) ==
        "usage: " + path + " is not UTF-8: byte 0xff at offset " + std::to_string(bad_sample * seq_len + 100) +
            "; convert it, for example with iconv -f LATIN1 -t UTF-8");
}

TEST_CASE("a character that spans two samples of a large file is valid") {
  DataFolder folder;
  const int64_t seq_len = 1024;
  std::string path = sparse_file(folder, 280 * MiB, 7 * seq_len - 2, "\xf0\x9f\x98\x80");
  auto dataset = open_dataset(text_data({path}), Split::train, seq_len, 256, "unused");
  CHECK(read_sample(*dataset, 6).inputs.back() == 0x9f);
  CHECK(read_sample(*dataset, 7).inputs.front() == 0x98);
}

TEST_CASE("several threads may read a dataset at once") {
  DataFolder folder;
  std::string text;
  for (int i = 0; i < 30000; ++i) text += std::to_string(i) + "é\n";
  auto dataset =
      open_dataset(text_data({folder.write("a", text), folder.write("b", text)}), Split::train, 100, 256, "unused");
  auto expected = stream_of(*dataset);
  std::vector<std::vector<int64_t>> found(4);
  {
    std::vector<std::jthread> threads;
    for (auto& tokens : found) threads.emplace_back([&] { tokens = stream_of(*dataset); });
  }
  for (const auto& tokens : found) CHECK(tokens == expected);
}

TEST_CASE("the bytes tokenizer decodes any text to itself, and refuses ids that are not bytes") {
  Recipe::Data data = text_data({});
  auto tokenizer = make_tokenizer(data, "unused");
  CHECK(tokenizer->vocab_size() == 256);
  CHECK(tokenizer_vocab_size(data, "unused") == 256);
  CHECK(tokenizer->encode("hé") == std::vector<int32_t>{'h', 0xc3, 0xa9});
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  CHECK(tokenizer->decode(tokenizer->encode(all)) == all);
  CHECK(error_of([&] {
          tokenizer->decode(std::vector<int32_t>{1, 256});
        }) == "usage: token 256 is not a byte: the tokenizer \"bytes\" has tokens 0 to 255");
}

TEST_CASE("bytes that continue no character are refused by a tokenizer that cannot split a text") {
  struct Unsplit final : Tokenizer {
    int64_t vocab_size() const override { return 256; }
    std::vector<int32_t> encode(std::string_view, bool) const override { return {}; }
    std::vector<Token> encode_with_offsets(std::string_view, bool) const override { return {}; }
    std::string decode(std::span<const int32_t>, bool) const override { return ""; }
    std::optional<int32_t> token_to_id(std::string_view) const override { return {}; }
    std::optional<std::string> id_to_token(int32_t) const override { return {}; }
    SpecialTokens special_tokens() const override { return {}; }
    bool is_special(int32_t) const override { return false; }
    std::optional<size_t> safe_split(std::string_view, size_t) const override { return {}; }
    std::vector<int32_t> encode_continuation(std::string_view) const override { return {}; }
    const std::string& hash() const override { return name; }
    std::string name = "unsplit";
  };
  DataFolder folder;
  const auto path = folder.write("a.txt", "a" + std::string(size_t{17} << 20, '\x80'));
  const auto parts = text_parts({path}, std::make_shared<Unsplit>(), folder / "cache", cached_part_bytes);
  CHECK(parts->count() == 2);
  CHECK(error_of([&] {
          parts->make(0, nullptr);
        }).starts_with("usage: " + path + " is not UTF-8: byte 0x80 at offset 1"));
}

TEST_CASE("text is cut after a line end, else before a word, else between characters, and nothing is lost") {
  CHECK(first_chunk("short", 100) == "short");
  CHECK(first_chunk("one\ntwo\nthree", 10) == "one\ntwo\n");
  CHECK(first_chunk("one two three", 10) == "one two");
  CHECK(first_chunk("one two   three", 9) == "one two");
  CHECK(first_chunk("         three", 5) == "     ");
  CHECK(first_chunk("aé€😀", 4) == "aé");
  CHECK(first_chunk("aé€😀", 6) == "aé€");
  CHECK(first_chunk("😀😀", 4) == "😀");
}

TEST_CASE("a text that has not changed is searched once for bytes that are not UTF-8") {
  DataFolder folder;
  const auto path = folder.write("text.txt", std::string(1000, 'a'));
  const auto open = [&] {
    return error_of([&] { open_dataset(text_data({path}), Split::train, 10, 256, folder / "cache"); });
  };
  const auto before = fs::last_write_time(path) - std::chrono::hours(1);
  fs::last_write_time(path, before);
  CHECK(open().empty());
  folder.write("text.txt", std::string(999, 'a') + "\xff");
  CHECK(open().starts_with("usage: " + path));  // its time is another one
  fs::last_write_time(path, before);
  CHECK(open().empty());  // nothing shows the change
}
