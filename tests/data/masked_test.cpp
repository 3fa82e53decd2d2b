// Masked language modelling: which tokens are predicted, what replaces them, and on what the choice depends.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>

#include "runner/data/loader.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinAbs;

namespace {

constexpr int64_t pad = 0, cls = 1, sep = 2, mask = 3, first_word = 4, words = 60, vocab = first_word + words;

/// A tokenizer.json like BERT's: a word is a token, [CLS] and [SEP] are around a text.
std::string tokenizer_json(bool with_mask = true) {
  nlohmann::json vocabulary = {{"[PAD]", pad}, {"[CLS]", cls}, {"[SEP]", sep}, {with_mask ? "[MASK]" : "[NONE]", mask}};
  for (int64_t i = 0; i < words; ++i) vocabulary["w" + std::to_string(i)] = first_word + i;
  auto added = nlohmann::json::array();
  for (const auto& [token, id] : vocabulary.items())
    if (id < first_word)
      added.push_back({{"id", id},
                       {"content", token},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
  const auto special = [](const char* id) { return nlohmann::json{{"SpecialToken", {{"id", id}, {"type_id", 0}}}}; };
  const nlohmann::json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto entry = [](const char* token, int64_t id) {
    return nlohmann::json{{"id", token}, {"ids", {id}}, {"tokens", {token}}};
  };
  return nlohmann::json{{"version", "1.0"},
                        {"added_tokens", added},
                        {"normalizer", nullptr},
                        {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                        {"post_processor",
                         {{"type", "TemplateProcessing"},
                          {"single", {special("[CLS]"), text, special("[SEP]")}},
                          {"pair", {special("[CLS]"), text, special("[SEP]")}},
                          {"special_tokens", {{"[CLS]", entry("[CLS]", cls)}, {"[SEP]", entry("[SEP]", sep)}}}}},
                        {"decoder", nullptr},
                        {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "w0"}}}}
      .dump();
}

std::string word_text(int64_t document, int64_t count) {
  std::string text;
  for (int64_t i = 0; i < count; ++i)
    text += fmt::format("{}w{}", i ? " " : "", (document * 31 + i * i * 7 + i) % words);
  return text;
}

struct MaskedData : DataFolder {
  Recipe::Data data;
  explicit MaskedData(int64_t documents = 200, const std::string& format = "jsonl") {
    std::string lines;
    for (int64_t d = 0; d < documents; ++d) {
      const auto text = word_text(d, 5 + d * 13 % 56);
      lines += format == "text" ? text + "\n" : nlohmann::json{{"text", text}}.dump() + "\n";
    }
    data.format = format;
    data.objective = "masked_lm";
    data.train = {write("train." + format, lines)};
    data.tokenizer = write("tokenizer.json", tokenizer_json());
  }
  std::unique_ptr<Dataset> open(int64_t seq_len = 64) const {
    return open_dataset(data, Split::train, seq_len, vocab, *this / "cache");
  }
};

struct MaskedRow {
  std::vector<int64_t> inputs, targets, positions;
  bool operator==(const MaskedRow&) const = default;
};

MaskedRow draw(const Dataset& data, int64_t sample, const SampleDraw& how) {
  HostBatch batch(1, data.fields_of(std::span(&sample, 1)));
  data.draw(sample, batch, 0, how);
  const auto values = [&](size_t field) {
    const auto row = batch.row<int64_t>(field, 0);
    return std::vector<int64_t>(row.begin(), row.end());
  };
  return {values(token_field::inputs), values(token_field::targets), values(token_field::positions)};
}

/// Every row that the loaders of `ranks` ranks give in `steps` steps from `start` on, in the order of the global batches.
std::vector<MaskedRow> loaded(const Dataset& data, int ranks, int steps, DataPosition start = {}) {
  std::vector<std::unique_ptr<Loader>> loaders;
  for (int rank = 0; rank < ranks; ++rank)
    loaders.push_back(std::make_unique<Loader>(
        data,
        Loader::Options{.global_batch_size = 4, .data_rank = rank, .data_ranks = ranks, .seed = 5, .start = start}));
  std::vector<MaskedRow> rows;
  for (int step = 0; step < steps; ++step)
    for (auto& loader : loaders) {
      StepBatch batch;
      REQUIRE(loader->next(batch));
      int64_t weight = 0;
      for (auto& micro : batch.micro_batches)
        for (int64_t row = 0; row < micro.rows; ++row) {
          const auto values = [&](size_t field) {
            const auto found = micro.row<int64_t>(field, row);
            return std::vector<int64_t>(found.begin(), found.end());
          };
          rows.push_back({values(0), values(1), values(2)});
          weight += std::ranges::count_if(rows.back().targets, [](int64_t t) { return t != ignored_target; });
        }
      if (ranks == 1) CHECK(batch.weight == weight);
    }
  return rows;
}

}  // namespace

TEST_CASE("15 % of the tokens are predicted: 80 % masked, 10 % random, 10 % kept, and never special ones", "[rank15]") {
  const MaskedData place;
  const auto data = place.open();
  CHECK(data->size() == 200);
  double candidates = 0, chosen = 0, masked = 0, kept = 0;
  std::vector<double> replaced(vocab);
  for (int64_t epoch = 0; epoch < 30; ++epoch)
    for (int64_t sample = 0; sample < data->size(); ++sample) {
      const auto row = draw(*data, sample, {.epoch = epoch, .seed = 1});
      int64_t weight = 0;
      for (size_t i = 0; i < row.inputs.size(); ++i) {
        if (row.targets[i] == ignored_target) {
          candidates += row.inputs[i] >= first_word;
          continue;
        }
        ++candidates, ++chosen, ++weight;
        CHECK(row.targets[i] >= first_word);
        masked += row.inputs[i] == mask;
        kept += row.inputs[i] == row.targets[i];
        if (row.inputs[i] != mask && row.inputs[i] != row.targets[i]) ++replaced[static_cast<size_t>(row.inputs[i])];
      }
      CHECK(weight == data->weight(sample));
    }
  CHECK(chosen > 25'000);
  CHECK_THAT(chosen / candidates, WithinAbs(0.15, 0.01));
  CHECK_THAT(masked / chosen, WithinAbs(0.8, 0.01));
  CHECK_THAT(kept / chosen, WithinAbs(0.1 + 0.1 / vocab, 0.01));
  // Random tokens are any of the vocabulary.
  CHECK(std::ranges::count_if(replaced, [](double count) { return count > 5; }) == vocab - 1);
}

TEST_CASE("the choice depends only on seed, epoch and sample, on any ranks and after a resume", "[rank15]") {
  const MaskedData place(22);
  const auto data = place.open(), again = place.open();
  int64_t other_epoch = 0, other_seed = 0;
  for (int64_t sample = 0; sample < data->size(); ++sample) {
    const auto row = draw(*data, sample, {.epoch = 1, .seed = 7});
    CHECK(row == draw(*again, sample, {.epoch = 1, .seed = 7}));
    other_epoch += row != draw(*data, sample, {.epoch = 2, .seed = 7});
    other_seed += row != draw(*data, sample, {.epoch = 1, .seed = 8});
  }
  // Short samples may have the same choice by chance.
  CHECK(other_epoch >= data->size() - 4);
  CHECK(other_seed >= data->size() - 4);
  const auto trim = [](std::vector<MaskedRow> rows) {  // the length of a row depends on the others of its micro-batch
    for (auto& row : rows)
      while (!row.inputs.empty() && row.inputs.back() == pad)
        row.inputs.pop_back(), row.targets.pop_back(), row.positions.pop_back();
    return rows;
  };
  const auto one = trim(loaded(*data, 1, 12));  // more than two epochs
  CHECK(one == trim(loaded(*data, 2, 12)));
  const auto rest = trim(loaded(*data, 1, 5, {.epoch = 1, .sample = 4}));
  CHECK(std::equal(rest.begin(), rest.end(), one.begin() + 22 + 4));
}

TEST_CASE("a document is [CLS], its tokens and [SEP]; padding is a sequence of its own", "[rank15]") {
  const MaskedData place(3);
  const auto data = place.open();
  const auto row = draw(*data, 1, {});  // 18 tokens
  REQUIRE(row.inputs.size() == 24);
  CHECK(row.inputs[0] == cls);
  CHECK(row.inputs[19] == sep);
  std::vector<int64_t> positions;
  for (int64_t i = 0; i < 20; ++i) positions.push_back(i);
  for (int64_t i = 0; i < 4; ++i) positions.push_back(i);
  CHECK(row.positions == positions);
  CHECK(std::ranges::count(row.inputs, pad) == 4);
  CHECK(data->weight(1) == 3);  // round(0.15 x 18)
  CHECK_THAT(data->describe(),
             ContainsSubstring("3 samples of at most 64 tokens (16.7 % of the tokens are predicted)"));
}

TEST_CASE("windows of a text have the tokens around them", "[rank15]") {
  const MaskedData place(40, "text");
  const auto data = place.open(16);
  for (int64_t sample = 0; sample < data->size(); ++sample) {
    const auto row = draw(*data, sample, {});
    REQUIRE(row.inputs.size() == 16);
    CHECK(row.inputs.front() == cls);
    CHECK(row.inputs.back() == sep);
    CHECK(data->weight(sample) == 2);  // round(0.15 x 14)
  }
}

TEST_CASE("a tokenizer that only ends texts with a token does not begin windows with it", "[rank15]") {
  MaskedData place(40, "text");
  auto tokenizer = nlohmann::json::parse(tokenizer_json());
  tokenizer["post_processor"]["single"].erase(0);
  place.data.tokenizer = place.write("ends.json", tokenizer.dump());
  const auto row = draw(*place.open(16), 0, {});
  REQUIRE(row.inputs.size() == 16);
  CHECK(row.inputs.back() == sep);
  CHECK(std::ranges::count(row.inputs, sep) == 1);
  CHECK(row.inputs.front() == first_word);  // of document 0
}

TEST_CASE("data without a mask token, and too long documents", "[rank15]") {
  MaskedData place(3);
  place.data.too_long = "error";
  CHECK_THAT(error_of([&] { place.open(16); }),
             ContainsSubstring("data.too_long = \"error\": document 2 of 3 has 20 tokens, and data.seq_len = 16"));
  place.data.too_long = "split";
  CHECK(place.open(16)->size() == 5);
  place.data.tokenizer = place.write("other.json", tokenizer_json(false));
  CHECK_THAT(error_of([&] { place.open(16); }), ContainsSubstring("has no mask token, such as [MASK] or <mask>"));
  place.data.tokenizer = "bytes";
  CHECK_THAT(error_of([&] { open_dataset(place.data, Split::train, 16, 256, place / "cache"); }),
             ContainsSubstring("the tokenizer \"bytes\" has no mask token"));
}
