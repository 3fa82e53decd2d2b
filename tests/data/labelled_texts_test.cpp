// Texts with labels: rows of one text or two, truncation, labels and numbers, and the places of mistakes.
#include "runner/data/labelled_texts.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "runner/data/data_check.hpp"
#include "tests/data/support.hpp"

using namespace runner;
using namespace runner::test;
using Catch::Matchers::ContainsSubstring;
using Values = std::vector<int64_t>;

namespace {

constexpr int64_t vocab = 30, cls = 1, sep = 2;

/// A tokenizer.json like BERT's: the letters a, b, ... are the tokens 3, 4, ...
std::string letters_tokenizer() {
  nlohmann::json vocabulary = {{"[PAD]", 0}, {"[CLS]", cls}, {"[SEP]", sep}};
  for (char letter = 'a'; letter <= 'z'; ++letter) vocabulary[std::string(1, letter)] = 3 + letter - 'a';
  return nlohmann::json{
      {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
      {"post_processor", {{"type", "BertProcessing"}, {"cls", {"[CLS]", cls}}, {"sep", {"[SEP]", sep}}}},
      {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "z"}}}}
      .dump();
}

struct Texts : DataFolder {
  Recipe::Data data;
  Texts(const std::string& format, const std::string& train) {
    data.format = format;
    data.objective = "classification";
    data.train = {write("train." + format, train)};
    data.tokenizer = write("tokenizer.json", letters_tokenizer());
    data.target = {"label"};
  }
  std::unique_ptr<Dataset> open(int64_t seq_len = 16, Split split = Split::train) const {
    return open_dataset(data, split, seq_len, vocab, *this / "cache");
  }
  /// The mistakes that `check` finds, with FOLDER for the folder.
  std::string problems(int64_t seq_len = 16) const {
    std::string text;
    for (const auto& problem : find_data_problems(data, seq_len, vocab, *this / "cache"))
      text += problem.key + " | " + problem.message + "\n";
    for (auto at = text.find(path.string()); at != std::string::npos; at = text.find(path.string()))
      text.replace(at, path.string().size(), "FOLDER");
    return text;
  }
};

HostBatch batch_of(const Dataset& data, const Values& samples) {
  HostBatch batch(std::ssize(samples), data.fields_of(samples));
  for (int64_t row = 0; row < batch.rows; ++row) data.read(samples[static_cast<size_t>(row)], batch, row);
  return batch;
}

Values row_of(const HostBatch& batch, size_t field, int64_t row) {
  const auto values = batch.row<int64_t>(field, row);
  return {values.begin(), values.end()};
}

const std::string spam = R"({"text": "a b c", "label": "spam"}
{"text": "d", "label": "ham"}

{"text": "e f g h i j", "label": "spam"}
)";

}  // namespace

TEST_CASE("rank 15: a text, its label, and padding that is a sequence of its own", "[rank15]") {
  const Texts texts("jsonl", spam);
  const auto data = texts.open();
  CHECK(data->size() == 3);
  CHECK(data->describe() == "3 texts of at most 16 tokens with one of 2 labels");
  CHECK(data->weight(1) == 1);
  const auto batch = batch_of(*data, {0, 1, 2});
  CHECK(describe({batch.fields[0].spec, batch.fields[1].spec, batch.fields[2].spec}) ==
        "`inputs` (int64 [8]), `positions` (int64 [8]), `labels` (int64 [])");
  CHECK(row_of(batch, 0, 0) == Values{cls, 3, 4, 5, sep, 0, 0, 0});
  CHECK(row_of(batch, 1, 0) == Values{0, 1, 2, 3, 4, 0, 1, 2});
  CHECK(row_of(batch, 0, 2) == Values{cls, 7, 8, 9, 10, 11, 12, sep});
  // Labels are sorted: ham 0, spam 1.
  CHECK(row_of(batch, 2, 0) == Values{1});
  CHECK(row_of(batch, 2, 1) == Values{0});
  CHECK(data->learned().at("targets")[0].at("classes") == nlohmann::json({"ham", "spam"}));
}

