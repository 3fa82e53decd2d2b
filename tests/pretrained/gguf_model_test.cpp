// A GGUF file read as a Hugging Face folder: settings, weights, tokenizer and chat template.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "runner/base/text.hpp"
#include "runner/chat/chat_template.hpp"
#include "runner/pretrained/model_files.hpp"
#include "runner/tokenizers/hf_tokenizer.hpp"
#include "tests/checkpoint/support.hpp"
#include "tests/checkpoint/tiny_models.hpp"
#include "tests/models/recipes.hpp"
#include "tests/support/gguf_builder.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int64_t vocabulary_size = 40;

std::vector<float> all_values(const ModelSpec& spec, size_t slot) {
  std::vector<float> values(static_cast<size_t>(spec.parameters()[slot]->numel()));
  parameter_values(slot, 0, values);
  return values;
}

/// The rows of q and k as llama.cpp's converter orders them: reshape(heads, 2, half, columns).swapaxes(1, 2).
std::vector<float> paired(const std::vector<float>& values, int64_t heads, int64_t half, int64_t columns) {
  std::vector<float> out;
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t i = 0; i < half; ++i)
      for (int64_t side = 0; side < 2; ++side)
        for (int64_t column = 0; column < columns; ++column)
          out.push_back(values[static_cast<size_t>(((head * 2 + side) * half + i) * columns + column)]);
  return out;
}

/// Their name of one of our parameters.
std::string gguf_name(const std::string& ours) {
  if (ours == "embedding.tokens.weight") return "token_embd.weight";
  if (ours == "head.weight") return "output.weight";
  if (ours == "head.norm.weight") return "output_norm.weight";
  const auto parts = split(ours, '.');
  const auto module = parts[2] == "attention_norm" ? "attn_norm" : parts[2] == "mlp_norm" ? "ffn_norm" : parts[3];
  static const std::map<std::string, std::string> names = {
      {"wq", "attn_q"},          {"wk", "attn_k"},   {"wv", "attn_v"}, {"wo", "attn_output"}, {"q_norm", "attn_q_norm"},
      {"k_norm", "attn_k_norm"}, {"w1", "ffn_gate"}, {"w3", "ffn_up"}, {"w2", "ffn_down"}};
  const auto found = names.find(module);
  return fmt::format("blk.{}.{}.{}", parts[1], found == names.end() ? module : found->second, parts.back());
}

/// The metadata of a model, without a tokenizer.
GgufBuilder settings_file(const Recipe::Model& model) {
  GgufBuilder file;
  const auto key = [&](const char* name) { return model.name + "." + name; };
  const auto add = [&](const char* name, int64_t value) { file.add(key(name), static_cast<uint32_t>(value)); };
  file.add("general.architecture", model.name);
  add("block_count", model.n_layers);
  add("context_length", model.max_seq_len);
  add("embedding_length", model.dim);
  add("feed_forward_length", model.hidden_dim.value());
  add("attention.head_count", model.n_heads);
  add("attention.head_count_kv", model.n_kv_heads.value());
  file.add(key("rope.freq_base"), static_cast<float>(model.rope_theta));
  file.add(key("attention.layer_norm_rms_epsilon"), static_cast<float>(model.norm_eps));
  if (model.head_dim) add("attention.key_length", *model.head_dim);
  if (model.head_dim) add("attention.value_length", *model.head_dim);
  return file;
}

void add_weights(GgufBuilder& file, const Recipe::Model& model) {
  const auto spec = make_spec(model, vocabulary_size, 8);
  const auto parameters = spec.parameters();
  const bool pairs = model.name == "llama" || model.name == "smollm3";
  for (size_t slot = 0; slot < parameters.size(); ++slot) {
    const auto name = gguf_name(parameters[slot]->name);
    auto values = all_values(spec, slot);
    const std::vector<uint64_t> shape(parameters[slot]->shape.begin(), parameters[slot]->shape.end());
    const int64_t heads = name.find("attn_q.") != std::string::npos   ? model.n_heads
                          : name.find("attn_k.") != std::string::npos ? *model.n_kv_heads
                                                                      : 0;
    if (pairs && heads > 0)
      values = paired(values, heads, parameters[slot]->shape[0] / heads / 2,
                      std::ssize(values) / parameters[slot]->shape[0]);
    if (model.name == "gemma" && name.ends_with("norm.weight"))
      for (auto& value : values) value += 1;
    file.add_floats(name, shape, values);
  }
}

