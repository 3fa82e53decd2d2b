// `runner export` on a run that is in the ledger with its checkpoints.
#include <catch2/catch_test_macros.hpp>

#include "runner/checkpoint/checkpoint.hpp"
#include "runner/config/config.hpp"
#include "runner/ledger/ledger.hpp"
#include "tests/support/command.hpp"
#include "tiny_models.hpp"

using namespace runner;
using namespace runner::testing;
namespace fs = std::filesystem;

namespace {

/// A run of a tiny GPT with checkpoints at steps 10 and 20. Parameters are parameter_value at step 20 and zero at step
/// 10.
struct Run {
  Workplace place;
  std::string id, dir, tokenizer_hash;
  ModelSpec spec;

  explicit Run(const std::optional<std::string>& init_from = {}, const std::string& format = "text",
               const std::string& tokenizer = "bytes") {
    Recipe recipe;
    recipe.run.name = "tiny";
    recipe.model = tiny_gpt();
    recipe.model.init_from = init_from;
    recipe.data.format = format;
    recipe.data.tokenizer = tokenizer;
    recipe.data.train = {"text.txt"};
    recipe.train.max_steps = 20;
    recipe.train.global_batch_size = 4;
    spec = make_spec(recipe.model, tiny_vocab, 8);
    fs::create_directories(place.home());
    Ledger ledger(place.home().string(), Ledger::Mode::write);
    NewRun row;
    row.name = "tiny";
    row.run_dir_root = (place.home() / "runs").string();
    row.strategy = "ddp";
    id = ledger.begin_run(row);
    dir = ledger.run_dir(id);
    write_file_atomic(fs::path(dir) / "resolved.toml", print_recipe(recipe));
    ledger.finish_run(id, "finished", 0, "");
    save(10, false, {{"vocab_size", tiny_vocab}, {"seq_len", 8}});
    save(20, true, {{"vocab_size", tiny_vocab}, {"seq_len", 8}});
  }

  void save(int64_t step, bool values, const nlohmann::json& model, const std::string& place_of_values = "param/") {
    std::vector<nlohmann::json> entries;
    auto parameters = spec.parameters();
    const std::vector<float> zeros(static_cast<size_t>(spec.parameter_count()));
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<std::vector<float>> storage(parameters.size());
      std::vector<Piece> pieces;
      for (size_t slot = 0; slot < parameters.size(); ++slot) {
        int64_t numel = parameters[slot]->numel(), begin = rank * (numel / 3), end = rank == 0 ? numel / 3 : numel;
        storage[slot].resize(static_cast<size_t>(end - begin));
        if (values) parameter_values(slot, begin, storage[slot]);
        auto add = [&](const std::string& place, std::span<const float> numbers) {
          pieces.push_back(
              {place + parameters[slot]->name, "F32", parameters[slot]->shape, begin, std::as_bytes(numbers)});
        };
        add(place_of_values, storage[slot]);
        if (place_of_values != "param/") add("param/", std::span(zeros).first(storage[slot].size()));
      }
      entries.push_back(CheckpointWriter(fs::path(dir) / "checkpoints", step, rank, 2).write_rank(pieces));
    }
    nlohmann::json state = {{"step", step}, {"model", model}};
    if (!tokenizer_hash.empty()) state["data"]["meaning"]["data.tokenizer"]["xxh3"] = tokenizer_hash;
    CheckpointWriter(fs::path(dir) / "checkpoints", step, 0, 2).publish(entries, state);
  }
  CommandResult run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"export", id});
    return place.run(arguments);
  }
  std::string checkpoint(const std::string& name) const { return (fs::path(dir) / "checkpoints" / name).string(); }
};

}  // namespace