TEST_CASE("rank 15: without added tokens, an empty text is one pad token", "[rank15]") {
  Texts texts("jsonl", R"({"text": "", "label": "none"}
{"text": "a b", "label": "some"}
)");
  auto tokenizer = nlohmann::json::parse(letters_tokenizer());
  tokenizer.erase("post_processor");
  texts.data.tokenizer = texts.write("tokenizer.json", tokenizer.dump());
  texts.write("tokenizer_config.json", R"({"pad_token": "[SEP]"})");
  const auto batch = batch_of(*texts.open(), {0, 1});
  CHECK(row_of(batch, 0, 0) == Values(8, sep));
  CHECK(row_of(batch, 1, 0) == Values{0, 0, 1, 2, 3, 4, 5, 6});
  CHECK(row_of(batch, 0, 1) == Values{3, 4, sep, sep, sep, sep, sep, sep});
  CHECK(row_of(batch, 1, 1) == Values{0, 1, 0, 1, 2, 3, 4, 5});
}

TEST_CASE("rank 15: two texts have types, and the longer one loses its end", "[rank15]") {
  Texts texts("jsonl", R"({"text": "a b c d e", "text_pair": "f g", "label": 0}
{"text": "a", "text_pair": "b", "label": 1}
)");
  texts.data.columns = text_columns(texts.data);
  REQUIRE(texts.data.has_text_pairs());
  const auto batch = batch_of(*texts.open(8), {0, 1});
  CHECK(row_of(batch, 0, 0) == Values{cls, 3, 4, 5, sep, 8, 9, sep});
  CHECK(row_of(batch, 2, 0) == Values{0, 0, 0, 0, 0, 1, 1, 1});
  CHECK(row_of(batch, 0, 1) == Values{cls, 3, sep, 4, sep, 0, 0, 0});
  CHECK(row_of(batch, 1, 1) == Values{0, 1, 2, 3, 4, 0, 1, 2});
  CHECK(row_of(batch, 2, 1) == Values{0, 0, 0, 1, 1, 0, 0, 0});
  CHECK(texts.open(8)->describe() == "2 pairs of texts of at most 8 tokens with one of 2 labels (1 too long and cut)");
  Recipe recipe;
  recipe.model.name = "bert";
  recipe.model.type_vocab_size = 1;
  recipe.data = texts.data;
  CHECK(error_of([&] { take_data_facts(recipe); }) ==
        "usage: model.type_vocab_size = 1: of two texts, the tokenizer gives tokens the types 0 to 1");
}

TEST_CASE("rank 15: two texts are truncated as by Hugging Face's tokenizers", "[rank15]") {
  const auto rows =
      nlohmann::json::parse(read_file(RUNNER_SOURCE_DIR "/tests/models/reference/classifiers/truncations.json"));
  for (const auto& row : rows) {
    const auto [first, second] = truncated({row[0], row[1]}, row[2].get<int64_t>() - 3);
    CAPTURE(row.dump());
    CHECK(first == row[3]);
    CHECK(second == row[4]);
  }
}