Recipe::Model gguf_recipe(const std::string& name) {
  auto model = name == "llama" ? llama_recipe() : family_recipe(name);
  if (name == "qwen2" || name == "smollm3") model.head_dim = {};
  if (name == "smollm3") model.no_rope_every = 4;  // its usual setting, which files do not contain
  return model;
}

void add_tokenizer(GgufBuilder& file) {
  std::vector<std::string> tokens = {"<|end|>", "<|user|>"};
  for (char letter = 'a'; letter <= 'z'; ++letter) tokens.emplace_back(1, letter);
  for (const char* more : {"\u0120", "\u010a", "1", "2", "he", "\u0120t", "\u0120the", "ll"}) tokens.emplace_back(more);
  std::vector<int32_t> types(tokens.size(), 1);
  types[0] = types[1] = 3;
  file.add("tokenizer.ggml.tokens", tokens);
  file.add("tokenizer.ggml.token_type", types);
  file.add("tokenizer.ggml.merges", std::vector<std::string>{"h e", "\u0120 t", "\u0120t he", "l l"});
  file.add("tokenizer.ggml.eos_token_id", 0u);
}

}  // namespace

TEST_CASE("a GGUF file of each architecture has the settings and weights of its model", "[gguf][rank3]") {
  Folder folder;
  const std::string name = GENERATE("llama", "qwen2", "qwen3", "smollm3", "gemma");
  CAPTURE(name);
  const auto model = gguf_recipe(name);
  auto file = settings_file(model);
  add_weights(file, model);
  const auto path = folder / "model.gguf";
  write_text(path, file.bytes());
  auto read = model_of_hf_folder(path);
  CHECK(read.vocab_size == vocabulary_size);
  CHECK(model_settings(read, vocabulary_size) == model_settings(model, vocabulary_size));
  const auto spec = make_spec(read, vocabulary_size, 8);
  const HfSource source(path, read, spec);
  CHECK(wrong_values(source, spec) == 0);
  // A part that begins inside of a row.
  const auto slot = spec.slot("blocks.1.attention.wq.weight");
  std::vector<float> part(37);
  source.read(slot, 5, part);
  for (size_t i = 0; i < part.size(); ++i) CHECK(part[i] == parameter_value(slot, static_cast<int64_t>(i) + 5));
}

TEST_CASE("the factors of Llama 3's rotary frequencies become its settings", "[gguf]") {
  Folder folder;
  auto model = llama_recipe();
  model.rope_scaling = Recipe::Model::RopeScaling{32, 1, 4, 8192};
  model.rope_theta = 500000;
  const size_t half = 4;
  std::vector<float> factors;
  for (size_t i = 0; i < half; ++i) {  // the formula of transformers' modeling_rope_utils.py
    const double frequency = 1 / std::pow(500000, static_cast<double>(i) / half),
                 wave = 2 * 3.14159265358979 / frequency;
    const double smooth = (8192 / wave - 1) / 3;
    const double scaled = wave > 8192   ? frequency / 32
                          : wave < 2048 ? frequency
                                        : (1 - smooth) * frequency / 32 + smooth * frequency;
    factors.push_back(static_cast<float>(frequency / scaled));
  }
  CHECK(factors.back() == 32);
  auto file = settings_file(model);
  add_weights(file, model);
  auto wrong = file;
  file.add_floats("rope_freqs.weight", {half}, factors);
  write_text(folder / "model.gguf", file.bytes());
  CHECK(model_settings(model_of_hf_folder(folder / "model.gguf"), vocabulary_size) ==
        model_settings(model, vocabulary_size));
  HfSource(folder / "model.gguf", model, make_spec(model, vocabulary_size, 8));
  for (const float factor : {7.0f, NAN}) {
    factors[1] = factor;
    auto other = wrong;
    other.add_floats("rope_freqs.weight", {half}, factors);
    write_text(folder / "wrong.gguf", other.bytes());
    CHECK_THAT(message_of([&] { model_of_hf_folder(folder / "wrong.gguf"); }),
               ContainsSubstring("`rope_freqs.weight` has factors that rope_type \"llama3\""));
  }
}

