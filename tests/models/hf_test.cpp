// The Hugging Face mapping: every parameter has a name there, config.json round-trips, and unsupported options are
// rejected.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <set>

#include "recipes.hpp"
#include "runner/base/error.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::Message;

namespace {

HfTensor hf_of(const Recipe::Model& model, const std::string& parameter) {
  auto spec = make_spec(model, 96, 16);
  return hf_names(model, spec)[spec.slot(parameter)];
}

nlohmann::json gpt2_config() {
  return {{"model_type", "gpt2"}, {"vocab_size", 50257}, {"n_positions", 1024},
          {"n_ctx", 1024},        {"n_embd", 768},       {"n_layer", 12},
          {"n_head", 12},         {"n_inner", nullptr},  {"layer_norm_epsilon", 1e-5}};
}

nlohmann::json llama_config() {
  return {{"model_type", "llama"},
          {"vocab_size", 128256},
          {"hidden_size", 4096},
          {"intermediate_size", 14336},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"max_position_embeddings", 131072},
          {"rms_norm_eps", 1e-5},
          {"hidden_act", "silu"},
          {"rope_theta", 500000.0},
          {"rope_scaling",
           {{"factor", 8.0},
            {"low_freq_factor", 1.0},
            {"high_freq_factor", 4.0},
            {"original_max_position_embeddings", 8192},
            {"rope_type", "llama3"}}},
          {"tie_word_embeddings", false}};
}

}  // namespace

TEST_CASE("every parameter has its own place in a Hugging Face checkpoint") {
  for (const auto& model : varied_recipes()) {
    auto spec = make_spec(model, 96, 16);
    auto tensors = hf_names(model, spec);
    REQUIRE(tensors.size() == spec.parameters().size());
    std::set<std::pair<std::string, int64_t>> unique;
    for (const auto& tensor : tensors) unique.emplace(tensor.name, tensor.rows ? tensor.rows->first : -1);
    CHECK(unique.size() == tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i)
      if (tensors[i].transposed) CHECK(spec.parameters()[i]->shape.size() == 2);
  }
}

TEST_CASE("gpt maps to GPT2LMHeadModel, whose Conv1D layers are transposed") {
  auto check = [](const char* ours, const char* theirs, bool transposed) {
    auto tensor = hf_of(gpt_recipe(), ours);
    CHECK(tensor.name == std::string("transformer.") + theirs);
    CHECK(tensor.aliases == std::vector<std::string>{theirs});
    CHECK(tensor.transposed == transposed);
  };
  check("embedding.tokens.weight", "wte.weight", false);
  check("embedding.positions.weight", "wpe.weight", false);
  check("blocks.1.attention_norm.weight", "h.1.ln_1.weight", false);
  check("blocks.1.attention.qkv.weight", "h.1.attn.c_attn.weight", true);
  check("blocks.1.attention.qkv.bias", "h.1.attn.c_attn.bias", false);
  check("blocks.1.attention.out.weight", "h.1.attn.c_proj.weight", true);
  check("blocks.0.mlp_norm.bias", "h.0.ln_2.bias", false);
  check("blocks.0.mlp.up.weight", "h.0.mlp.c_fc.weight", true);
  check("blocks.0.mlp.down.weight", "h.0.mlp.c_proj.weight", true);
  check("head.norm.bias", "ln_f.bias", false);
  auto untied = gpt_recipe();
  untied.tie_embeddings = false;
  CHECK(hf_of(untied, "head.weight").name == "lm_head.weight");
  CHECK_FALSE(hf_of(untied, "head.weight").transposed);
}

TEST_CASE("llama maps to LlamaForCausalLM") {
  auto check = [](const char* ours, const char* theirs) {
    auto tensor = hf_of(llama_recipe(), ours);
    CHECK(tensor.name == std::string("model.") + theirs);
    CHECK_FALSE(tensor.transposed);
  };
  check("embedding.tokens.weight", "embed_tokens.weight");
  check("blocks.1.attention_norm.weight", "layers.1.input_layernorm.weight");
  check("blocks.1.attention.wq.weight", "layers.1.self_attn.q_proj.weight");
  check("blocks.1.attention.wk.weight", "layers.1.self_attn.k_proj.weight");
  check("blocks.1.attention.wv.weight", "layers.1.self_attn.v_proj.weight");
  check("blocks.1.attention.wo.weight", "layers.1.self_attn.o_proj.weight");
  check("blocks.0.mlp_norm.weight", "layers.0.post_attention_layernorm.weight");
  check("blocks.0.mlp.w1.weight", "layers.0.mlp.gate_proj.weight");
  check("blocks.0.mlp.w3.weight", "layers.0.mlp.up_proj.weight");
  check("blocks.0.mlp.w2.weight", "layers.0.mlp.down_proj.weight");
  check("head.norm.weight", "norm.weight");
  CHECK(hf_of(llama_recipe(), "head.weight").name == "lm_head.weight");
}