TEST_CASE("rank 15: labels are texts, whole numbers or numbers, and keep a given order", "[rank15]") {
  const auto lines = [](const std::vector<std::string>& labels) {
    std::string text;
    for (const auto& label : labels) text += R"({"text": "a", "label": )" + label + "}\n";
    return text;
  };
  const auto facts = [](const Texts& texts) {
    Recipe recipe;
    recipe.model.name = "bert";
    recipe.data = texts.data;
    take_data_facts(recipe);
    return recipe;
  };
  auto recipe = facts(Texts("jsonl", lines({"10", "2", "10"})));
  CHECK(recipe.model.labels == std::vector<std::string>{"2", "10"});
  CHECK(recipe.model.num_labels == 2);
  CHECK(recipe.train.loss == "cross_entropy");
  recipe = facts(Texts("jsonl", lines({"\"10\"", "\"2\""})));
  CHECK(recipe.model.labels == std::vector<std::string>{"10", "2"});  // texts, in order of their bytes
  recipe = facts(Texts("jsonl", lines({"true", "false"})));
  CHECK(recipe.model.labels == std::vector<std::string>{"false", "true"});

  const Texts scores("jsonl", lines({"0.5", "-2", "3.25"}));
  recipe = facts(scores);
  CHECK(recipe.train.loss == "mse");
  CHECK(recipe.model.num_labels == 1);
  CHECK(recipe.model.labels.empty());
  const auto batch = batch_of(*scores.open(), {0, 1, 2});
  CHECK(batch.row<float>(2, 1)[0] == -2);  // not standardized

  Texts ordered("jsonl", lines({"\"no\"", "\"yes\""}));
  ordered.data.labels = {"yes", "no", "perhaps"};
  CHECK(row_of(batch_of(*ordered.open(), {0}), 2, 0) == Values{1});
  CHECK(facts(ordered).model.num_labels == 3);
}

TEST_CASE("rank 15: labels that the pretrained model has keep its order", "[rank15]") {
  const Texts texts("jsonl", spam);
  Recipe recipe;
  recipe.model.name = "bert";
  recipe.data = texts.data;
  SECTION("the same labels") {
    take_data_facts(recipe, {"spam", "ham"});
    CHECK(recipe.model.labels == std::vector<std::string>{"spam", "ham"});
    CHECK(row_of(batch_of(*open_dataset(recipe.data, Split::train, 16, vocab, texts / "cache"), {1}), 2, 0) ==
          Values{1});
  }
  SECTION("others") {
    take_data_facts(recipe, {"LABEL_0", "LABEL_1"});
    CHECK(recipe.model.labels == std::vector<std::string>{"ham", "spam"});
  }
}

TEST_CASE("rank 15: CSV files have texts and labels, too, and text for language models", "[rank15][csv]") {
  Texts texts("csv", "label,text\n1,\"a, b\nc\"\n0,d e\n");
  texts.data.delimiter = ",";
  auto batch = batch_of(*texts.open(), {0, 1});
  CHECK(row_of(batch, 0, 1) == Values{cls, 6, 7, sep, 0, 0, 0, 0});
  CHECK(row_of(batch, 2, 0) == Values{1});
  CHECK(row_of(batch, 2, 1) == Values{0});

  texts.data.objective = "next_token";
  texts.data.target.clear();
  texts.data.packing = "none";
  texts.data.tokenizer = "bytes";
  const auto lm = open_dataset(texts.data, Split::train, 16, 256, texts / "cache");
  CHECK(lm->size() == 2);
  const auto sample = read_sample(*lm, 1);
  CHECK(Values(sample.inputs.begin(), sample.inputs.begin() + 3) == Values{'d', ' ', 'e'});
}

TEST_CASE("rank 15: inputs for predictions are read by the format of each file, and those that are cut are counted",
          "[rank15]") {
  const Texts texts("jsonl", spam);
  const auto learned = texts.open()->learned();
  const std::vector<std::string> files = {texts.write("a.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b c d e f\"}\n"),
                                          texts.write("b.jsonl", "{\"text\": \"c\", \"id\": \"x\"}\n"),
                                          texts.write("c.csv", "text,id\nd,\ne f g h,7\n"),
                                          texts.write("d.json", "[{\"text\": \"e\"}]\n")};
  const auto inputs = open_inputs(texts.data, files, 5, texts / "cache", learned);
  nlohmann::ordered_json ids;
  for (const auto& name : inputs.names) ids.push_back(name.at("id"));
  CHECK(ids.dump() == R"([0,1,"x",3,7,5])");
  REQUIRE(inputs.samples->size() == 6);
  const auto batch = batch_of(*inputs.samples, {0, 1, 2, 3, 4, 5});
  const auto tokens = [&](int64_t row) {
    auto all = row_of(batch, 0, row);
    return Values(all.begin() + 1, std::ranges::find(all, sep));
  };
  CHECK(tokens(0) == Values{3});
  CHECK(tokens(1) == Values{4, 5, 6});
  CHECK(tokens(2) == Values{5});
  CHECK(tokens(3) == Values{6});
  CHECK(tokens(4) == Values{7, 8, 9});
  CHECK(tokens(5) == Values{7});
  CHECK(inputs.samples->cut_texts() == 2);
  const auto alone = open_inputs(texts.data, {files[2]}, 16, texts / "cache", learned);
  CHECK(alone.samples->cut_texts() == 0);
  CHECK(alone.samples->size() == 2);
}

