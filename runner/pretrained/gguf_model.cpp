#include "runner/pretrained/gguf_model.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "runner/pretrained/gguf_metadata.hpp"

namespace runner {

namespace {

using nlohmann::json;

/// A value of general.architecture.
struct Architecture {
  const char* name = "";
  const char* model_type = "";  ///< of config.json
  const char* model_class = "";
  bool paired = false;      ///< rows of q and k are ordered for rotary pairs (2i, 2i + 1)
  float norm_offset = 0;    ///< was added to the weights of norms
  bool head_norms = false;  ///< q and k have norms
};
constexpr Architecture architectures[] = {
    {.name = "llama", .model_type = "llama", .model_class = "LlamaForCausalLM", .paired = true},
    {.name = "qwen2", .model_type = "qwen2", .model_class = "Qwen2ForCausalLM"},
    {.name = "qwen3", .model_type = "qwen3", .model_class = "Qwen3ForCausalLM", .head_norms = true},
    {.name = "smollm3", .model_type = "smollm3", .model_class = "SmolLM3ForCausalLM", .paired = true},
    {.name = "gemma", .model_type = "gemma", .model_class = "GemmaForCausalLM", .norm_offset = 1},
};

constexpr std::pair<const char*, const char*> layer_names[] = {
    {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

const Architecture& architecture_of(const GgufFile& file) {
  const GgufMetadata metadata(file);
  const auto name = metadata.require<std::string>("general.architecture");
  std::vector<std::string> known;
  for (const auto& architecture : architectures) {
    if (name == architecture.name) return architecture;
    known.emplace_back(architecture.name);
  }
  metadata.refuse(
      fmt::format("general.architecture = \"{}\" is not supported; allowed: {}", shortened_text(name), join_or(known)));
}

/// Factors of the rotary frequencies as Llama 3.1 has them; transformers calls this scaling "llama3".
constexpr double low_freq_factor = 1, high_freq_factor = 4;
constexpr int64_t original_length = 8192;

double llama3_factor(double frequency, double factor) {
  const double wave = 2 * std::numbers::pi / frequency, original = original_length;
  if (wave < original / high_freq_factor) return 1;
  if (wave > original / low_freq_factor) return factor;
  const double smooth = (original / wave - low_freq_factor) / (high_freq_factor - low_freq_factor);
  return 1 / ((1 - smooth) / factor + smooth);
}

/// The file contains the factor of each frequency instead of the settings. The settings are those of Llama 3.1 and later if they give
/// the same factors.
json llama3_scaling(const GgufFile& file, const GgufMetadata& metadata, const GgufTensor& factors, double theta) {
  const auto count = static_cast<size_t>(factors.shape.empty() ? 1 : factors.shape[0]);
  if (factors.shape.size() != 1 || !factors.type->decode || count == 0)
    metadata.refuse("`rope_freqs.weight` is not a list of numbers");
  std::vector<float> values(count);
  decode_gguf(*factors.type, file.data(factors), 0, values);
  const double factor = *std::ranges::max_element(values);
  for (size_t i = 0; i < count; ++i) {
    const double frequency = std::pow(theta, -static_cast<double>(i) / static_cast<double>(count));
    if (!(std::abs(values[i] - llama3_factor(frequency, factor)) <= 1e-3 * factor))
      metadata.refuse(fmt::format(
          "`rope_freqs.weight` has factors that rope_type \"llama3\" with original_max_position_embeddings = {} does "
          "not give, e.g. {} at {}",
          original_length, values[i], i));
  }
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", low_freq_factor},
          {"high_freq_factor", high_freq_factor},
          {"original_max_position_embeddings", original_length}};
}

json rope_scaling(const GgufFile& file, const GgufMetadata& metadata, const std::string& prefix, double theta) {
  if (const auto* factors = file.find("rope_freqs.weight")) return llama3_scaling(file, metadata, *factors, theta);
  const auto type = metadata.get<std::string>(prefix + "rope.scaling.type", "none");
  const auto factor = metadata.get<double>(prefix + "rope.scaling.factor", 1.0);
  const auto original = metadata.get<int64_t>(prefix + "rope.scaling.original_context_length", 0);
  metadata.has(prefix + "rope.scaling.finetuned");
  if (type == "none") return nullptr;
  if (type == "linear") return {{"rope_type", "linear"}, {"factor", factor}};
  if (type != "yarn" || original == 0 || metadata.get<double>(prefix + "rope.scaling.attn_factor", 1.0) != 1)
    metadata.refuse(fmt::format(
        "`{}rope.scaling.type` = \"{}\" is not supported with its settings; allowed: none, linear, and yarn with "
        "rope.scaling.original_context_length",
        prefix, shortened_text(type)));
  return {{"rope_type", "yarn"}, {"factor", factor}, {"original_max_position_embeddings", original}};
}

int64_t vocabulary(const GgufFile& file, const GgufMetadata& metadata) {
  const auto* table = file.find("token_embd.weight");
  if (!table || table->shape.size() != 2) metadata.refuse("it has no tensor `token_embd.weight` with two dimensions");
  return table->shape[0];
}

void add_token_ids(const GgufMetadata& metadata, json& config) {
  for (const auto& [key, name] :
       {std::pair("bos_token_id", "bos"), std::pair("eos_token_id", "eos"), std::pair("pad_token_id", "padding")})
    if (const auto full = fmt::format("tokenizer.ggml.{}_token_id", name); metadata.has(full))
      config[key] = metadata.require<int64_t>(full);
}

void check_heads(const GgufMetadata& metadata, const std::string& prefix, int64_t head_dim) {
  for (const char* key : {"attention.value_length", "rope.dimension_count"})
    if (const auto size = metadata.get(prefix + key, head_dim); size != head_dim)
      metadata.refuse(
          fmt::format("`{}{}` = {} is not supported; the heads have {} elements", prefix, key, size, head_dim));
  if (const auto experts = metadata.get<int64_t>(prefix + "expert_count", 0); experts > 0)
    metadata.refuse(fmt::format("`{}expert_count` = {}: mixtures of experts are not supported", prefix, experts));
  metadata.has(prefix + "expert_used_count");
  // The length of the vocabulary is that of the table, and the others describe the file.
  for (const char* key : {"vocab_size", "tensor_data_layout", "attention.causal"}) metadata.has(prefix + key);
}

}  // namespace

json gguf_config(const GgufFile& file) {
  const auto& architecture = architecture_of(file);
  const GgufMetadata metadata(file);
  const auto prefix = std::string(architecture.name) + ".";
  const auto integer = [&](const char* key) { return metadata.require<int64_t>(prefix + key); };
  const int64_t dim = integer("embedding_length"), heads = integer("attention.head_count");
  if (heads == 0) metadata.refuse(fmt::format("`{}attention.head_count` is 0", prefix));
  const int64_t head_dim = metadata.get(prefix + "attention.key_length", dim / heads);
  const auto theta = metadata.get<double>(prefix + "rope.freq_base", 10000.0);
  json config = {
      {"model_type", architecture.model_type},
      {"architectures", {architecture.model_class}},
      {"vocab_size", vocabulary(file, metadata)},
      {"hidden_size", dim},
      {"intermediate_size", integer("feed_forward_length")},
      {"num_hidden_layers", integer("block_count")},
      {"num_attention_heads", heads},
      {"num_key_value_heads", metadata.get(prefix + "attention.head_count_kv", heads)},
      {"head_dim", head_dim},
      {"max_position_embeddings", integer("context_length")},
      {"rms_norm_eps", metadata.require<double>(prefix + "attention.layer_norm_rms_epsilon")},
      {"rope_theta", theta},
      {"tie_word_embeddings", file.find("output.weight") == nullptr},
  };
  const auto scaling = rope_scaling(file, metadata, prefix, theta);
  if (!scaling.is_null()) config["rope_scaling"] = scaling;
  const std::string type = architecture.model_type;
  if (type == "gemma") config["hidden_activation"] = "gelu_pytorch_tanh";
  if (type != "qwen2" && type != "gemma") config["attention_bias"] = file.find("blk.0.attn_output.bias") != nullptr;
  if (type == "llama" || type == "smollm3") config["mlp_bias"] = file.find("blk.0.ffn_down.bias") != nullptr;
  add_token_ids(metadata, config);
  check_heads(metadata, prefix, head_dim);
  metadata.check_all_read(prefix);
  return config;
}

GgufPlace gguf_place(const GgufFile& file, const std::string& tensor) {
  const auto& architecture = architecture_of(file);
  const GgufMetadata metadata(file);
  if (tensor == "token_embd.weight") return {.name = "model.embed_tokens.weight"};
  if (tensor == "output.weight") return {.name = "lm_head.weight"};
  if (tensor == "output_norm.weight") return {.name = "model.norm.weight", .added = architecture.norm_offset};
  const auto parts = split(tensor, '.');
  if (parts.size() != 4 || parts[0] != "blk") return {.name = tensor};
  const auto found = std::ranges::find(layer_names, parts[2], [](const auto& pair) { return std::string(pair.first); });
  if (found == std::end(layer_names)) return {.name = tensor};
  GgufPlace place{.name = fmt::format("model.layers.{}.{}.{}", parts[1], found->second, parts[3])};
  if (parts[2].ends_with("norm")) place.added = architecture.norm_offset;
  if (!architecture.paired || (parts[2] != "attn_q" && parts[2] != "attn_k")) return place;
  const auto prefix = std::string(architecture.name) + ".attention.head_count";
  const auto heads = metadata.require<int64_t>(prefix);
  place.paired_heads = parts[2] == "attn_q" ? heads : metadata.get(prefix + "_kv", heads);
  return place;
}

void read_gguf(const GgufFile& file, const GgufTensor& tensor, const GgufPlace& place, int64_t offset,
               std::span<float> out) {
  const auto data = file.data(tensor);
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  const auto all = out;
  if (place.paired_heads == 0 || rows == 0) {
    decode_gguf(*tensor.type, data, offset, out);
  } else {
    int64_t numel = 1;
    for (const auto size : tensor.shape) numel *= size;
    const int64_t columns = numel / rows, head = rows / place.paired_heads, half = head / 2;
    // Row (h, side, i) of Hugging Face is row (h, i, side) of the file.
    while (!out.empty()) {
      const int64_t row = offset / columns, inside = offset % columns, in_head = row % head;
      const int64_t stored = row - in_head + 2 * (in_head % half) + in_head / half;
      const auto count = std::min(columns - inside, std::ssize(out));
      decode_gguf(*tensor.type, data, stored * columns + inside, out.first(static_cast<size_t>(count)));
      out = out.subspan(static_cast<size_t>(count));
      offset += count;
    }
  }
  if (place.added != 0)
    for (auto& value : all) value -= place.added;
}

}  // namespace runner
