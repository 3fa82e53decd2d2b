// The torch-free specs: names, shapes, counts, FLOPs, saved activations and errors, compared with values computed by
// hand.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <cmath>
#include <numbers>

#include "recipes.hpp"
#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/models/decoder/decoder.hpp"
#include "runner/models/decoder/rope.hpp"

using namespace runner;
using namespace runner::testing;
using Catch::Matchers::Message;
using Catch::Matchers::WithinRel;

namespace {

std::vector<std::string> names(const std::vector<ParameterSpec>& parameters) {
  std::vector<std::string> out;
  for (const auto& parameter : parameters) {
    std::string shape;
    for (auto size : parameter.shape) shape += fmt::format("{}{}", shape.empty() ? "" : "x", size);
    out.push_back(parameter.name + " " + shape);
  }
  return out;
}

const ParameterSpec& parameter(const ModelSpec& spec, const std::string& name) {
  return *spec.parameters()[spec.slot(name)];
}

}  // namespace

TEST_CASE("a gpt lists GPT-2's parameters block by block") {
  auto spec = make_spec(gpt_recipe(), 96, 16);
  CHECK(spec.family == "gpt");
  REQUIRE(spec.blocks.size() == 6);
  CHECK(names(spec.blocks[0].parameters) ==
        std::vector<std::string>{"embedding.tokens.weight 96x32", "embedding.positions.weight 16x32"});
  CHECK(spec.blocks[1].name == "blocks.0.attention");
  CHECK(spec.blocks[2].name == "blocks.0.mlp");
  CHECK(names(spec.blocks[3].parameters) ==
        std::vector<std::string>{"blocks.1.attention_norm.weight 32", "blocks.1.attention_norm.bias 32",
                                 "blocks.1.attention.qkv.weight 96x32", "blocks.1.attention.qkv.bias 96",
                                 "blocks.1.attention.out.weight 32x32", "blocks.1.attention.out.bias 32"});
  CHECK(names(spec.blocks[4].parameters) ==
        std::vector<std::string>{"blocks.1.mlp_norm.weight 32", "blocks.1.mlp_norm.bias 32",
                                 "blocks.1.mlp.up.weight 128x32", "blocks.1.mlp.up.bias 128",
                                 "blocks.1.mlp.down.weight 32x128", "blocks.1.mlp.down.bias 32"});
  CHECK(names(spec.blocks[5].parameters) == std::vector<std::string>{"head.norm.weight 32", "head.norm.bias 32"});
  CHECK(spec.blocks[5].shared == std::vector<std::string>{"embedding.tokens.weight"});
}

TEST_CASE("attention and MLP of a layer are two blocks with one layer name, and layers are counted once") {
  const auto spec = make_spec(gpt_recipe(), 96, 16);
  std::vector<bool> continues;
  for (size_t b = 0; b < spec.blocks.size(); ++b) continues.push_back(spec.continues_layer(b));
  CHECK(continues == std::vector<bool>{false, false, true, false, true, false});
  CHECK(spec.blocks[4].layer_name() == "blocks.1");
  CHECK(spec.blocks[5].layer_name() == "head");
  CHECK(spec.layers() == 2);
  CHECK(spec.layers_with({true, false, true, true, true, true}) == 2);
  CHECK(spec.layers_with({true, false, false, false, true, true}) == 1);
  CHECK(spec.layers_with({}) == 0);
}

TEST_CASE("gpt without biases and with an untied head has no biases and no shared weight") {
  auto model = gpt_recipe();
  model.bias = false;
  model.tie_embeddings = false;
  auto spec = make_spec(model, 96, 16);
  CHECK(names(spec.blocks[1].parameters) == std::vector<std::string>{"blocks.0.attention_norm.weight 32",
                                                                     "blocks.0.attention.qkv.weight 96x32",
                                                                     "blocks.0.attention.out.weight 32x32"});
  CHECK(names(spec.blocks[2].parameters) == std::vector<std::string>{"blocks.0.mlp_norm.weight 32",
                                                                     "blocks.0.mlp.up.weight 128x32",
                                                                     "blocks.0.mlp.down.weight 32x128"});
  CHECK(names(spec.blocks[5].parameters) == std::vector<std::string>{"head.norm.weight 32", "head.weight 96x32"});
  CHECK(spec.blocks[5].shared.empty());
}