TEST_CASE("rank 15: labels that look like numbers keep their text", "[rank15][csv]") {
  const auto classes = [](const Texts& texts) { return texts.open()->learned().at("targets")[0].at("classes"); };
  Texts codes("csv", "label,text\n01,a\n1,b\n+1,c\n1.0,d\n02.0,e\n");
  codes.data.delimiter = ",";
  CHECK(classes(codes) == nlohmann::json({"+1", "01", "1", "02.0"}));  // 1.0 is 1, as pandas writes it
  codes.data.validation = {codes.write("other.csv", "label,text\n1,a\n02.0,b\n01,c\n")};
  const auto other = batch_of(*codes.open(16, Split::validation), {0, 1, 2});
  CHECK(row_of(other, 2, 0) == Values{2});
  CHECK(row_of(other, 2, 1) == Values{3});
  CHECK(row_of(other, 2, 2) == Values{1});
  codes.write("other.csv", "label,text\n001,a\n");
  CHECK(codes.problems() ==
        "data.validation | FOLDER/other.csv:2: the class `001` of `label` is not in the training rows\n");

  const Texts ids("jsonl", R"({"text": "a", "label": 9007199254740993}
{"text": "b", "label": 9007199254740992}
{"text": "c", "label": 1.0}
)");
  CHECK(classes(ids) == nlohmann::json({"1", "9007199254740992", "9007199254740993"}));
}

TEST_CASE("rank 15: mistakes in labels and texts have file and line", "[rank15]") {
  Texts texts("jsonl", spam);
  texts.data.validation = {
      texts.write("other.jsonl", "{\"text\": \"a\", \"label\": \"ham\"}\n\n{\"text\": \"b\", \"label\": \"egg\"}\n")};
  CHECK(texts.problems() ==
        "data.validation | FOLDER/other.jsonl:3: the class `egg` of `label` is not in the training rows\n");
  texts.data.validation.clear();
  texts.data.target = {"lable"};
  CHECK(texts.problems() ==
        "data.target | data.target: FOLDER/train.jsonl has no column `lable` (did you mean `label`?); its records have "
        "text, label\n");

  Texts holes("jsonl", "{\"text\": \"a\", \"label\": \"x\"}\n{\"text\": \"b\"}\n{\"text\": \"c\", \"label\": \"y\"}\n");
  CHECK(holes.problems() ==
        "data.train | FOLDER/train.jsonl:2: the target `label` is missing; data.missing = \"drop\" leaves "
        "such rows out\n");
  holes.data.missing = "drop";
  CHECK(holes.problems().empty());
  CHECK(holes.open()->size() == 2);

  Texts lists("jsonl", "{\"text\": \"a\", \"label\": [1]}\n");
  CHECK(lists.problems() ==
        "data.train | FOLDER/train.jsonl:1: the label `label` must be a text or a number, not a list\n");
  Texts large("jsonl", "{\"text\": \"a\", \"label\": 12345678901234567890123}\n");
  CHECK(
      large.problems() ==
      "data.train | FOLDER/train.jsonl:1: the number 1.2345678901234568e+22 has more than 64 bits, and its last digits "
      "are lost: write it in quotes\n");
  Texts unnamed("jsonl", "{\"sentence\": \"a\", \"label\": 1}\n");
  CHECK_THAT(unnamed.problems(), ContainsSubstring("FOLDER/train.jsonl:1: there is no column `text`; the record has "
                                                   "sentence, label: data.columns = { text = \"COLUMN\" } names it"));
  texts.data.target = {"label"};
  texts.data.too_long = "error";
  CHECK_THAT(
      error_of([&] { texts.open(7); }),
      ContainsSubstring("train.jsonl:4: data.too_long = \"error\": the text has 6 tokens, and data.seq_len allows 5"));
  texts.data.too_long = "drop";
  CHECK(texts.open(7)->size() == 2);
  CHECK(texts.open(7)->describe() == "2 texts of at most 7 tokens with one of 2 labels (1 too long and left out)");
}

