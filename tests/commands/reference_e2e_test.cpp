// 20 AdamW steps from the same safetensors weights and tokens give PyTorch's losses under each strategy.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "runner/checkpoint/hf.hpp"
#include "runner/models/models.hpp"
#include "tests/support/command.hpp"
#include "tests/support/every_nth.hpp"
#include "tests/support/hashed_weights.hpp"

using namespace runner;
using namespace runner::testing;

namespace {

std::string model_section(const Recipe::Model& model) {
  bool llama = model.name == "llama";
  std::string text = fmt::format(
      "[model]\nname = \"{}\"\nvocab_size = {}\nn_layers = {}\ndim = {}\nn_heads = {}\nmax_seq_len = {}\n"
      "tie_embeddings = {}\n",
      model.name, *model.vocab_size, model.n_layers, model.dim, model.n_heads, model.max_seq_len, model.tie_embeddings);
  if (!llama) return text + fmt::format("activation = \"{}\"\n", model.activation.value());
  text += fmt::format("n_kv_heads = {}\nhidden_dim = {}\n", *model.n_kv_heads, *model.hidden_dim);
  if (const auto& s = model.rope_scaling)
    text += fmt::format(
        "rope_scaling = {{ factor = {}, low_freq_factor = {}, high_freq_factor = {}, original_max_position_embeddings "
        "= {} }}\n",
        s->factor, s->low_freq_factor, s->high_freq_factor, s->original_max_position_embeddings);
  return text;
}

/// A folder with the table's weights in Hugging Face's format, its tokens, and a recipe that trains with both.
void write_reference(const Workplace& place, const ReferenceRun& run) {
  ModelSpec spec = make_spec(run.model, run.vocab_size, run.seq_len);
  auto parameters = spec.parameters();
  export_weights(place.path() / "weights", run.model, spec, [&](size_t slot, int64_t offset, std::span<float> out) {
    auto values = hashed_values(*parameters[slot], offset, static_cast<int64_t>(out.size()));
    std::copy(values.begin(), values.end(), out.begin());
  });
  auto count = static_cast<int64_t>(run.losses.size()) * run.sequences * run.seq_len + 1;
  std::string tokens;
  for (int64_t i = 0; i < count; ++i) {
    auto token = static_cast<uint16_t>(hashed_token(i, run.vocab_size));
    tokens.append(reinterpret_cast<const char*>(&token), sizeof token);
  }
  place.write("tokens.bin", tokens);
  place.write("reference.toml", model_section(run.model) + R"(init_from = "weights"
[data]
format = "bin"
train = ["tokens.bin"]
token_dtype = "uint16"
shuffle = false
[precision]
mode = "32-true"
[devices]
accelerator = "cpu"
[optimizer]
name = "adamw"
lr = 1e-3
weight_decay = 0.01
decay_norms_and_biases = true
[train]
max_steps = )" + std::to_string(run.losses.size()) +
                                    "\nglobal_batch_size = " + std::to_string(run.sequences) + R"(
[checkpoint]
save_at_end = false
)");
}

}  // namespace

TEST_CASE("20 AdamW steps from safetensors weights give PyTorch's losses under each strategy", "[e2e]") {
  auto name = GENERATE(as<std::string>(), "gpt", "gpt_untied", "llama", "llama_tied");
  ReferenceRun run = load_reference(RUNNER_SOURCE_DIR, name);
  Workplace place;
  write_reference(place, run);
  std::vector<std::string> common = {"run", "reference.toml", "--json"};
  static EveryNth chosen(5);
  for (std::vector<std::string> strategy : std::vector<std::vector<std::string>>{
           {"strategy=single", "devices.devices=1"},
           {"strategy=ddp", "devices.devices=2"},
           {"strategy={name=\"fsdp\",sharding_strategy=\"FULL_SHARD\"}", "devices.devices=3"},
           {"strategy={name=\"fsdp\",sharding_strategy=\"SHARD_GRAD_OP\"}", "devices.devices=2"},
           {"strategy={name=\"fsdp\",sharding_strategy=\"NO_SHARD\"}", "devices.devices=2"},
           {"strategy={name=\"fsdp\",sharding_strategy=\"HYBRID_SHARD\",hybrid_group_size=2}", "devices.devices=4"},
           {"strategy=deepspeed_stage_1", "devices.devices=2"},
           {"strategy=deepspeed_stage_2", "devices.devices=3"},
           {"strategy=deepspeed_stage_3", "devices.devices=2"}}) {
    if (!chosen()) continue;
    auto arguments = common;
    for (const auto& text : strategy) arguments.insert(arguments.end(), {"--set", text});
    auto result = place.run(arguments);
    INFO(name << " " << strategy[0] << ": " << result.err);
    REQUIRE(result.code == 0);
    auto points = place.points("loss");
    REQUIRE(points.size() == run.losses.size());
    for (size_t step = 0; step < run.losses.size(); ++step)
      CHECK_THAT(points[step][1].get<double>(), Catch::Matchers::WithinRel(run.losses[step], 1e-4));
  }
}
