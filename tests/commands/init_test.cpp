// `runner init` writes valid recipes with suitable settings.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "runner/config/config.hpp"
#include "runner/data/data.hpp"
#include "tests/support/command.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

void write_llama(const Workplace& place, int64_t vocab_size, int64_t max_seq_len) {
  place.write("hf/config.json", nlohmann::json{{"model_type", "llama"},
                                               {"architectures", {"LlamaForCausalLM"}},
                                               {"vocab_size", vocab_size},
                                               {"hidden_size", 32},
                                               {"intermediate_size", 64},
                                               {"num_hidden_layers", 1},
                                               {"num_attention_heads", 2},
                                               {"max_position_embeddings", max_seq_len}}
                                    .dump());
}

}  // namespace

TEST_CASE("init --from-hf refuses a tokenizer that it cannot read, and gives a solution") {
  Workplace place;
  write_llama(place, 600, 64);
  auto refused = [&](const std::string& what) {
    auto result = place.run({"init", "--from-hf", "hf", "ft.toml"});
    INFO(result.err);
    CHECK(result.code == 2);
    CHECK_THAT(result.err, ContainsSubstring(what));
    CHECK_THAT(result.err, ContainsSubstring("encode the text with the model's own tokenizer") &&
                               ContainsSubstring("uint16") && ContainsSubstring("--format bin"));
    CHECK_FALSE(fs::exists(place.path() / "ft.toml"));
  };
  place.write("hf/tokenizer.json", "{}");
  refused("hf/tokenizer.json is a tokenizer that runner cannot read (");
  write_llama(place, 256, 64);
  refused("hf/tokenizer.json is a tokenizer that runner cannot read (");
  place.write("hf/tokenizer.model", "not SentencePiece");
  refused("hf/tokenizer.json is a tokenizer that runner cannot read (");

  CHECK(place.run({"init", "--from-hf", "hf", "--format", "bin", "ft.toml"}).code == 0);
  auto recipe = load_recipe((place.path() / "ft.toml").string());
  CHECK(recipe.data.format == "bin");
  CHECK(recipe.data.token_dtype == "uint16");
  CHECK(recipe.model.vocab_size == 256);
}

TEST_CASE("init --from-hf writes a recipe for token ids, with a note, if the folder has no tokenizer") {
  Workplace place;
  write_llama(place, 600, 64);
  const auto made = place.run({"init", "--from-hf", "hf", "--output", "ids.toml"});
  INFO(made.err);
  CHECK(made.code == 0);
  CHECK_THAT(made.err,
             ContainsSubstring("has no tokenizer that fits its vocabulary of 600 tokens, so the recipe trains "
                               "on token ids: encode the text with the model's own tokenizer as uint16"));
  const auto recipe = load_recipe((place.path() / "ids.toml").string());
  CHECK(recipe.data.format == "bin");
  CHECK(recipe.model.vocab_size == 600);
  CHECK(place.run({"init", "-o", "second.toml"}).code == 0);
  CHECK(fs::exists(place.path() / "second.toml"));
  const auto text = place.run({"init", "--from-hf", "hf", "--format", "text", "text.toml"});
  CHECK(text.code == 2);
  CHECK_THAT(text.err, ContainsSubstring("has no tokenizer that fits its vocabulary of 600 tokens"));
}

TEST_CASE("init --from-hf names the folder whose config.json it cannot use") {
  Workplace place;
  place.write("hf/config.json", R"({"model_type": "mamba"})");
  auto result = place.run({"init", "--from-hf", "hf"});
  CHECK(result.code == 2);
  CHECK_THAT(result.err, ContainsSubstring((place.path() / "hf").string() + ": config.json: model_type = \"mamba\""));
}