TEST_CASE("rank 15: with data.validation_fraction, the same records are drawn each time", "[rank15]") {
  std::string lines;
  for (int i = 0; i < 20; ++i)
    lines += fmt::format("{{\"text\": \"{}\", \"label\": {}}}\n", static_cast<char>('a' + i), i % 2);
  Texts texts("jsonl", lines);
  texts.data.validation_fraction = 0.25;
  const auto first_tokens = [&](Split split) {
    const auto data = texts.open(16, split);
    Values tokens;
    for (int64_t sample = 0; sample < data->size(); ++sample)
      tokens.push_back(row_of(batch_of(*data, {sample}), 0, 0)[1]);
    return tokens;
  };
  auto all = first_tokens(Split::train);
  const auto validation = first_tokens(Split::validation);
  CHECK(all.size() == 15);
  CHECK(validation.size() == 5);
  CHECK(validation == first_tokens(Split::validation));
  all.insert(all.end(), validation.begin(), validation.end());
  std::ranges::sort(all);
  Values every(20);
  for (size_t i = 0; i < every.size(); ++i) every[i] = 3 + static_cast<int64_t>(i);
  CHECK(all == every);
}

namespace {

/// Two sources of different formats: messages with the labels ham and spam, and cells with the labels ham and egg.
struct MixedTexts : Texts {
  MixedTexts() : Texts("jsonl", spam) {
    data.sources = {{.name = "mail", .train = data.train, .weight = 0.75},
                    {.name = "table",
                     .train = {write("table.csv", "body,label\nk,egg\nl,ham\nm,egg\nn,egg\n")},
                     .weight = 0.25,
                     .format = "csv",
                     .columns = Recipe::Data::Columns{{"text", "body"}}}};
    data.train.clear();
  }
};

/// The first letter and the label of each position of an epoch.
std::vector<std::pair<int64_t, int64_t>> taken(const Dataset& data, int64_t epoch) {
  std::vector<std::pair<int64_t, int64_t>> list;
  for (int64_t position = 0; position < data.size(); ++position) {
    const auto batch = batch_of(data, {data.sample_at(epoch, position, {.shuffle = true, .seed = 5})});
    list.emplace_back(row_of(batch, 0, 0).at(1), row_of(batch, 2, 0).at(0));
  }
  return list;
}

}  // namespace