TEST_CASE("Phi-3 and GPT-NeoX store queries, keys and values in one tensor, each in its own order of rows") {
  auto phi3 = family_recipe("phi3");
  auto k = hf_of(phi3, "blocks.1.attention.wk.weight"), up = hf_of(phi3, "blocks.1.mlp.w3.weight");
  CHECK(k.name == "model.layers.1.self_attn.qkv_proj.weight");
  REQUIRE(k.rows);
  CHECK(k.rows->first == 32);
  CHECK(k.rows->count == 16);
  CHECK(k.rows->all == 64);
  CHECK(up.name == "model.layers.1.mlp.gate_up_proj.weight");
  CHECK(up.rows.value().first == 88);
  auto v = hf_of(family_recipe("gpt_neox"), "blocks.0.attention.wv.bias");
  CHECK(v.name == "gpt_neox.layers.0.attention.query_key_value.bias");
  REQUIRE(v.rows);
  CHECK(v.rows->first == 16);
  CHECK(v.rows->count == 8);
  CHECK(v.rows->stride == 24);
  CHECK(v.rows->groups == 4);
  CHECK(v.rows->all == 96);
}

TEST_CASE("norms after the branches have Gemma 2's names") {
  for (const char* name : {"gemma2", "gemma3"}) {
    auto model = family_recipe(name);
    CHECK(hf_of(model, "blocks.0.attention_post_norm.weight").name == "model.layers.0.post_attention_layernorm.weight");
    CHECK(hf_of(model, "blocks.0.mlp_norm.weight").name == "model.layers.0.pre_feedforward_layernorm.weight");
    CHECK(hf_of(model, "blocks.0.mlp_post_norm.weight").name == "model.layers.0.post_feedforward_layernorm.weight");
  }
  CHECK(hf_of(family_recipe("qwen3"), "blocks.0.attention.q_norm.weight").name ==
        "model.layers.0.self_attn.q_norm.weight");
}

TEST_CASE("a model with an option that the family has not in Hugging Face is not exported") {
  auto refuses = [](Recipe::Model model, const std::string& message) {
    CHECK_THROWS_MATCHES(hf_config(model, make_spec(model, 96, 16)), Error, Message(message));
  };
  auto llama = llama_recipe();
  llama.qk_norm = "head";
  refuses(
      llama,
      "model.qk_norm = \"head\": Hugging Face's LlamaForCausalLM has no such option (there it is \"none\"), so this "
      "model cannot be exported to it");
  llama = llama_recipe();
  llama.sliding_window = 4;
  CHECK_THROWS_AS(hf_config(llama, make_spec(llama, 96, 16)), Error);
  auto qwen = family_recipe("qwen2");
  qwen.attention_bias = "all";
  refuses(qwen,
          "model.attention_bias = \"all\": Hugging Face's Qwen2ForCausalLM has no such option (there it is \"qkv\"), "
          "so this "
          "model cannot be exported to it");
}

TEST_CASE("Gemma 3's rotary settings are read in the forms of transformers 4 and 5") {
  auto model = family_recipe("gemma3");
  model.rope_scaling = Recipe::Model::RopeScaling{.factor = 8, .rope_type = "linear"};
  auto config = hf_config(model, make_spec(model, 96, 16));
  auto v5 = config;
  for (const char* key : {"rope_theta", "rope_local_base_freq", "rope_scaling", "sliding_window_pattern"})
    v5.erase(key);
  v5["rope_parameters"] = {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
                           {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}};
  auto read = model_from_hf_config(v5);
  CHECK(read.rope_theta == 1e6);
  CHECK(read.rope_local_theta == 1e4);
  REQUIRE(read.rope_scaling);
  CHECK(read.rope_scaling->rope_type == "linear");
  CHECK(model_settings(read, 96) == model_settings(model_from_hf_config(config), 96));
  v5["rope_parameters"]["sliding_attention"]["factor"] = 2.0;
  CHECK_THROWS_MATCHES(model_from_hf_config(v5), Error,
                       Message("config.json: `factor` is not a known key of rope_parameters.sliding_attention"));
}

TEST_CASE("a checkpoint may contain unused buffers and a tied head, but no unused parameters") {
  auto gpt = gpt_recipe();
  CHECK(hf_ignorable(gpt, "h.11.attn.bias"));
  CHECK(hf_ignorable(gpt, "transformer.h.0.attn.masked_bias"));
  CHECK(hf_ignorable(gpt, "lm_head.weight"));
  CHECK_FALSE(hf_ignorable(gpt, "transformer.h.0.attn.c_attn.bias"));
  gpt.tie_embeddings = false;
  CHECK_FALSE(hf_ignorable(gpt, "lm_head.weight"));
  auto llama = llama_recipe();
  CHECK(hf_ignorable(llama, "model.layers.3.self_attn.rotary_emb.inv_freq"));
  CHECK_FALSE(hf_ignorable(llama, "lm_head.weight"));
  llama.tie_embeddings = true;
  CHECK(hf_ignorable(llama, "lm_head.weight"));
}