TEST_CASE("init --from-hf sets rates and lengths that suit fine-tuning") {
  Workplace place;
  write_llama(place, 128256, 131072);
  auto result = place.run({"init", "--from-hf", "hf", "--format", "bin"});
  CHECK(result.code == 0);
  CHECK_THAT(result.err,
             ContainsSubstring("note: samples have 2048 tokens (data.seq_len), although the model allows 131072"));
  auto recipe = load_recipe((place.path() / "recipe.toml").string());
  CHECK(recipe.optimizer.lr == 2e-5);
  CHECK(recipe.model.max_seq_len == 131072);  // an export has the same value as its source
  CHECK(recipe.data.seq_len == 2048);
  CHECK(recipe.data.token_dtype == "uint32");

  CHECK(place.run({"init", "new.toml", "--json"}).json() == nlohmann::json{{"schema", 1}, {"output", "new.toml"}});
  recipe = load_recipe((place.path() / "new.toml").string());
  CHECK(recipe.optimizer.lr == 1e-3);
  CHECK_FALSE(recipe.data.seq_len);
  CHECK(place.run({"init", "--format", "bin", "other.toml"}).code == 2);
}

TEST_CASE("init writes recipes for tables, images and conversations") {
  Workplace place;
  const auto written = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "init");
    const auto result = place.run(arguments);
    INFO(result.err);
    REQUIRE(result.code == 0);
    return load_recipe((place.path() / arguments.back()).string());
  };
  const auto table = written({"--format", "csv", "table.toml"});
  CHECK(table.model.name == "mlp");
  CHECK(table.data.target == std::vector<std::string>{"label"});
  const auto images = written({"--format", "images", "images.toml"});
  CHECK(images.model.name == "resnet");
  CHECK(images.data.format == "images");
  write_llama(place, 256, 64);
  const auto chat = written({"--from-hf", "hf", "--format", "jsonl", "chat.toml"});
  CHECK(chat.data.format == "jsonl");
  CHECK(chat.fine_tune.method == "lora");
  CHECK(chat.optimizer.lr == 2e-4);
  const auto refused = place.run({"init", "--from-hf", "hf", "--format", "images", "no.toml"});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, ContainsSubstring("--format images: hf is a llama, which does not read such data"));
  const auto alone = written({"--format", "jsonl", "bytes.toml"});
  CHECK(alone.model.name == "gpt");
  CHECK(alone.data.format == "jsonl");
  CHECK(alone.data.tokenizer == "bytes");
  CHECK(alone.data.chat_template == "chatml");
  CHECK_THAT(place.run({"init", "--format", "bin", "no.toml"}).err,
             ContainsSubstring("--format bin needs a model's own tokenizer: name its folder with --from-hf"));
}

TEST_CASE("init --from-hf uses bytes for a vocabulary of 256, and a SentencePiece model if there is one") {
  Workplace place;
  write_llama(place, 256, 64);
  CHECK(place.run({"init", "--from-hf", "hf", "bytes.toml"}).code == 0);
  CHECK(load_recipe((place.path() / "bytes.toml").string()).data.tokenizer == "bytes");

  write_tiny_recipe(place);
  Recipe::Data data;
  data.format = "text";
  data.train = {(place.path() / "text.txt").string()};
  data.tokenizer = "sentencepiece";
  data.tokenizer_vocab_size = 280;  // the text allows no more
  make_tokenizer(data, (place.path() / "cache").string());
  for (const auto& entry : fs::directory_iterator(place.path() / "cache"))
    if (entry.path().extension() == ".model") fs::copy_file(entry.path(), place.path() / "hf/tokenizer.model");
  place.write("hf/tokenizer.json", "{}");
  write_llama(place, 288, 64);  // padded vocabulary
  CHECK(place.run({"init", "--from-hf", "hf", "pieces.toml"}).code == 0);
  CHECK(load_recipe((place.path() / "pieces.toml").string()).data.tokenizer ==
        (place.path() / "hf/tokenizer.model").string());
  write_llama(place, 279, 64);  // the vocabulary of another model
  auto wrong = place.run({"init", "--from-hf", "hf", "wrong.toml"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err,
             ContainsSubstring("hf/tokenizer.model has 280 pieces, more than the 279 tokens of the model's"));
}

TEST_CASE("init writes TOML only, and names the file that it would write") {
  Workplace place;
  for (const char* name : {"a.lua", "a.json", "a"}) {
    auto result = place.run({"init", name});
    CHECK(result.code == 2);
    CHECK_THAT(result.err, ContainsSubstring("runner init a.toml"));
    CHECK_FALSE(fs::exists(place.path() / name));
  }
}