TEST_CASE("rank 15: texts with labels of several sources and formats have the labels of all", "[rank15][sources]") {
  const MixedTexts texts;
  const auto data = texts.open();
  CHECK(data->learned().at("targets")[0].at("classes") == nlohmann::json({"egg", "ham", "spam"}));
  CHECK(data->size() == 4);  // the three messages are exhausted first, and are 3/4 of an epoch
  std::map<int64_t, int64_t> counts;
  for (const int64_t epoch : {0, 1, 2, 3})
    for (const auto& [letter, label] : taken(*data, epoch)) {
      ++counts[letter];
      const bool cell = letter >= 3 + 'k' - 'a';
      CHECK(label == (cell ? (letter == 3 + 'l' - 'a' ? 1 : 0) : letter == 3 + 'd' - 'a' ? 1 : 2));
    }
  // Each message once in each epoch; the cells once in four epochs.
  CHECK(counts == std::map<int64_t, int64_t>{{3, 4}, {6, 4}, {7, 4}, {13, 1}, {14, 1}, {15, 1}, {16, 1}});

  Recipe recipe;
  recipe.model.name = "bert";
  recipe.data = texts.data;
  take_data_facts(recipe);
  CHECK(recipe.model.labels == std::vector<std::string>{"egg", "ham", "spam"});
  CHECK(texts.problems().empty());
}

TEST_CASE("rank 15: sources of texts validate on their own files, or on a part of their own records",
          "[rank15][sources]") {
  MixedTexts texts;
  CHECK(texts.open(16, Split::validation) == nullptr);
  texts.data.sources[1].validation = {texts.write("other.csv", "body,label\no,spam\n")};
  auto validation = texts.open(16, Split::validation);
  REQUIRE(validation->size() == 1);
  CHECK(row_of(batch_of(*validation, {0}), 2, 0) == Values{2});
  // With the labels of a checkpoint, the training data are not read.
  const auto learned = texts.open()->learned();
  texts.data.sources[0].train = {texts / "missing.jsonl"};
  CHECK(open_dataset(texts.data, Split::validation, 16, vocab, texts / "cache", learned)->size() == 1);

  MixedTexts parts;
  parts.data.sources[0].weight.reset();
  parts.data.sources[1].weight.reset();
  parts.data.validation_fraction = 0.34;
  const auto kept = parts.open();
  validation = parts.open(16, Split::validation);
  CHECK(kept->size() == 2 + 3);
  CHECK(validation->size() == 1 + 1);
}

TEST_CASE("rank 15: mistakes in sources of texts name the source or the line", "[rank15][sources]") {
  MixedTexts texts;
  texts.data.sources[1].validation = {texts.write("other.csv", "body,label\no,spam\np,bacon\n")};
  CHECK(texts.problems() ==
        "data.sources | FOLDER/other.csv:3: the class `bacon` of `label` is not in the training rows\n");
  texts.data.sources[1].columns.reset();
  CHECK_THAT(texts.problems(),
             ContainsSubstring("data.sources | source \"table\": FOLDER/table.csv:2: there is no column "
                               "`text`; the record has body, label"));
  MixedTexts pairs;
  pairs.data.sources.push_back(
      {.name = "pairs",
       .train = {pairs.write("pairs.jsonl", R"({"text": "a", "text_pair": "b", "label": "ham"})")},
       .weight = 1});
  Recipe recipe;
  recipe.model.name = "bert";
  recipe.data = pairs.data;
  CHECK(error_of([&] { take_data_facts(recipe); }) ==
        "usage: data.sources: \"pairs\" has pairs of texts (text_pair), and \"mail\" has single texts");
  recipe.data.sources.erase(recipe.data.sources.begin(), recipe.data.sources.begin() + 2);
  recipe.data.sources.push_back(recipe.data.sources[0]);
  recipe.data.sources[1].name = "more";
  recipe.data.sources[1].train = {pairs.write("more.jsonl", R"({"first": "c", "second": "d", "label": "spam"})")};
  recipe.data.sources[1].columns = Recipe::Data::Columns{{"text", "first"}, {"text_pair", "second"}};
  take_data_facts(recipe);
  CHECK(recipe.data.has_text_pairs());
  const auto data = open_dataset(recipe.data, Split::train, 16, vocab, pairs / "cache");
  CHECK(data->size() == 2);
  CHECK(row_of(batch_of(*data, {1}), 0, 0) == Values{cls, 5, sep, 6, sep, 0, 0, 0});
  CHECK(row_of(batch_of(*data, {1}), 3, 0) == Values{1});
}
