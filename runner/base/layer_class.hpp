// Classes of layers as PyTorch's wrapping policies name them. All of them mean a model's transformer layers here.
#pragma once
#include <string_view>

namespace runner {

/// "nn.TransformerEncoderLayer", "LlamaDecoderLayer", "GPTBlock": CamelCase after the last dot, ending in Layer or
/// Block.
inline bool names_layer_class(std::string_view word) {
  if (auto dot = word.rfind('.'); dot != std::string_view::npos) word.remove_prefix(dot + 1);
  bool camel = !word.empty() && word.front() >= 'A' && word.front() <= 'Z';
  return camel && (word.ends_with("Layer") || word.ends_with("Block"));
}

}  // namespace runner
