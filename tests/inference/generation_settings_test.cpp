// generation_config.json gives defaults that the user's options replace.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "runner/base/error.hpp"
#include "runner/inference/generation_settings.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;

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
  settings.write("generation_config.json", R"({"eos_token_id": "x"})");
  CHECK_THROWS_WITH(settings.of(), ContainsSubstring("eos_token_id is neither a number nor a list of numbers"));
}
