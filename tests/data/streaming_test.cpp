// data.streaming: parts in order, tokenised when they are needed, and the same samples as without.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <set>
#include <thread>

#include "runner/data/document_dataset.hpp"
#include "runner/data/loader.hpp"
#include "runner/data/stream_dataset.hpp"
#include "runner/data/token_parts.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Three files with 10, 1 and 14 records; the text of each record is "<file><number>". The file in front of the last
/// has a record that is too long.
struct StreamedFolder : DataFolder {
  Recipe::Data data;

  explicit StreamedFolder(const std::string& packing = "none") {
    data.format = "jsonl";
    data.streaming = true;
    data.packing = packing;
    data.seq_len = 8;
    data.too_long = "drop";
    for (const auto& [name, records] : {std::pair("a", 10), {"b", 1}, {"empty", 1}, {"c", 14}}) {
      std::string lines;
      for (int i = 0; i < records; ++i)
        lines +=
            nlohmann::json{{"text", std::string(name) == "empty" ? std::string(50, 'x') : name + std::to_string(i)}}
                .dump() +
            "\n";
      data.train.push_back(write(std::string(name) + ".jsonl", lines));
    }
  }
  /// Each file is a part, but for the default of `part_bytes` they would be one.
  std::unique_ptr<Dataset> open(size_t part_bytes = 1) const {
    auto samples_of = [this](OpenData opened, StreamedPart* part) {
      return opened.documents ? document_dataset(data, Split::train, std::move(opened), 8, part)
                              : stream_dataset(data, Split::train, std::move(opened.stream), 8, part);
    };
    const auto cache_dir = cache();
    auto parts = parts_of_records({data, data.train, 256, cache_dir}, streamed_part_bytes);
    return streamed_dataset(std::move(parts), samples_of, data_fields(data, 8), part_bytes);
  }
  std::string cache() const { return *this / "cache"; }
  /// The parts in the cache.
  int tokenised() const {
    int files = 0;
    if (fs::exists(cache()))
      for (const auto& file : fs::directory_iterator(cache())) files += file.path().extension() == ".tok";
    return files;
  }
};

/// The text of a sample: its first characters.
std::string text_of(const Dataset& dataset, int64_t sample) {
  std::string text;
  for (int64_t id : read_sample(dataset, sample).inputs)
    if (id != 0) text += static_cast<char>(id);
  return text;
}

std::vector<std::string> epoch_of(const Dataset& dataset, int64_t epoch, int64_t size, int64_t seed = 1) {
  std::vector<std::string> texts;
  for (int64_t at = 0; at < size; ++at)
    texts.push_back(text_of(dataset, dataset.sample_at(epoch, at, {.shuffle = true, .seed = seed})));
  return texts;
}

std::set<std::string> as_set(auto begin, auto end) { return {begin, end}; }

}  // namespace

TEST_CASE("streamed data tokenise a part when a sample of it is needed") {
  StreamedFolder folder;
  const auto dataset = folder.open();
  CHECK(dataset->describe() == "4 parts, tokenised during the training");
  CHECK(dataset->fields().size() == 2);
  CHECK(folder.tokenised() == 0);
  CHECK(dataset->size_up_to(1) == 1);
  CHECK(folder.tokenised() == 1);
  epoch_of(*dataset, 0, 10);
  CHECK(dataset->size_up_to(10) == 10);
  CHECK(folder.tokenised() == 1);
  CHECK(dataset->size_up_to(11) == 11);
  CHECK(folder.tokenised() == 2);
  CHECK(dataset->size() == 25);
  CHECK(dataset->size_up_to(100) == 25);
  CHECK(folder.tokenised() == 4);
}

TEST_CASE("the first epoch of streamed data shuffles each part, and later epochs shuffle all samples") {
  StreamedFolder folder;
  const auto dataset = folder.open();
  const auto first = epoch_of(*dataset, 0, 25);
  CHECK(std::ranges::all_of(first.begin(), first.begin() + 10, [](const auto& text) { return text[0] == 'a'; }));
  CHECK(first[10][0] == 'b');
  CHECK(!std::ranges::is_sorted(first.begin(), first.begin() + 10));
  CHECK(as_set(first.begin(), first.end()).size() == 25);
  CHECK(epoch_of(*folder.open(), 0, 25) == first);
  CHECK(epoch_of(*dataset, 0, 25, /*seed=*/2) != first);
  const auto second = epoch_of(*dataset, 1, 25);
  CHECK(as_set(second.begin(), second.end()) == as_set(first.begin(), first.end()));
  CHECK(std::ranges::any_of(second.begin(), second.begin() + 10, [](const auto& text) { return text[0] == 'c'; }));
  folder.data.shuffle = false;
  const auto ordered = folder.open();
  for (int64_t at = 0; at < 25; ++at) CHECK(ordered->sample_at(0, at, {.shuffle = false}) == at);
}

TEST_CASE("streamed data have the samples of data that are tokenised in advance") {
  for (const char* packing : {"none", "best_fit", "wrapped"}) {
    StreamedFolder folder(packing);
    const auto streamed = folder.open();
    folder.data.streaming = false;
    const auto usual = open_dataset(folder.data, Split::train, 8, 256, folder.cache());
    std::multiset<std::string> expected, found;
    int64_t expected_weight = 0, weight = 0;
    for (int64_t sample = 0; sample < usual->size(); ++sample) {
      expected.insert(text_of(*usual, sample));
      expected_weight += usual->weight(sample);
    }
    for (int64_t sample = 0; sample < streamed->size(); ++sample) {
      found.insert(text_of(*streamed, sample));
      weight += streamed->weight(sample);
    }
    CHECK(weight == expected_weight);
    if (std::string_view(packing) != "best_fit") CHECK(found == expected);
    INFO(packing);
    CHECK(found.size() >= expected.size());
  }
}