TEST_CASE("config.json of published models is read with transformers' defaults") {
  auto gpt = model_from_hf_config(gpt2_config());
  CHECK(gpt.name == "gpt");
  CHECK(gpt.activation == "gelu_tanh");
  CHECK(gpt.tie_embeddings);
  CHECK(gpt.dropout == 0.1);
  CHECK(make_spec(gpt, *gpt.vocab_size, 1024).parameter_count() == 124'439'808);

  auto llama = model_from_hf_config(llama_config());
  CHECK(llama.name == "llama");
  CHECK(llama.n_kv_heads == 8);
  CHECK(llama.rope_theta == 500000);
  REQUIRE(llama.rope_scaling);
  CHECK(llama.rope_scaling->original_max_position_embeddings == 8192);
  CHECK_FALSE(llama.tie_embeddings);
  CHECK(make_spec(llama, *llama.vocab_size, 8192).parameter_count() == 8'030'261'248);

  auto nested = llama_config();  // the format of transformers 5
  nested["rope_parameters"] = nested["rope_scaling"];
  nested["rope_parameters"]["rope_theta"] = 250000.0;
  nested.erase("rope_scaling");
  nested.erase("rope_theta");
  auto read = model_from_hf_config(nested);
  CHECK(read.rope_theta == 250000);
  CHECK(read.rope_scaling.has_value());
}

TEST_CASE("Gemma 2 and 3 do not read hidden_act") {
  for (const char* family : {"gemma2", "gemma3"}) {
    const auto model = family_recipe(family);
    auto config = hf_config(model, make_spec(model, 96, 16));
    config.erase("hidden_activation");
    config["hidden_act"] = "gelu";
    CHECK(activation_of(model_from_hf_config(config)) == "gelu_tanh");
  }
}

TEST_CASE("a model is the same after hf_config and model_from_hf_config") {
  for (auto model : varied_recipes()) {
    if (!model.bias) continue;
    auto spec = make_spec(model, 96, 16);
    auto config = hf_config(model, spec);
    auto back = model_from_hf_config(nlohmann::json::parse(config.dump()));
    CHECK(back.vocab_size == 96);
    CHECK(hf_config(back, make_spec(back, 96, 16)) == config);
    auto again = make_spec(back, 96, 16);
    REQUIRE(again.parameters().size() == spec.parameters().size());
    for (size_t i = 0; i < spec.parameters().size(); ++i) {
      CHECK(again.parameters()[i]->name == spec.parameters()[i]->name);
      CHECK(again.parameters()[i]->shape == spec.parameters()[i]->shape);
    }
  }
}

TEST_CASE("an unsupported architecture or option is rejected by name") {
  auto refuses = [](nlohmann::json config, const char* key, nlohmann::json value, const std::string& message) {
    config[key] = std::move(value);
    CHECK_THROWS_MATCHES(model_from_hf_config(config), Error, Message(message));
  };
  refuses(gpt2_config(), "model_type", "mistra",
          "config.json: model_type = \"mistra\" is not supported; allowed: gpt2, bert, roberta, vit, resnet, mlp, "
          "llama, mistral, qwen2, "
          "qwen3, gemma, "
          "gemma2, "
          "gemma3_text, phi3, gpt_neox, olmo2, smollm3 or granite (did you mean \"mistral\"?)");
  refuses(
      gpt2_config(), "model_type", "gemma3",
      "config.json: model_type = \"gemma3\" is not supported; allowed: gpt2, bert, roberta, vit, resnet, mlp, llama, "
      "mistral, qwen2, "
      "qwen3, gemma, "
      "gemma2, "
      "gemma3_text, phi3, gpt_neox, olmo2, smollm3 or granite (\"gemma3\" is a model of images and text; its language "
      "model is \"gemma3_text\")");
  refuses(gpt2_config(), "scale_attn_by_inverse_layer_idx", true,
          "config.json: scale_attn_by_inverse_layer_idx = true is not supported; only false is");
  refuses(gpt2_config(), "activation_function", "relu",
          "config.json: activation_function = \"relu\" is not supported; allowed: gelu, gelu_new or "
          "gelu_pytorch_tanh");
  refuses(gpt2_config(), "attn_pdrop", 0.0,
          "config.json: attn_pdrop = 0 differs from resid_pdrop = 0.1; model.dropout is one rate for all three");
  refuses(gpt2_config(), "n_embd", nullptr, "config.json: `n_embd` is missing");
  refuses(gpt2_config(), "n_embd", "768", "config.json: n_embd = \"768\" has the wrong type");
  refuses(gpt2_config(), "n_embd", 768.5, "config.json: n_embd = 768.5 has the wrong type");
  refuses(gpt2_config(), "n_embd", true, "config.json: n_embd = true has the wrong type");
  refuses(gpt2_config(), "n_embd", UINT64_MAX, "config.json: n_embd = 18446744073709551615 has the wrong type");
  refuses(gpt2_config(), "tie_word_embeddings", 1, "config.json: tie_word_embeddings = 1 has the wrong type");
  refuses(llama_config(), "num_hidden_layers", int64_t{1} << 40,
          "config.json: num_hidden_layers = 1099511627776: must be at least 1 and at most 1048576");
  refuses(gpt2_config(), "n_layer", int64_t{1} << 40,
          "config.json: as keys of [model], `n_layers` must be at most 10000, not 1099511627776");
  refuses(llama_config(), "vocab_size", -1, "config.json: as keys of [model], `vocab_size` must be at least 1, not -1");
  refuses(llama_config(), "num_attention_heads", 0, "config.json: num_attention_heads = 0: must be at least 1");
  refuses(llama_config(), "pruned_heads", {{"0", {1}}},
          "config.json: pruned_heads = {\"0\":[1]} is not supported; only {} is");
  {
    auto config = gpt2_config();
    config["n_embd"] = 768.0;
    CHECK(model_from_hf_config(config).dim == 768);
  }
  refuses(llama_config(), "attention_dropout", 0.1,
          "config.json: attention_dropout = 0.1 is not supported; only 0.0 is");
  refuses(llama_config(), "rms_norm_epsilon", 1e-5,
          "config.json: `rms_norm_epsilon` is not a known key of llama (did you mean `rms_norm_eps`?)");
  refuses(llama_config(), "quantization_config", {{"bits", 4}},
          "config.json: `quantization_config` is not a known key of llama");
  const nlohmann::json harmless{{"quantization_config", nullptr},
                                {"use_mrope", false},
                                {"max_sequence_length", 2048},
                                {"model_max_length", 2048},
                                {"eos_token", "</s>"},
                                {"image_token_id", 7},
                                {"keys_to_ignore_at_inference", nlohmann::json::array({"past_key_values"})}};
  for (const auto& [key, value] : harmless.items()) {
    INFO(key);
    auto config = llama_config();
    config[key] = value;
    CHECK_NOTHROW(model_from_hf_config(config));
  }
  refuses(llama_config(), "use_mrope", true, "config.json: `use_mrope` is not a known key of llama");
  refuses(
      llama_config(), "hidden_act", "mish",
      "config.json: hidden_act = \"mish\" is not supported; allowed: silu, gelu, gelu_pytorch_tanh, gelu_new or relu");
  refuses(llama_config(), "rope_scaling", {{"type", "dynamic"}, {"factor", 2.0}},
          "config.json: rope_type = \"dynamic\" is not supported; allowed: default, linear, llama3, yarn or longrope");
  refuses(llama_config(), "rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"faktor", 2.0}},
          "config.json: `faktor` is not a known key of rope_scaling (did you mean `factor`?)");
  refuses(llama_config(), "layer_types", {"full_attention"},
          "config.json: layer_types has 1 entries, and num_hidden_layers = 32");
  refuses(llama_config(), "rope_scaling", {{"type", "llama3"}}, "config.json: `factor` is missing");
  refuses(llama_config(), "rope_scaling", 8, "config.json: rope_scaling = 8 is not a table");

  auto no_bias = gpt_recipe();
  no_bias.bias = false;
  CHECK_THROWS_MATCHES(
      hf_config(no_bias, make_spec(no_bias, 96, 16)), Error,
      Message("model.bias = false: Hugging Face's GPT-2 always has biases, so this model cannot be exported "
              "to it"));
}

TEST_CASE("unknown keys of config.json are refused for models without tokens, too") {
  for (const std::string family : {"vit", "resnet", "mlp"}) {
    nlohmann::json config = {{"model_type", family},
                             {"pooler_dropout", 0.5},
                             {"num_features", 2},
                             {"num_labels", 2},
                             {"hidden_sizes", {8, 8, 8, 8}}};
    if (family == "vit") config.erase("num_features"), config.erase("hidden_sizes");
    if (family == "resnet") config.erase("num_features");
    CHECK_THROWS_WITH(model_from_hf_config(config), "config.json: `pooler_dropout` is not a known key of " + family);
    config.erase("pooler_dropout");
    CHECK_NOTHROW(model_from_hf_config(config));
  }
}
