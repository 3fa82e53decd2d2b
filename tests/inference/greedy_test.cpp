// Greedy generation equals that of transformers (make_greedy_reference.py), with the cache and without it, for every family.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

#include "runner/inference/generator.hpp"
#include "strategies/engine/token_batch.hpp"
#include "tests/support/formula_weights.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

using Tokens = std::vector<std::vector<int32_t>>;

const nlohmann::json& reference() {
  static const auto table =
      nlohmann::json::parse(read_file(RUNNER_SOURCE_DIR "/tests/inference/reference/greedy.json"));
  return table;
}

std::vector<std::string> families() {
  std::vector<std::string> names;
  for (const auto& [name, family] : reference().at("families").items()) names.push_back(name);
  return names;
}

/// A Hugging Face folder with the formula's weights.
struct Folder {
  explicit Folder(const nlohmann::json& config, const std::string& dtype = "F32") {
    const auto model = model_from_hf_config(config);
    const auto spec = make_spec(model, *model.vocab_size, model.max_seq_len);
    const auto parameters = spec.parameters();
    const auto names = hf_names(model, spec);
    const bool gemma = model.name.starts_with("gemma");
    WeightsFolder options;
    options.dtype = dtype;
    export_weights(
        folder.path / "model", model, spec,
        [&](size_t slot, int64_t offset, std::span<float> out) {
          const auto values = formula_values(*parameters[slot], names[slot], gemma);
          std::copy_n(values.begin() + offset, out.size(), out.begin());
        },
        options);
  }
  LoadRequest request() const { return {.folder = (folder.path / "model").string(), .threads = 1}; }
  TemporaryFolder folder;
};

LanguageModel model_in(const LoadRequest& request) { return {request, open_stored_model(request.place())}; }

/// What the model generates for the reference's prompts, from `first` on, as one batch.
Tokens generated(const LanguageModel& model, const Tokens& prompts, int64_t new_tokens) {
  const auto tokenizer = make_bytes_tokenizer();
  Generator generator(model, *tokenizer, {.max_new_tokens = new_tokens, .sampling = {}, .eos = {}, .stop = {}}, 0);
  std::vector<GenerationStart> starts;
  for (const auto& prompt : prompts) starts.push_back({.tokens = prompt});
  Tokens all;
  for (const auto& text : generator.run(starts, [](size_t, const std::string&) {})) all.push_back(text.tokens);
  return all;
}

/// Whether each token after the prompt is the most probable one, computed from all tokens before it at once, without a cache.
bool greedy_without_cache(const LanguageModel& model, const std::vector<int32_t>& prompt,
                          const std::vector<int32_t>& text) {
  std::vector<int64_t> tokens(prompt.begin(), prompt.end()), targets;
  tokens.insert(tokens.end(), text.begin(), text.end());
  targets.assign(prompt.size() - 1, -100);
  targets.insert(targets.end(), text.begin(), text.end());
  tokens.pop_back();
  HostBatch batch(1, token_fields(std::ssize(tokens)));
  std::ranges::copy(tokens, batch.row<int64_t>(token_field::inputs, 0).begin());
  std::ranges::copy(targets, batch.row<int64_t>(token_field::targets, 0).begin());
  const auto scores = model.score(batch);
  return std::ranges::all_of(scores.greedy, [](bool greedy) { return greedy; });
}

/// The greatest difference between the logits after each token of `text` with a cache that grows, and with a new one each time,
/// relative to the greatest logit.
double cache_error(const LanguageModel& model, const std::vector<int32_t>& prompt, const std::vector<int32_t>& text) {
  std::vector<int64_t> tokens(prompt.begin(), prompt.end());
  auto growing = model.new_cache({0});
  auto with_cache = model.next_logits(tokens, growing);
  double worst = 0;
  for (const int64_t token : text) {
    auto anew = model.new_cache({0});
    const auto without = model.next_logits(tokens, anew);
    worst = std::max(worst, ((with_cache - without).abs().max() / without.abs().max()).item<double>());
    tokens.push_back(token);
    with_cache = model.next_logits(std::vector{token}, growing);
  }
  return worst;
}

}  // namespace

