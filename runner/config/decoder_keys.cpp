// The keys of [model] for the options of decoders. gpt, encoders and models without tokens do not have them.
#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/config/key_adder.hpp"

// The rows of the tables are wrapped by hand.
// clang-format off

namespace runner::keys {

using nlohmann::json;

namespace {

using M = Recipe::Model;

const Facts printed_option{.family = "decoder"}, quiet_option{.family = "decoder", .quiet = true};

void add_attention(Adder<M>& add) {
  add({.name = "head_dim", .type = T::integer, .help = "Width of an attention head. Default: dim / n_heads.",
       .minimum = 1, .maximum = 1 << 16}, &M::head_dim, quiet_option);
  add({.name = "qk_norm", .type = T::choice,
       .help = "RMSNorm of queries and keys. head: over each head. full: over all heads together.",
       .choices = {"none", "head", "full"}}, &M::qk_norm, quiet_option);
  add({.name = "attention_bias", .type = T::choice,
       .help = "Biases of attention. qkv: of the projections of queries, keys and values. all: also of the output.",
       .choices = {"none", "qkv", "all"}}, &M::attention_bias, quiet_option);
  add({.name = "attention_scale", .type = T::number,
       .help = "Factor of attention scores. Default: 1 / sqrt(head_dim); 1 for granite.", .minimum = 0,
       .above_minimum = true}, &M::attention_scale, quiet_option);
  add({.name = "attention_softcap", .type = T::number,
       .help = "Soft cap of attention scores: cap x tanh(score / cap). 0: none.", .minimum = 0}, &M::attention_softcap,
      quiet_option);
  add({.name = "sliding_window", .type = T::integer,
       .help = "Tokens that a token sees in a windowed layer, itself among them. 0: all before it.", .minimum = 0},
      &M::sliding_window, quiet_option);
  add({.name = "layer_types", .type = T::texts,
       .help = "\"sliding_attention\" (windowed) or \"full_attention\" for each layer. A shorter list is repeated. "
               "Default: the family's; all layers are windowed if it has no such list.",
       .fits = [](json& value) -> std::optional<std::string> {
         if (value.empty()) return "`layer_types` must have at least one entry";
         for (const auto& type : value)
           if (type != "sliding_attention" && type != "full_attention")
             return "`layer_types` has only \"sliding_attention\" and \"full_attention\", not " + value_text(type);
         return std::nullopt;
       }}, &M::layer_types, quiet_option);
}

void add_layer(Adder<M>& add) {
  add({.name = "norm", .type = T::choice, .help = "rms: RMSNorm. layer: LayerNorm with a bias.",
       .choices = {"rms", "layer"}}, &M::norm, quiet_option);
  add({.name = "norm_place", .type = T::choice,
       .help = "Norms of a layer. pre: of the inputs of attention and feed-forward. post: of their outputs.",
       .choices = {"pre", "post", "both"}}, &M::norm_place, quiet_option);
  add({.name = "norm_offset", .type = T::boolean, .help = "The weight of a norm is stored minus 1."},
      &M::norm_offset, quiet_option);
  add({.name = "parallel_residual", .type = T::boolean,
       .help = "Attention and feed-forward both read the input of the layer."}, &M::parallel_residual, quiet_option);
  add({.name = "mlp_bias", .type = T::boolean, .help = "Biases of the feed-forward."}, &M::mlp_bias, quiet_option);
  add({.name = "gated_mlp", .type = T::boolean,
       .help = "Feed-forward of three matrices: the activation of one product is multiplied by another product."},
      &M::gated_mlp, quiet_option);
  add({.name = "logits_softcap", .type = T::number, .help = "Soft cap of logits. 0: none.", .minimum = 0},
      &M::logits_softcap, quiet_option);
  add({.name = "embedding_multiplier", .type = T::number,
       .help = "Factor of embeddings. Default: 1; sqrt(dim) for gemma, gemma2 and gemma3."}, &M::embedding_multiplier,
      quiet_option);
  add({.name = "residual_multiplier", .type = T::number,
       .help = "Factor of what attention and feed-forward add to the hidden states."}, &M::residual_multiplier, quiet_option);
  add({.name = "logits_scaling", .type = T::number, .help = "Divisor of logits.", .minimum = 0, .above_minimum = true},
      &M::logits_scaling, quiet_option);
}

/// The fields of rope_scaling that a rope_type has.
std::vector<std::string> fields_of(const std::string& rope_type) {
  if (rope_type == "linear") return {"rope_type", "factor"};
  if (rope_type == "yarn")
    return {"rope_type", "factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor"};
  if (rope_type == "longrope")
    return {"rope_type", "short_factor", "long_factor", "original_max_position_embeddings", "attention_factor"};
  return {"rope_type", "factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"};
}

bool has_field(const std::string& rope_type, const std::string& field) {
  const auto fields = fields_of(rope_type);
  return std::find(fields.begin(), fields.end(), field) != fields.end();
}

/// Refuses fields that the rope_type does not read.
std::optional<std::string> check_rope_scaling(json& value) {
  const std::string type = value.value("rope_type", "llama3");
  for (const auto& [field, item] : value.items())
    if (!item.is_null() && !has_field(type, field))
      return "`" + field + "` of rope_scaling is not for rope_type \"" + type + "\", which has " +
             join(fields_of(type), ", ");
  if (type == "longrope" && !(value.contains("short_factor") && value.contains("long_factor")))
    return "rope_scaling with rope_type \"longrope\" needs short_factor and long_factor";
  return std::nullopt;
}

void add_rope_scaling(Adder<M>& add) {
  using Rope = M::RopeScaling;
  OptionTable<Rope> rope;
  rope.add({.name = "factor", .type = T::number}, &Rope::factor)
      .add({.name = "low_freq_factor", .type = T::number}, &Rope::low_freq_factor)
      .add({.name = "high_freq_factor", .type = T::number}, &Rope::high_freq_factor)
      .add({.name = "original_max_position_embeddings", .type = T::integer}, &Rope::original_max_position_embeddings)
      .add({.name = "rope_type", .type = T::choice, .choices = {"llama3", "linear", "yarn", "longrope"}},
           &Rope::rope_type)
      .add({.name = "beta_fast", .type = T::number}, &Rope::beta_fast)
      .add({.name = "beta_slow", .type = T::number}, &Rope::beta_slow)
      .add({.name = "attention_factor", .type = T::number}, &Rope::attention_factor)
      .add({.name = "short_factor", .type = T::numbers}, &Rope::short_factor)
      .add({.name = "long_factor", .type = T::numbers}, &Rope::long_factor);
  add.add({.name = "rope_scaling", .type = T::table,
           .help = "Scaling of the rotary positions. rope_type llama3 (default): { factor, low_freq_factor, "
                   "high_freq_factor, original_max_position_embeddings }. linear: { factor }. yarn: { factor, "
                   "original_max_position_embeddings, beta_fast, beta_slow, attention_factor }. longrope: { "
                   "short_factor, long_factor, original_max_position_embeddings, attention_factor }.",
           .fields = rope.options(),
           .wanted = "a table of rope_type, factor, low_freq_factor, high_freq_factor (numbers) and "
                     "original_max_position_embeddings (an integer)",
           .fits = check_rope_scaling},
          printed_option,
          [rope](M& model, const json& value) { model.rope_scaling = rope.read(value); },
          [rope](const M& model) -> json {
            if (!model.rope_scaling) return {};
            const auto& type = model.rope_scaling->rope_type;
            json fields = json::object();
            const json all = rope.print(*model.rope_scaling);
            for (const auto& [field, value] : all.items())
              if (has_field(type, field) && !(field == "rope_type" && type == "llama3")) fields[field] = value;
            return fields;
          });
}

void add_rope(Adder<M>& add) {
  add({.name = "rope_theta", .type = T::number,
       .help = "Base of the rotary position embeddings. Default: the family's; 10000 for most.", .minimum = 0,
       .above_minimum = true}, &M::rope_theta, printed_option);
  add({.name = "rope_local_theta", .type = T::number,
       .help = "The same for windowed layers, to which rope_scaling then does not apply.", .minimum = 0,
       .above_minimum = true}, &M::rope_local_theta, quiet_option);
  add({.name = "partial_rotary_factor", .type = T::number,
       .help = "Share of a head's elements that is rotated: the first ones.", .minimum = 0, .maximum = 1,
       .above_minimum = true}, &M::partial_rotary_factor, quiet_option);
  add({.name = "no_rope_every", .type = T::integer,
       .help = "Each n-th layer has no rotary positions. 0: every layer has them.", .minimum = 0}, &M::no_rope_every,
      quiet_option);
  add_rope_scaling(add);
}

}  // namespace

void add_decoder(std::vector<Key>& keys) {
  Adder add(keys, "model", &Recipe::model);
  add_layer(add);
  add_attention(add);
  add_rope(add);
}

}  // namespace runner::keys