TEST_CASE("settings of a GGUF file that are not supported are refused by name", "[gguf]") {
  Folder folder;
  const auto refusal = [&](auto&& change) {
    auto file = settings_file(llama_recipe());
    change(file);
    file.add_floats("token_embd.weight", {1, 32}, std::vector<float>(32));
    write_text(folder / "model.gguf", file.bytes());
    return message_of([&] { model_of_hf_folder(folder / "model.gguf"); });
  };
  using File = GgufBuilder;
  CHECK_THAT(refusal([](File& file) {
               file = {};
               file.add("general.architecture", "mamba");
             }),
             ContainsSubstring(
                 "general.architecture = \"mamba\" is not supported; allowed: llama, qwen2, qwen3, smollm3 or gemma"));
  CHECK_THAT(refusal([](File& file) { file = {}; }), ContainsSubstring("its metadata have no `general.architecture`"));
  CHECK_THAT(refusal([](File& file) { file.add("llama.expert_count", 8u); }),
             ContainsSubstring("`llama.expert_count` = 8"));
  CHECK_THAT(refusal([](File& file) { file.add("llama.rope.freq_bases", 8u); }),
             ContainsSubstring("`llama.rope.freq_bases` is not a known key (did you mean `llama.rope.freq_base`?)"));
  CHECK_THAT(refusal([](File& file) { file.add("llama.rope.scaling.type", "longrope"); }),
             ContainsSubstring("`llama.rope.scaling.type` = \"longrope\" is not supported"));
  CHECK_THAT(refusal([](File& file) { file.add("llama.rope.dimension_count", 4u); }),
             ContainsSubstring("`llama.rope.dimension_count` = 4 is not supported; the heads have 8 elements"));
  CHECK_THAT(message_of([&] { model_of_hf_folder(folder / "none.gguf"); }),
             ContainsSubstring("none.gguf: there is no such file"));
  write_text(folder / "text.gguf", "no model");
  CHECK_THAT(message_of([&] { model_of_hf_folder(folder / "text.gguf"); }),
             ContainsSubstring("text.gguf is neither a Hugging Face folder nor a GGUF file"));
  CHECK_THAT(message_of([&] { model_of_hf_folder(folder / "smollm2" / "none.gguf"); }),
             ContainsSubstring("`scripts/setup --smollm2` downloads it"));
}

TEST_CASE("weights of a GGUF file that do not fit the model are listed", "[gguf]") {
  Folder folder;
  const auto model = llama_recipe();
  auto file = settings_file(model);
  file.add_floats("token_embd.weight", {vocabulary_size, 32}, std::vector<float>(vocabulary_size * 32));
  file.add_tensor("output.weight", 20, {vocabulary_size, 32}, std::string(vocabulary_size * 18, '\0'));
  file.add_floats("blk.0.attn_norm.weight", {31}, std::vector<float>(31));
  file.add_floats("blk.0.unheard.weight", {31}, std::vector<float>(31));
  write_text(folder / "model.gguf", file.bytes());
  const auto message =
      message_of([&] { HfSource(folder / "model.gguf", model, make_spec(model, vocabulary_size, 8)); });
  CHECK_THAT(message, ContainsSubstring("missing: model.layers.0.self_attn.q_proj.weight"));
  CHECK_THAT(message, ContainsSubstring("model.layers.0.input_layernorm.weight is [31] instead of [32]"));
  CHECK_THAT(message, ContainsSubstring("lm_head.weight is IQ4_NL instead of F32, F16, F64, BF16, Q4_0"));
  CHECK_THAT(message, ContainsSubstring("not in the model: blk.0.unheard.weight"));
}