TEST_CASE("rank 5: greedy tokens with the cache are those of transformers, and of a model without a cache", "[rank5]") {
  const auto name = GENERATE(from_range(families()));
  CAPTURE(name);
  const auto& family = reference().at("families").at(name);
  const Folder folder(family.at("config"));
  const LanguageModel model = model_in(folder.request());
  const auto prompts = reference().at("prompts").get<Tokens>(), expected = family.at("greedy").get<Tokens>();
  const auto new_tokens = std::ssize(expected.front());
  CHECK(generated(model, prompts, new_tokens) == expected);
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (name.starts_with("phi3_")) continue;  // longrope: the longest sequence of a batch decides about rotations
    CHECK(generated(model, {prompts[i]}, new_tokens).front() == expected[i]);
    CHECK(cache_error(model, prompts[i], expected[i]) < 1e-5);
    CHECK(greedy_without_cache(model, prompts[i], expected[i]));
  }
}

TEST_CASE("rank 5: in bfloat16, logits with the cache are those without it, and batches do not matter", "[rank5]") {
  const auto name = GENERATE(as<std::string>(), "gpt2", "llama", "qwen3", "gemma2", "gpt_neox", "olmo2");
  CAPTURE(name);
  const Folder folder(reference().at("families").at(name).at("config"), "BF16");
  const LanguageModel model = model_in(folder.request());
  REQUIRE(model.dtype() == torch::kBFloat16);
  const auto prompts = reference().at("prompts").get<Tokens>();
  const auto together = generated(model, prompts, 16);
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto alone = generated(model, {prompts[i]}, 16).front();
    CHECK(alone == together[i]);
    CHECK(cache_error(model, prompts[i], alone) < 0.04);  // about ten units of bfloat16, 2^-8 each
  }
}

TEST_CASE("sequences that end leave the batch, and the others do not change", "[rank5]") {
  const auto& family = reference().at("families").at("qwen2");
  const Folder folder(family.at("config"));
  const LanguageModel model = model_in(folder.request());
  const auto tokenizer = make_bytes_tokenizer();
  auto prompts = reference().at("prompts").get<Tokens>();
  for (int i = 2; i < 6; ++i) prompts.push_back({static_cast<int32_t>(3 * i), 1, static_cast<int32_t>(i)});
  Tokens ends = generated(model, prompts, 12);
  const std::vector<int32_t> eos{ends[1][2], ends[3][1], ends[4][5]};
  const GenerationSettings settings{.max_new_tokens = 12, .sampling = {}, .eos = eos, .stop = {}};
  const auto run = [&](const Tokens& of) {
    Generator generator(model, *tokenizer, settings, 0);
    std::vector<GenerationStart> starts;
    for (const auto& prompt : of) starts.push_back({.tokens = prompt});
    return generator.run(starts, [](size_t, const std::string&) {});
  };
  const auto together = run(prompts);
  int ended = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto alone = run({prompts[i]}).front();
    CHECK(together[i].tokens == alone.tokens);
    CHECK(together[i].finish == alone.finish);
    ended += alone.finish == "eos";
  }
  CHECK(ended >= 3);
}

TEST_CASE("a sequence that was read is reused for a prompt that begins with it", "[rank5]") {
  const Folder folder(reference().at("families").at("mistral").at("config"));
  const LanguageModel model = model_in(folder.request());
  const auto tokenizer = make_bytes_tokenizer();
  Generator generator(model, *tokenizer, {.max_new_tokens = 6, .sampling = {}, .eos = {}, .stop = {}}, 0);
  const auto ignore = [](size_t, const std::string&) {};
  auto prompt = reference().at("prompts").get<Tokens>().front();
  ReadSequence read;
  const auto first = generator.run({{.tokens = prompt}}, ignore, &read).front();
  prompt.insert(prompt.end(), first.tokens.begin(), first.tokens.end());
  prompt.insert(prompt.end(), {7, 8, 9, 10});
  const auto continued = generator.run({{.tokens = prompt}}, ignore, &read).front();
  CHECK(generator.times().reused_tokens == std::ssize(prompt) - 5);  // all that was read
  CHECK(continued.tokens == generated(model, {prompt}, 6).front());
  prompt[3] = 63;  // another text from the fourth token on
  CHECK(generator.run({{.tokens = prompt}}, ignore, &read).front().tokens == generated(model, {prompt}, 6).front());
}

TEST_CASE("weights of the wanted dtype are not copied") {
  const Folder folder(reference().at("families").at("llama").at("config"), "BF16");
  const auto stored = open_stored_model(folder.request().place());
  CHECK(stored.dtype == "BF16");
  CHECK(stored.stored(0).bytes.size() == 2 * 64 * 64);
  CHECK(model_in({.folder = folder.request().folder, .dtype = "f32"}).dtype() == torch::kFloat32);
}