TEST_CASE("batches of streamed data are the same for every number of ranks and from every position") {
  StreamedFolder folder;
  const auto texts = [](const StepBatch& step) {
    std::vector<std::string> rows;
    for (const auto& micro : step.micro_batches)
      for (int64_t row = 0; row < micro.rows; ++row) {
        std::string text;
        for (int64_t id : micro.row<int64_t>(token_field::inputs, row))
          if (id != 0) text += static_cast<char>(id);
        rows.push_back(text);
      }
    return rows;
  };
  const auto steps_of = [&](int rank, int ranks, DataPosition start, int steps) {
    const auto dataset = folder.open();
    Loader loader(*dataset, {.global_batch_size = 4,
                             .micro_batch_size = 2,
                             .data_rank = rank,
                             .data_ranks = ranks,
                             .seed = 7,
                             .start = start});
    std::vector<std::vector<std::string>> all;
    std::vector<DataPosition> after;
    StepBatch step;
    for (int i = 0; i < steps && loader.next(step); ++i) {
      all.push_back(texts(step));
      after.push_back(step.after);
    }
    return std::pair(all, after);
  };
  const auto [whole, after] = steps_of(0, 1, {}, 10);  // 7 steps are an epoch
  CHECK(whole[6].size() == 1);
  CHECK(after[6].epoch == 1);
  const auto first = steps_of(0, 2, {}, 10).first, second = steps_of(1, 2, {}, 10).first;
  for (size_t step = 0; step < whole.size(); ++step) {
    auto joined = first[step];
    joined.insert(joined.end(), second[step].begin(), second[step].end());
    CHECK(joined == whole[step]);
  }
  for (size_t begin = 0; begin + 1 < whole.size(); ++begin) {
    const auto rest = steps_of(0, 1, after[begin], static_cast<int>(9 - begin)).first;
    CHECK(std::ranges::equal(rest, std::span(whole).subspan(begin + 1)));
  }
}

TEST_CASE("small files are joined to a part of streamed data") {
  StreamedFolder folder;
  const auto dataset = folder.open(streamed_part_bytes(0));
  CHECK(dataset->describe() == "1 part, tokenised during the training");
  CHECK(dataset->size_up_to(1) == 1);
  CHECK(folder.tokenised() == 4);
}

TEST_CASE("streamed text has the windows of the joined files") {
  DataFolder folder;
  auto data = text_data({folder.write("one.txt", std::string(100, 'q')), folder.write("two.txt", std::string(10, 'q')),
                         folder.write("three.txt", std::string(60, 'q'))});
  data.streaming = true;
  data.tokenizer = folder.write("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"q": 0}, "merges": []}})");
  const auto dataset = open_dataset(data, Split::train, 16, 1, folder / "cache");
  CHECK(dataset->size() == (100 + 10 + 60 - 1) / 16);
  data.streaming = false;
  CHECK(stream_of(*dataset) == stream_of(*open_dataset(data, Split::train, 16, 1, folder / "cache")));
  data.streaming = true;
  data.train.resize(2);
  CHECK_THAT(error_of([&] { open_dataset(data, Split::train, 200, 1, folder / "cache")->size(); }),
             ContainsSubstring("has 110 tokens; one sample of data.seq_len = 200 needs 201"));
}

TEST_CASE("the background tokenises all parts of streamed data, and stops when it is not needed") {
  StreamedFolder folder;
  {
    const auto background = begin_preparing(folder.data, folder.cache());
    REQUIRE(background);
    CHECK(folder.tokenised() >= 1);
    for (int i = 0; i < 10'000 && folder.tokenised() < 4; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    CHECK(folder.tokenised() == 4);
  }
  fs::remove_all(folder.cache());
  prepare_data(folder.data, folder.cache());
  CHECK(folder.tokenised() == 4);
  folder.data.streaming = false;
  CHECK(begin_preparing(folder.data, folder.cache()) == nullptr);
}

TEST_CASE("a mistake in streamed data is reported by the part that has it") {
  StreamedFolder folder;
  const auto bad = folder.write("bad.jsonl", "{\"text\": \"fine\"}\n{\"text\": \n");
  folder.data.train.push_back(bad);
  const auto dataset = folder.open();
  CHECK(dataset->size_up_to(25) == 25);
  CHECK_THAT(error_of([&] { dataset->size(); }), ContainsSubstring(bad + ":2"));
  CHECK_THAT(error_of([&] { dataset->size_up_to(26); }), ContainsSubstring(bad + ":2"));
  folder.data.train = {bad};
  CHECK_THAT(error_of([&] { begin_preparing(folder.data, folder.cache()); }), ContainsSubstring(bad + ":2"));
  folder.data.train = {folder / "empty.jsonl"};
  CHECK_THAT(error_of([&] { folder.open()->size(); }), ContainsSubstring("data.too_long = \"drop\" leaves no sample"));
  folder.data.too_long = "error";
  CHECK_THAT(error_of([&] { folder.open()->size(); }),
             ContainsSubstring("data.too_long = \"error\": document 1 of 1 in a part of the data has "));
}
