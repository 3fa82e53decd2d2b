// Rotary settings of Hugging Face's config.json. Up to transformers 4, they are rope_theta and rope_scaling; from 5 on
// rope_parameters, for Gemma 3 one table for each kind of layer.
#include <cmath>

#include "runner/models/decoder/hf_config.hpp"

namespace runner::decoder {

namespace {

using Scaling = Recipe::Model::RopeScaling;

/// sqrt(1 + ln(factor) / ln(original)).
double longrope_factor(double factor, int64_t original) {
  return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(original)));
}

Scaling read_longrope(const HfConfigReader& config, const HfConfigReader& table, const Recipe::Model& model) {
  Scaling scaling{.rope_type = "longrope"};
  scaling.short_factor = table.require<std::vector<double>>("short_factor");
  scaling.long_factor = table.require<std::vector<double>>("long_factor");
  const int64_t stored = table.get<int64_t>("original_max_position_embeddings", 0);
  const int64_t original = config.get<int64_t>("original_max_position_embeddings", stored);
  scaling.original_max_position_embeddings = original > 0 ? original : model.max_seq_len;
  // transformers uses `factor` only without the original length.
  double factor = table.get("factor", 1.0);
  if (original > 0) factor = static_cast<double>(model.max_seq_len) / static_cast<double>(original);
  scaling.attention_factor =
      table.get("attention_factor", longrope_factor(factor, scaling.original_max_position_embeddings));
  return scaling;
}

std::optional<Scaling> read_scaling(const HfConfigReader& config, const HfConfigReader& table,
                                    const Recipe::Model& model) {
  auto legacy = table.get<std::string>("type", "default");
  auto type = table.get<std::string>("rope_type", legacy);
  if (model.name == "phi3" && (type == "su" || type == "yarn")) type = "longrope";  // names in early files
  if (type == "default") return {};
  if (type == "longrope") return read_longrope(config, table, model);
  Scaling scaling{.rope_type = type};
  if (type == "linear" || type == "yarn" || type == "llama3") {
    scaling.factor = table.require<double>("factor");
  } else {
    throw usage_error(
        "config.json: rope_type = \"{}\" is not supported; allowed: default, linear, llama3, yarn or longrope", type);
  }
  if (type == "llama3") {
    scaling.low_freq_factor = table.require<double>("low_freq_factor");
    scaling.high_freq_factor = table.require<double>("high_freq_factor");
    scaling.original_max_position_embeddings = table.require<int64_t>("original_max_position_embeddings");
  } else if (type == "yarn") {
    scaling.beta_fast = table.get("beta_fast", 32.0);
    scaling.beta_slow = table.get("beta_slow", 1.0);
    table.expect("truncate", true);
    scaling.original_max_position_embeddings =
        table.get<int64_t>("original_max_position_embeddings", model.max_seq_len);
    if (table.has("attention_factor")) scaling.attention_factor = table.require<double>("attention_factor");
  }
  return scaling;
}

/// `key`: rope_scaling or rope_parameters, for messages.
void read_table(const HfConfigReader& config, const char* key, const HfConfigReader& table, Recipe::Model& model) {
  model.rope_theta = table.get("rope_theta", model.rope_theta);
  model.partial_rotary_factor = table.get("partial_rotary_factor", model.partial_rotary_factor);
  model.rope_scaling = read_scaling(config, table, model);
  table.check_all_read(fmt::format("of {}", key));
}

/// rope_parameters of Gemma 3: {"full_attention": {..}, "sliding_attention": {..}}.
void read_both(const HfConfigReader& config, const HfConfigReader& tables, Recipe::Model& model) {
  read_table(config, "rope_parameters.full_attention", tables.table("full_attention"), model);
  const auto local = tables.table("sliding_attention");
  local.expect("rope_type", "default");
  model.rope_local_theta = local.get("rope_theta", *model.rope_local_theta);
  local.check_all_read("of rope_parameters.sliding_attention");
  tables.check_all_read("of rope_parameters");
}

}  // namespace

void read_rope(const HfConfigReader& config, Recipe::Model& model) {
  const bool neox = model.name == "gpt_neox";
  model.rope_theta = config.get(neox ? "rotary_emb_base" : "rope_theta", model.rope_theta);
  if (neox) model.rope_theta = config.get("rope_theta", model.rope_theta);
  model.partial_rotary_factor = config.get("partial_rotary_factor", model.partial_rotary_factor);
  if (neox) model.partial_rotary_factor = config.get("rotary_pct", model.partial_rotary_factor);
  if (model.rope_local_theta) model.rope_local_theta = config.get("rope_local_base_freq", *model.rope_local_theta);
  if (config.has("rope_parameters")) {
    const auto tables = config.table("rope_parameters");
    if (model.rope_local_theta && tables.has("full_attention") && tables.has("sliding_attention"))
      read_both(config, tables, model);
    else
      read_table(config, "rope_parameters", tables, model);
  }
  if (config.has("rope_scaling")) read_table(config, "rope_scaling", config.table("rope_scaling"), model);
}

void write_rope(const Recipe::Model& model, nlohmann::json& config) {
  const bool neox = model.name == "gpt_neox";
  config[neox ? "rotary_emb_base" : "rope_theta"] = model.rope_theta;
  if (neox)
    config["rotary_pct"] = model.partial_rotary_factor;
  else if (model.partial_rotary_factor != 1)
    config["partial_rotary_factor"] = model.partial_rotary_factor;
  if (model.rope_local_theta) config["rope_local_base_freq"] = *model.rope_local_theta;
  nlohmann::json table = nullptr;
  if (const auto& scaling = model.rope_scaling) {
    const auto& type = scaling->rope_type;
    const auto original = scaling->original_max_position_embeddings;
    table = {{"rope_type", type}};
    if (type != "longrope") table["factor"] = scaling->factor;
    if (type == "llama3" || type == "yarn") table["original_max_position_embeddings"] = original;
    if (type == "llama3") {
      table["low_freq_factor"] = scaling->low_freq_factor;
      table["high_freq_factor"] = scaling->high_freq_factor;
    } else if (type == "yarn") {
      table["beta_fast"] = scaling->beta_fast;
      table["beta_slow"] = scaling->beta_slow;
      if (scaling->attention_factor) table["attention_factor"] = *scaling->attention_factor;
    } else if (type == "longrope") {
      // Phi-3's class accepts exactly these keys.
      table = {{"type", type}, {"short_factor", scaling->short_factor}, {"long_factor", scaling->long_factor}};
      config["original_max_position_embeddings"] = original;
      const double usual =
          longrope_factor(static_cast<double>(model.max_seq_len) / static_cast<double>(original), original);
      if (scaling->attention_factor && *scaling->attention_factor != usual)
        table["attention_factor"] = *scaling->attention_factor;
    }
  }
  config["rope_scaling"] = table;
}

}  // namespace runner::decoder