TEST_CASE("the newest checkpoint of a run becomes a Hugging Face folder") {
  Run run;
  for (std::string dtype : {"f32", "bf16", "f16"}) {
    auto result = run.run({"--output", dtype, "--dtype", dtype});
    INFO(result.err);
    REQUIRE(result.code == 0);
    CHECK(result.out == dtype + "\n");
    CHECK(wrong_values(HfSource(run.place.path() / dtype, tiny_gpt(), run.spec), run.spec) == 0);
  }
}

TEST_CASE("a run whose folder was deleted cannot be exported") {
  Run run;
  fs::remove_all(run.dir);
  auto result = run.run({"--output", "out"});
  CHECK(result.code == 2);
  CHECK(result.err.find("its folder " + run.dir + " was moved or deleted") != std::string::npos);
}

TEST_CASE("an export contains the token ids and the tokenizer of the folder that training started from") {
  Workplace source;
  auto folder = source.path() / "hf";
  source.write("hf/config.json",
               R"({"model_type": "gpt2", "bos_token_id": 1, "eos_token_id": [2, 3], "vocab_size": 9})");
  source.write("hf/tokenizer.json", "{\"pieces\": []}");
  source.write("hf/generation_config.json", "{}");
  Run other(folder.string());  // trained on bytes
  auto without = other.run({"--output", "out"});
  REQUIRE(without.code == 0);
  CHECK(without.err.find("did not train with " + (folder / "tokenizer.json").string()) != std::string::npos);
  CHECK_FALSE(fs::exists(other.place.path() / "out/tokenizer.json"));

  Run run(folder.string(), "bin");
  REQUIRE(run.run({"--output", "out"}).code == 0);
  auto config = nlohmann::json::parse(slurp(run.place.path() / "out/config.json"));
  CHECK(config.at("bos_token_id") == 1);
  CHECK(config.at("eos_token_id") == nlohmann::json{2, 3});
  CHECK(config.at("vocab_size") == tiny_vocab);
  CHECK(slurp(run.place.path() / "out/tokenizer.json") == "{\"pieces\": []}");
  CHECK(fs::exists(run.place.path() / "out/generation_config.json"));

  fs::remove_all(folder);
  auto result = run.run({"--output", "later"});
  CHECK(result.code == 0);
  CHECK(result.err.find("the export has no tokenizer and no ids of special tokens: ") != std::string::npos);
}

TEST_CASE("an export contains the tokenizer that the run trained with, or its absence is explained") {
  Workplace source;
  source.write("own.model", "pieces");
  const fs::path model = source.path() / "own.model";
  Run run({}, "text", model.string());
  REQUIRE(run.run({"--output", "out"}).code == 0);
  CHECK(slurp(run.place.path() / "out/tokenizer.model") == "pieces");
  run.tokenizer_hash = "another";
  run.save(20, true, {{"vocab_size", tiny_vocab}, {"seq_len", 8}});
  CHECK(run.run({"--output", "changed"}).err.find("own.model has changed since the run trained with it") !=
        std::string::npos);
  CHECK_FALSE(fs::exists(run.place.path() / "changed/tokenizer.model"));
  fs::remove(model);
  CHECK(run.run({"--output", "later"}).err.find("the export has no tokenizer: data.tokenizer: there is no file ") !=
        std::string::npos);
  CHECK(Run().run({"--output", "out"}).err.find("the run trained on bytes") != std::string::npos);
  CHECK(Run({}, "bin").run({"--output", "out"}).err.find("the run trained on tokens") != std::string::npos);
}

TEST_CASE("an earlier checkpoint is exported by step or folder, and weights also with our names") {
  Run run;
  REQUIRE(run.run({"--output", "first", "--step", "10"}).code == 0);
  REQUIRE(run.run({"--output", "second", "--checkpoint", run.checkpoint("step-000010")}).code == 0);
  CHECK(slurp(run.place.path() / "first/model.safetensors") == slurp(run.place.path() / "second/model.safetensors"));
  CHECK(wrong_values(HfSource(run.place.path() / "first", tiny_gpt(), run.spec), run.spec) > 0);
  REQUIRE(run.run({"--output", "ours", "--format", "safetensors"}).code == 0);
  SafetensorsFile file(run.place.path() / "ours/model.safetensors");
  CHECK(file.find("blocks.0.attention.qkv.weight") != nullptr);
  CHECK_FALSE(fs::exists(run.place.path() / "ours/config.json"));
}