TEST_CASE("a llama lists Llama's parameters, with key and value rows for its number of key heads") {
  auto spec = make_spec(llama_recipe(), 96, 16);
  CHECK(names(spec.blocks[0].parameters) == std::vector<std::string>{"embedding.tokens.weight 96x32"});
  CHECK(names(spec.blocks[1].parameters) ==
        std::vector<std::string>{"blocks.0.attention_norm.weight 32", "blocks.0.attention.wq.weight 32x32",
                                 "blocks.0.attention.wk.weight 16x32", "blocks.0.attention.wv.weight 16x32",
                                 "blocks.0.attention.wo.weight 32x32"});
  CHECK(names(spec.blocks[2].parameters) ==
        std::vector<std::string>{"blocks.0.mlp_norm.weight 32", "blocks.0.mlp.w1.weight 88x32",
                                 "blocks.0.mlp.w3.weight 88x32", "blocks.0.mlp.w2.weight 32x88"});
  CHECK(names(spec.blocks[5].parameters) == std::vector<std::string>{"head.norm.weight 32", "head.weight 96x32"});
}

TEST_CASE("published models have their published number of parameters") {
  Recipe::Model gpt2;
  gpt2.name = "gpt";
  gpt2.n_layers = 12;
  gpt2.dim = 768;
  gpt2.n_heads = 12;
  gpt2.max_seq_len = 1024;
  CHECK(make_spec(gpt2, 50257, 1024).parameter_count() == 124'439'808);

  Recipe::Model llama2;  // Llama 2 7B: params.json has no hidden_dim; the rule gives 11008
  llama2.name = "llama";
  llama2.n_layers = 32;
  llama2.dim = 4096;
  llama2.n_heads = 32;
  llama2.max_seq_len = 4096;
  llama2.tie_embeddings = false;
  CHECK(decoder::hidden_dim(llama2) == 11008);
  CHECK(make_spec(llama2, 32000, 4096).parameter_count() == 6'738'415'616);

  Recipe::Model llama3 = llama2;  // Llama 3 8B: ffn_dim_multiplier 1.3 and multiple_of 1024 give 14336
  llama3.n_kv_heads = 8;
  llama3.ffn_dim_multiplier = 1.3;
  llama3.multiple_of = 1024;
  llama3.max_seq_len = 8192;
  CHECK(decoder::hidden_dim(llama3) == 14336);
  CHECK(make_spec(llama3, 128256, 8192).parameter_count() == 8'030'261'248);
}

TEST_CASE("FLOPs are two per multiply-add of the matrix products, with all T x T scores") {
  // GPT-2 124M, T = 1024. Attention: qkv 768*2304, out 768*768; scores and their product with V 768*1024 each. Multiply-adds:
  // 1769472 + 589824 + 2*786432 = 3932160. MLP: up and down 768*3072 each, 4718592.
  Recipe::Model gpt2 = gpt_recipe();
  gpt2.n_layers = 12;
  gpt2.dim = 768;
  gpt2.n_heads = 12;
  gpt2.max_seq_len = 1024;
  auto spec = make_spec(gpt2, 50257, 1024);
  CHECK(spec.blocks[0].forward_flops_per_token == 0);
  CHECK(spec.blocks[1].forward_flops_per_token == 2.0 * 3932160);
  CHECK(spec.blocks[2].forward_flops_per_token == 2.0 * 4718592);
  CHECK(spec.blocks[25].forward_flops_per_token == 2.0 * 768 * 50257);
  CHECK(spec.training_flops_per_token() == 3.0 * (12 * 2.0 * (3932160 + 4718592) + 2.0 * 38597376));

  // The small llama: wq, wo 32*32; wk, wv 16*32; three of 88*32; attention over T = 8: 32*8 twice.
  auto llama = make_spec(llama_recipe(), 96, 8);
  CHECK(llama.blocks[1].forward_flops_per_token == 2.0 * (2 * 1024 + 2 * 512 + 2 * 256));
  CHECK(llama.blocks[2].forward_flops_per_token == 2.0 * 3 * 2816);
  CHECK(llama.blocks[5].forward_flops_per_token == 2.0 * 32 * 96);
}

TEST_CASE("initial projections into the residual stream are smaller, norms are one, biases are zero") {
  auto model = gpt_recipe();
  model.n_layers = 8;
  auto spec = make_spec(model, 96, 16);
  for (const char* name : {"embedding.tokens.weight", "embedding.positions.weight", "blocks.7.attention.qkv.weight",
                           "blocks.7.mlp.up.weight"})
    CHECK(parameter(spec, name).init.std == 0.02);
  for (const char* name : {"blocks.7.attention.out.weight", "blocks.7.mlp.down.weight"})
    CHECK_THAT(parameter(spec, name).init.std, WithinRel(0.02 / 4, 1e-12));
  CHECK(parameter(spec, "head.norm.weight").init.kind == Init::Kind::ones);
  CHECK(parameter(spec, "head.norm.bias").init.kind == Init::Kind::zeros);
  auto llama = llama_recipe();
  llama.n_layers = 8;
  for (const char* name : {"blocks.0.attention.wo.weight", "blocks.0.mlp.w2.weight"})
    CHECK_THAT(parameter(make_spec(llama, 96, 16), name).init.std, WithinRel(0.02 / 4, 1e-12));
}

TEST_CASE("tensor parallelism shards outputs of the first product and inputs of the second") {
  auto gpt = make_spec(gpt_recipe(), 96, 16);
  CHECK(parameter(gpt, "blocks.0.attention.qkv.weight").split->dim == 0);
  CHECK(parameter(gpt, "blocks.0.attention.qkv.bias").split->dim == 0);
  CHECK(parameter(gpt, "blocks.0.attention.out.weight").split->dim == 1);
  CHECK_FALSE(parameter(gpt, "blocks.0.attention.out.bias").split);
  CHECK_FALSE(parameter(gpt, "embedding.positions.weight").split);
  auto llama = make_spec(llama_recipe(), 96, 16);
  CHECK(parameter(llama, "blocks.0.mlp.w1.weight").split->dim == 0);
  CHECK(parameter(llama, "blocks.0.mlp.w2.weight").split->dim == 1);
  CHECK(parameter(llama, "head.weight").split->dim == 0);
}

TEST_CASE("rotary frequencies follow RoFormer, and Llama 3.1's scaling in its three ranges") {
  Recipe::Model model = llama_recipe();
  model.dim = 128 * 4;
  model.rope_theta = 500000;
  auto plain = decoder::rope_frequencies(model).angles;
  REQUIRE(plain.size() == 64);
  for (size_t i = 0; i < 64; ++i)
    CHECK_THAT(plain[i], WithinRel(1 / std::pow(500000.0, static_cast<double>(2 * i) / 128.0), 1e-12));

  model.rope_scaling = Recipe::Model::RopeScaling{8.0, 1.0, 4.0, 8192};
  auto scaled = decoder::rope_frequencies(model).angles;
  int kept = 0, divided = 0, between = 0;
  for (size_t i = 0; i < 64; ++i) {
    double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 8192 / 4.0) {
      ++kept;
      CHECK_THAT(scaled[i], WithinRel(plain[i], 1e-12));
    } else if (wavelength > 8192 / 1.0) {
      ++divided;
      CHECK_THAT(scaled[i], WithinRel(plain[i] / 8, 1e-12));
    } else {
      ++between;
      double smooth = (8192 / wavelength - 1) / (4 - 1);
      CHECK_THAT(scaled[i], WithinRel((1 - smooth) * plain[i] / 8 + smooth * plain[i], 1e-12));
    }
  }
  CHECK(kept > 0);
  CHECK(divided > 0);
  CHECK(between > 0);
}

TEST_CASE("a family with its own options lists its parameters in the order of its products") {
  auto gemma3 = make_spec(family_recipe("gemma3"), 96, 16);
  CHECK(names(gemma3.blocks[1].parameters) ==
        std::vector<std::string>{"blocks.0.attention_norm.weight 32", "blocks.0.attention.wq.weight 48x32",
                                 "blocks.0.attention.q_norm.weight 12", "blocks.0.attention.wk.weight 24x32",
                                 "blocks.0.attention.k_norm.weight 12", "blocks.0.attention.wv.weight 24x32",
                                 "blocks.0.attention.wo.weight 32x48", "blocks.0.attention_post_norm.weight 32"});
  CHECK(parameter(gemma3, "blocks.0.attention_norm.weight").init.kind == Init::Kind::zeros);
  auto olmo2 = make_spec(family_recipe("olmo2"), 96, 16);
  CHECK(names(olmo2.blocks[2].parameters) ==
        std::vector<std::string>{"blocks.0.mlp.w1.weight 88x32", "blocks.0.mlp.w3.weight 88x32",
                                 "blocks.0.mlp.w2.weight 32x88", "blocks.0.mlp_post_norm.weight 32"});
  CHECK(parameter(olmo2, "blocks.0.attention.k_norm.weight").shape == std::vector<int64_t>{16});
  auto qwen2 = make_spec(family_recipe("qwen2"), 96, 16);
  CHECK(parameter(qwen2, "blocks.0.attention.wk.bias").shape == std::vector<int64_t>{24});
  CHECK_THROWS(qwen2.slot("blocks.0.attention.wo.bias"));
}

TEST_CASE("a layer with a parallel residual is one block with both branches") {
  auto spec = make_spec(family_recipe("gpt_neox"), 96, 16);
  REQUIRE(spec.blocks.size() == 4);
  CHECK(spec.blocks[1].name == "blocks.0");
  CHECK(spec.layers() == 2);
  CHECK_FALSE(spec.continues_layer(2));
  CHECK(names(spec.blocks[1].parameters).front() == "blocks.0.attention_norm.weight 32");
  CHECK(names(spec.blocks[1].parameters).back() == "blocks.0.mlp.w2.bias 32");
  CHECK(names_of_blocks(spec) == "\"embedding\", \"blocks.0\" to \"blocks.1\", \"head\"");
  auto serial = family_recipe("gpt_neox");
  serial.parallel_residual = false;
  auto two = make_spec(serial, 96, 16);
  CHECK(spec.parameter_count() == two.parameter_count());
  CHECK(spec.blocks[1].forward_flops_per_token ==
        two.blocks[1].forward_flops_per_token + two.blocks[2].forward_flops_per_token);
}

TEST_CASE("FLOPs of a windowed layer count the keys that a token sees at most") {
  auto model = family_recipe("gemma2");  // layer 0 has a window of 5
  auto spec = make_spec(model, 96, 16);
  const double both = 4.0 * 48;
  CHECK(spec.blocks[3].forward_flops_per_token - spec.blocks[1].forward_flops_per_token == both * (16 - 5));
  model.sliding_window = 16;
  spec = make_spec(model, 96, 16);
  CHECK(spec.blocks[3].forward_flops_per_token == spec.blocks[1].forward_flops_per_token);
}

TEST_CASE("published models of other families have their published number of parameters") {
  auto published = [](const char* name, int64_t layers, int64_t dim, int64_t heads, int64_t kv_heads, int64_t head,
                      int64_t hidden, int64_t vocab, bool tied) {
    auto model = family_defaults(name);
    model.n_layers = layers;
    model.dim = dim;
    model.n_heads = heads;
    if (kv_heads != heads) model.n_kv_heads = kv_heads;
    model.head_dim = head;
    model.hidden_dim = hidden;
    model.max_seq_len = 4096;
    model.tie_embeddings = tied;
    return make_spec(model, vocab, 4096).parameter_count();
  };
  CHECK(published("mistral", 32, 4096, 32, 8, 128, 14336, 32000, false) == 7'241'732'096);
  CHECK(published("qwen2", 24, 896, 14, 2, 64, 4864, 151936, true) == 494'032'768);
  CHECK(published("gemma2", 26, 2304, 8, 4, 256, 9216, 256000, true) == 2'614'341'888);
  CHECK(published("phi3", 32, 3072, 32, 32, 96, 8192, 32064, false) == 3'821'079'552);
  CHECK(published("gpt_neox", 6, 512, 8, 8, 64, 2048, 50304, false) == 70'426'624);
}

TEST_CASE("longrope has one set of frequencies up to the original length and another for longer sequences") {
  auto model = family_recipe("phi3");
  model.max_seq_len = 64;
  model.rope_scaling = Recipe::Model::RopeScaling{.original_max_position_embeddings = 16,
                                                  .rope_type = "longrope",
                                                  .short_factor = {1, 2, 3, 4},
                                                  .long_factor = {2, 4, 6, 8}};
  auto rope = decoder::rope_frequencies(model);
  REQUIRE(rope.angles.size() == 4);
  CHECK(rope.longer_than == 16);
  for (size_t i = 0; i < 4; ++i) CHECK_THAT(rope.long_angles[i], WithinRel(rope.angles[i] / 2, 1e-12));
  CHECK_THAT(rope.factor, WithinRel(std::sqrt(1 + std::log(4.0) / std::log(16.0)), 1e-12));
}

TEST_CASE("models of images refuse what their layers do not have") {
  auto vit = family_defaults("vit");
  vit.image_size = 32;
  vit.patch_size = 8;
  vit.dim = 32;
  vit.n_layers = 1;
  vit.n_heads = 2;
  vit.activation = "gelu_tanh";
  CHECK_NOTHROW(make_spec(vit, 10, 1));
  vit.activation = "silu";
  CHECK_THROWS_MATCHES(make_spec(vit, 10, 1), Error,
                       Message("model.activation = \"silu\": allowed: gelu or gelu_tanh"));
  auto resnet = family_defaults("resnet");
  resnet.image_size = 32;
  resnet.layer_type = "bottleneck";
  resnet.hidden_sizes = {4, 3};
  resnet.depths = {1, 1};
  CHECK_THROWS_MATCHES(make_spec(resnet, 10, 1), Error,
                       Message("model.hidden_sizes: 3 channels are too few for a bottleneck, which needs at least 4"));
  resnet.layer_type = "basic";
  CHECK_NOTHROW(make_spec(resnet, 10, 1));
}

TEST_CASE("a model that cannot be built is rejected with the key, the value and the allowed values") {
  auto refuses = [](auto change, const std::string& message, Recipe::Model model = gpt_recipe(), int64_t seq_len = 16) {
    change(model);
    CHECK_THROWS_MATCHES(make_spec(model, 96, seq_len), Error, Message(message));
  };
  refuses([](auto& m) { m.name = "lama"; }, "model.name = \"lama\": no such family; allowed: " +
                                                join_or(model_families()) + " (did you mean \"llama\"?)");
  refuses([](auto& m) { m.n_heads = 5; }, "model.n_heads = 5: does not divide model.dim = 32");
  refuses([](auto& m) { m.n_layers = 0; }, "model.n_layers = 0: must be at least 1");
  refuses([](auto& m) { m.dropout = 1.0; }, "model.dropout = 1: must be at least 0 and below 1");
  refuses([](auto& m) { m.activation = "relu"; }, "model.activation = \"relu\": allowed: gelu or gelu_tanh");
  refuses([](auto& m) { m.n_kv_heads = 2; },
          "model.n_kv_heads: gpt has no such option; models with rotary positions such as llama have it");
  refuses([](auto& m) { m.norm_place = "around"; }, "model.norm_place = \"around\": allowed: pre, post or both",
          llama_recipe());
  refuses([](auto& m) { m.norm_place = "both", m.parallel_residual = true; },
          "model.parallel_residual = true: needs model.norm_place = \"pre\", not \"both\"", llama_recipe());
  refuses([](auto& m) { m.partial_rotary_factor = 0.4; },
          "model.partial_rotary_factor = 0.4: rotates 3 elements of a head of 8; must be an even number",
          llama_recipe());
  refuses(
      [](auto& m) {
        m.rope_scaling = Recipe::Model::RopeScaling{.rope_type = "longrope", .short_factor = {1}, .long_factor = {1}};
      },
      "model.rope_scaling.short_factor has 1 values: must have one for each of the 4 rotated pairs of a head",
      llama_recipe());
  refuses([](auto&) {}, "data.seq_len = 17: longer than model.max_seq_len = 16", gpt_recipe(), 17);
  refuses([](auto& m) { m.n_kv_heads = 3; }, "model.n_kv_heads = 3: must divide model.n_heads = 4", llama_recipe());
  refuses(
      [](auto& m) {
        m.n_heads = 32;
        m.n_kv_heads = 32;
      },
      "model.n_heads = 32: rotary positions need an even head size, not model.dim / model.n_heads = 1", llama_recipe());
  refuses(
      [](auto& m) {
        m.rope_scaling = Recipe::Model::RopeScaling{8.0, 4.0, 4.0, 8};
      },
      "model.rope_scaling.high_freq_factor = 4: must be above low_freq_factor = 4, and that above 0", llama_recipe());
}

TEST_CASE("models that ranks cannot divide are refused with the reason and what works") {
  const auto refused = [](const Recipe::Model& model, int ranks, const std::string& method = "full",
                          const std::string& quantization = "none") {
    Recipe recipe;
    recipe.model = model;
    recipe.fine_tune.method = method;
    recipe.fine_tune.quantization = quantization;
    return refuse_division(recipe, ranks).value_or("");
  };
  CHECK(refused(family_recipe("bert"), 1).empty());
  CHECK(refused(gpt_recipe(), 4).empty());
  CHECK(refused(llama_recipe(), 4, "lora").empty());
  CHECK(refused(gpt_recipe(), 3) == "3 ranks cannot share 4 heads with 4 key heads; sizes that work: 1, 2, 4");
  auto model = llama_recipe();
  model.n_heads = 12;
  model.n_kv_heads = 6;
  CHECK(refused(model, 4) == "4 ranks cannot share 12 heads with 6 key heads; sizes that work: 1, 2, 3, 6, 12");
  CHECK(refused(family_recipe("bert"), 2) ==
        "the matrices of bert cannot be divided: tensor parallelism is for gpt and decoders that predict tokens");
  CHECK(refused(llama_recipe(), 2, "dora") ==
        "fine_tune.method = \"dora\" needs the norms of complete rows, of which each rank has a part; allowed: "
        "\"lora\", \"freeze\" and \"full\"");
  CHECK(refused(llama_recipe(), 2, "lora", "nf4") ==
        "fine_tune.quantization = \"nf4\" has blocks of values of complete matrices, of which each rank has a part; "
        "allowed: \"none\"");
  model = gpt_recipe();
  model.vocab_size = 3;
  CHECK(refused(model, 4) == "4 ranks cannot share model.vocab_size = 3: each needs at least 1");
  model = llama_recipe();
  model.hidden_dim = 2;
  CHECK(refused(model, 4) == "4 ranks cannot share model.hidden_dim = 2: each needs at least 1");
  CHECK_THROWS_MATCHES(make_spec(gpt_recipe(), 1, 16, RowKind::one_sequence, {.ranks = 2}), Error,
                       Message("2 ranks cannot share model.vocab_size = 1: each needs at least 1"));
}

TEST_CASE("adapters of a divided matrix have its rows or its columns, and the bounds of complete matrices") {
  Recipe recipe;
  recipe.model = gpt_recipe();
  recipe.fine_tune.method = "lora";
  recipe.fine_tune.rank = 3;
  const auto spec = make_spec(recipe, 96, 16, {.ranks = 4, .rank = 1});
  const auto &a = parameter(spec, "blocks.0.attention.qkv.lora_a"),
             &b = parameter(spec, "blocks.0.attention.qkv.lora_b");
  CHECK(a.shape == std::vector<int64_t>{3, 32});
  CHECK(b.shape == std::vector<int64_t>{24, 3});
  for (size_t part = 0; part < 3; ++part)
    CHECK(b.part->boxes[part].start == std::vector<int64_t>{32 * static_cast<int64_t>(part) + 8, 0});
  CHECK((a.part->sums_replicas && a.part->replicas == 4));
  const auto &of_down = parameter(spec, "blocks.0.mlp.down.lora_a"),
             &after = parameter(spec, "blocks.0.mlp.down.lora_b");
  CHECK(of_down.shape == std::vector<int64_t>{3, 32});
  CHECK(of_down.part->boxes[0].start == std::vector<int64_t>{0, 32});
  CHECK_THAT(of_down.init.std, WithinRel(1 / std::sqrt(128.0), 1e-12));
  CHECK(after.shape == std::vector<int64_t>{32, 3});
  CHECK((after.part->sums_replicas && after.part->replicas == 4));
}