TEST_CASE("the tokenizer and the chat template in a GGUF file", "[gguf][rank2]") {
  Folder folder;
  const auto path = folder / "model.gguf";
  GgufBuilder file;
  add_tokenizer(file);
  file.add("tokenizer.ggml.model", "gpt2");
  file.add("tokenizer.ggml.pre", "smollm");
  file.add("tokenizer.chat_template", "{{ messages[0]['content'] }}{{ eos_token }}");
  write_text(path, file.bytes());
  const auto tokenizer = open_tokenizer_file(path);
  CHECK(tokenizer->vocab_size() == 36);
  std::vector<std::string> tokens;
  for (const auto id : tokenizer->encode("he the<|end|>12")) tokens.push_back(*tokenizer->id_to_token(id));
  CHECK(tokens == std::vector<std::string>{"he", "\u0120the", "<|end|>", "1", "2"});
  CHECK(tokenizer->special_tokens().eos == 0);
  CHECK(tokenizer->is_special(1));
  REQUIRE(tokenizer->files().size() == 2);
  CHECK(tokenizer->files()[0].name == "tokenizer.json");
  CHECK(read_model_file(tokenizer->files()[0].path).size() > 100);
  CHECK(chat::ChatTemplate::from_folder(path).render({{{"role", "user"}, {"content", "hello"}}}).text ==
        "hello<|end|>");
}

TEST_CASE("texts of a GGUF file that are not UTF-8 are refused by file and key", "[gguf]") {
  Folder folder;
  const auto path = folder / "model.gguf";
  const auto refusal = [&](const std::string& name, auto&& value) {
    GgufBuilder file;
    file.add("tokenizer.ggml.model", "gpt2");
    file.add("tokenizer.ggml.pre", "smollm");
    file.add(name, value);
    if (name != "tokenizer.ggml.merges") add_tokenizer(file);
    if (name == "tokenizer.ggml.merges") file.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
    write_text(path, file.bytes());
    return message_of([&] {
      open_tokenizer_file(path);
      chat::ChatTemplate::from_folder(path);
    });
  };
  CHECK(refusal("tokenizer.chat_template", std::string("hello\xff")) ==
        path.string() + ": `tokenizer.chat_template`: byte 5 of the text is not UTF-8: the file is damaged");
  CHECK(refusal("tokenizer.ggml.merges", std::vector<std::string>{"a b", "a \xff"}) ==
        path.string() + ": `tokenizer.ggml.merges`, element 1: byte 2 of the text is not UTF-8: the file is damaged");
}

TEST_CASE("a tokenizer of a GGUF file that is not supported is refused", "[gguf]") {
  Folder folder;
  const auto path = folder / "model.gguf";
  const auto refusal = [&](const std::string& kind, const std::string& pre) {
    GgufBuilder file;
    add_tokenizer(file);
    file.add("tokenizer.ggml.model", kind);
    file.add("tokenizer.ggml.pre", pre);
    write_text(path, file.bytes());
    return message_of([&] { open_tokenizer_file(path); });
  };
  CHECK_THAT(refusal("gpt2", "grok-2"),
             ContainsSubstring("tokenizer.ggml.pre = \"grok-2\" is not supported; allowed: gpt-2,"));
  CHECK_THAT(refusal("rwkv", ""),
             ContainsSubstring("tokenizer.ggml.model = \"rwkv\" is not supported; allowed: gpt2 or llama"));
  write_text(path, GgufBuilder().bytes());
  CHECK_THAT(message_of([&] { open_tokenizer_file(path); }), ContainsSubstring("model.gguf has no tokenizer"));
}
