// SmolLM2-135M-Instruct as a GGUF file: its tokenizer gives the ids of the tokenizers library (make_smollm2.py made the table).
// Skipped where scripts/setup --smollm2 has not downloaded it.
#include <catch2/catch_test_macros.hpp>

#include "runner/chat/chat_template.hpp"
#include "runner/checkpoint/hf.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"
#include "tests/support/smollm2.hpp"

using namespace runner;
using namespace runner::testing;

TEST_CASE("SmolLM2's tokenizer and chat template", "[gguf][rank2]") {
  const auto path = smollm2_file();
  const auto tokenizer = open_tokenizer_file(path);
  CHECK(tokenizer->vocab_size() == 49152);
  CHECK(tokenizer->special_tokens().bos == 1);
  CHECK(tokenizer->special_tokens().eos == 2);
  const auto table = smollm2_table();
  for (const auto& text : table.at("texts")) {
    const auto words = text.at("text").get<std::string>();
    CAPTURE(words);
    const auto ids = tokenizer->encode(words);
    CHECK(ids == text.at("ids").get<std::vector<int32_t>>());
    CHECK(tokenizer->decode(ids) == words);
  }
  const auto chat = chat::ChatTemplate::from_folder(path);
  CHECK(chat.render({{{"role", "user"}, {"content", "Hello"}}}, {.add_generation_prompt = true}).text ==
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("SmolLM2's settings and weights are those of a llama", "[gguf][rank3]") {
  const auto path = smollm2_file();
  const auto model = model_of_hf_folder(path);
  CHECK(model.name == "llama");
  CHECK(model.norm_eps == 1e-5);
  CHECK(model.rope_theta == 100000);
  CHECK(model.tie_embeddings);
  const auto spec = make_spec(model, *model.vocab_size, 64);
  CHECK(spec.parameter_count() == 134515008);
  HfSource(path, model, spec);
}