TEST_CASE("averages that a hook keeps are exported instead of the weights") {
  Run run;
  run.save(30, true, {{"vocab_size", tiny_vocab}, {"seq_len", 8}}, "hook/ema/average/");
  REQUIRE(run.run({"--output", "weights"}).code == 0);
  CHECK(wrong_values(HfSource(run.place.path() / "weights", tiny_gpt(), run.spec), run.spec) > 0);
  auto result = run.run({"--output", "average", "--weights", "ema/average"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.err.find(run.id + " (ema/average) at step 30") != std::string::npos);
  CHECK(wrong_values(HfSource(run.place.path() / "average", tiny_gpt(), run.spec), run.spec) == 0);
  result = run.run({"--output", "other", "--weights", "ema/averages"});
  CHECK(result.code == 2);
  CHECK(result.err.find("--weights ema/averages: " + run.checkpoint("step-000030") +
                        " has no such weights; it has model, ema/average; did you mean `ema/average`?") !=
        std::string::npos);
  CHECK_FALSE(fs::exists(run.place.path() / "other"));
}

TEST_CASE("a damaged newest checkpoint is skipped with a warning, and refused if it was named") {
  Run run;
  fs::remove(run.checkpoint("step-000020/rank-00001.safetensors"));
  auto result = run.run({"--output", "out"});
  CHECK(result.code == 0);
  CHECK(result.err.find("skipping checkpoint step-000020: " + run.checkpoint("step-000020/rank-00001.safetensors") +
                        " is missing") != std::string::npos);
  result = run.run({"--output", "named", "--step", "20"});
  CHECK(result.code == 4);
  CHECK(result.err.find("is missing; the previous good checkpoint is step-000010") != std::string::npos);
  CHECK_FALSE(fs::exists(run.place.path() / "named"));
}

TEST_CASE("a request that cannot be exported is refused with the reason and leaves nothing") {
  Run run;
  auto refused = [&](std::vector<std::string> arguments, int code, const std::string& text) {
    auto result = run.run(arguments);
    INFO(result.err);
    CHECK(result.code == code);
    CHECK(result.err.find(text) != std::string::npos);
    CHECK(result.out.empty());
  };
  refused({"--output", "out", "--step", "15"}, 2,
          "--step 15: run " + run.id + " has no such checkpoint; it has step-000010, step-000020");
  refused({"--output", "out", "--step", "10", "--checkpoint", "x"}, 2, "excludes");
  refused({"--output", "out", "--dtype", "f64"}, 2, "f64");
  refused({"--output", "out", "--format", "onnx"}, 2, "onnx");
  refused({"--output", "out", "--checkpoint", "nowhere"}, 2, "nowhere: there is no such checkpoint");
  run.place.write("full/file", "x");
  refused({"--output", "full"}, 2, "full exists and is not an empty folder");
  run.save(30, true, {{"vocab_size", tiny_vocab}});
  refused({"--output", "out"}, 4, run.checkpoint("step-000030") + ": the manifest's state has no model.seq_len");
  run.save(40, true, {{"vocab_size", tiny_vocab + 1}, {"seq_len", 8}});
  refused({"--output", "out"}, 4,
          run.checkpoint("step-000040") +
              " does not fit the run's resolved.toml: `param/embedding.tokens.weight` is [50, 24] instead of [51, 24]");
  fs::remove_all(fs::path(run.dir) / "checkpoints");
  refused({"--output", "out"}, 2,
          "run " + run.id + " has no checkpoint in " + (fs::path(run.dir) / "checkpoints").string());
  CHECK_FALSE(fs::exists(run.place.path() / "out"));
}
