#include "runner/models/decoder/hf_config.hpp"

#include <algorithm>

#include "runner/base/error.hpp"

namespace runner::decoder {

// Sources: the configuration classes of transformers 4.57 (models/NAME/configuration_NAME.py).
// clang-format off
const std::vector<HfFamily>& hf_families() {
  using W = HfWindow;
  static const std::vector<HfFamily> list = {
      // name, model_type, architecture, positions, kv, head, eps, theta, tied, attention_bias, mlp_bias, window
      {"llama", "llama", "LlamaForCausalLM", 2048, 0, 0, 1e-6, 1e4, false, true, true, W::none, 0},
      {"mistral", "mistral", "MistralForCausalLM", 131072, 8, 0, 1e-6, 1e4, false, false, false, W::every_layer, 4096},
      {"qwen2", "qwen2", "Qwen2ForCausalLM", 32768, 32, 0, 1e-6, 1e4, false, false, false, W::from_layer, 4096},
      {"qwen3", "qwen3", "Qwen3ForCausalLM", 32768, 32, 128, 1e-6, 1e4, false, true, false, W::from_layer, 4096},
      {"gemma", "gemma", "GemmaForCausalLM", 8192, 16, 256, 1e-6, 1e4, true, true, false, W::none, 0},
      {"gemma2", "gemma2", "Gemma2ForCausalLM", 8192, 4, 256, 1e-6, 1e4, true, true, false, W::pattern, 4096},
      {"gemma3", "gemma3_text", "Gemma3ForCausalLM", 131072, 4, 256, 1e-6, 1e6, true, true, false, W::pattern, 4096},
      {"phi3", "phi3", "Phi3ForCausalLM", 4096, 0, 0, 1e-5, 1e4, false, false, false, W::every_layer, 0},
      {"gpt_neox", "gpt_neox", "GPTNeoXForCausalLM", 2048, 0, 0, 1e-5, 1e4, false, true, false, W::none, 0},
      {"olmo2", "olmo2", "Olmo2ForCausalLM", 2048, 0, 0, 1e-5, 1e4, false, true, false, W::none, 0},
      {"smollm3", "smollm3", "SmolLM3ForCausalLM", 32768, 4, 0, 1e-6, 2e6, true, true, true, W::only_types, 0},
      {"granite", "granite", "GraniteForCausalLM", 2048, 0, 0, 1e-6, 1e4, false, true, true, W::none, 0},
  };
  return list;
}
// clang-format on

const HfFamily& hf_family(const std::string& name) {
  const auto found = std::ranges::find(hf_families(), name, &HfFamily::name);
  RUNNER_CHECK(found != hf_families().end(), "no configuration class for {}", name);
  return *found;
}

}  // namespace runner::decoder
