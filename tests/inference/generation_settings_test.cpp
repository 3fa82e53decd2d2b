// generation_config.json gives defaults that the user's options replace.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "runner/base/error.hpp"
#include "runner/base/log.hpp"
#include "runner/inference/generation_settings.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;

namespace {

struct Settings {
  TemporaryFolder folder;
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder.path / name) << text; }
  GenerationSettings of(const GenerationRequest& request = {}) const {
    return generation_settings(request, folder.path, *make_bytes_tokenizer(), 100);
  }
};

}  // namespace

TEST_CASE("without any settings, generation is greedy") {
  const Settings none;
  CHECK(none.of().max_new_tokens == 100);
  CHECK(none.of().sampling.temperature == 0);
  CHECK(none.of().eos.empty());
  CHECK(none.of({.top_k = 5}).sampling.temperature == 1);  // asks for sampling
  CHECK(none.of({.top_k = 5, .temperature = 0.7}).sampling.temperature == 0.7);
}

TEST_CASE("generation_config.json of a folder gives defaults") {
  const Settings settings;
  settings.write(
      "generation_config.json",
      R"({"do_sample": true, "temperature": 0.6, "top_p": 0.9, "eos_token_id": [7, 9], "max_new_tokens": 33})");
  const auto from_file = settings.of();
  CHECK(from_file.sampling.temperature == 0.6);
  CHECK(from_file.sampling.top_p == 0.9);
  CHECK(from_file.sampling.top_k == 50);  // transformers' default for sampling
  CHECK(from_file.eos == std::vector<int32_t>{7, 9});
  CHECK(from_file.max_new_tokens == 33);
  const auto changed = settings.of({.max_new_tokens = 4, .top_k = 0, .temperature = 0.0, .ignore_eos = true});
  CHECK(changed.sampling.temperature == 0);
  CHECK(changed.sampling.top_k == 0);
  CHECK(changed.max_new_tokens == 4);
  CHECK(changed.eos.empty());
}

TEST_CASE("sampling values of a folder that does not sample are not used") {
  const Settings settings;
  settings.write("generation_config.json", R"({"temperature": 0.6, "repetition_penalty": 1.2, "eos_token_id": 3})");
  CHECK(settings.of().sampling.temperature == 0);
  CHECK(settings.of().sampling.repetition_penalty == 1.2);
  CHECK(settings.of().eos == std::vector<int32_t>{3});
}

TEST_CASE("a message says which settings of generation_config.json are not used") {
  const Settings settings;
  const auto told = [&](const std::string& text) {
    settings.write("generation_config.json", text);
    std::string lines;
    log::set_copy([&](const std::string& line) { lines += line; });
    settings.of();
    log::set_copy(nullptr);
    return lines;
  };
  CHECK(told(R"({"num_beams": 1, "length_penalty": 1.0, "min_length": 0, "use_cache": true, "suppress_tokens": []})")
            .empty());
  CHECK_THAT(told(R"({"no_repeat_ngram_size": 1, "min_new_tokens": 1, "forced_eos_token_id": 0, "num_beams": 4})"),
             EndsWith("generation_config.json: these settings are not used: forced_eos_token_id = 0, min_new_tokens = "
                      "1, no_repeat_ngram_size = 1, num_beams = 4"));
  nlohmann::json many = {{"a", std::string(100, 'x')}};
  for (const char letter : std::string("bcdefghijkl")) many[std::string(1, letter)] = 2;
  CHECK_THAT(told(many.dump()),
             EndsWith("not used: a = \"" + std::string(79, 'x') +
                      "..., b = 2, c = 2, d = 2, e = 2, f = 2, g = 2, h = 2, i = 2, j = 2 and 2 more"));
}

TEST_CASE("the end tokens are those of config.json if generation_config.json has none") {
  const Settings settings;
  settings.write("config.json", R"({"eos_token_id": 11})");
  CHECK(settings.of().eos == std::vector<int32_t>{11});
}

TEST_CASE("values that cannot be are refused") {
  const Settings settings;
  CHECK_THROWS_WITH(settings.of({.max_new_tokens = 0}), "--max-new-tokens 0: must be at least 1");
  CHECK_THROWS_WITH(settings.of({.temperature = -1.0}), "--temperature -1: must be 0 (greedy) or more");
  CHECK_THROWS_WITH(settings.of({.top_p = 1.5}), "--top-p 1.5: must be above 0 and at most 1");
  CHECK_THROWS_WITH(settings.of({.stop = {""}}), "--stop: a stop text must not be empty");
  settings.write("generation_config.json", R"({"do_sample": true, "top_k": "x"})");
  CHECK_THROWS_WITH(settings.of(), EndsWith("generation_config.json: top_k = \"x\": must be a whole number"));
  settings.write("generation_config.json", R"({"do_sample": "x"})");
  CHECK_THROWS_WITH(settings.of(), EndsWith("generation_config.json: do_sample = \"x\": must be true or false"));
  settings.write("generation_config.json", R"({"eos_token_id": "x"})");
  CHECK_THROWS_WITH(settings.of(), ContainsSubstring("eos_token_id is neither a number nor a list of numbers"));
}
