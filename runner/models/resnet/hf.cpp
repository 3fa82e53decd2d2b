// resnet as Hugging Face's ResNetForImageClassification: tensor names, and conversion of config.json in both directions.
#include "runner/base/text.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/hf_config_reader.hpp"
#include "runner/models/hf_ignored_keys.hpp"
#include "runner/models/hf_labels.hpp"
#include "runner/models/resnet/resnet.hpp"

namespace runner::resnet {

HfTensor hf_tensor(const std::string& name) {
  if (name.starts_with("head.")) return {"classifier.1." + name.substr(5)};
  const auto parts = split(name, '.');
  const std::string part = parts[parts.size() - 2] == "conv" ? "convolution" : "normalization";
  const auto inside = [&](const std::string& module) {
    const auto theirs = module + "." + part + "." + parts.back();
    return HfTensor{"resnet." + theirs, {theirs}};
  };
  if (parts[0] == "stem") return inside("embedder.embedder");
  // stages.I.layers.J.K or stages.I.layers.J.shortcut
  const auto layer = fmt::format("encoder.stages.{}.layers.{}", parts[1], parts[3]);
  return inside(parts[4] == "shortcut" ? layer + ".shortcut" : layer + ".layer." + parts[4]);
}

Recipe::Model model_from_hf_config(const nlohmann::json& config) {
  HfConfigReader reader(config);
  reader.expect("num_channels", 3);
  Recipe::Model model = family_defaults("resnet");
  model.embedding_size = reader.get<int64_t>("embedding_size", 64);
  model.hidden_sizes = reader.get("hidden_sizes", std::vector<int64_t>{256, 512, 1024, 2048});
  model.depths = reader.get("depths", std::vector<int64_t>{3, 4, 6, 3});
  model.layer_type = reader.get<std::string>("layer_type", "bottleneck");
  model.downsample_in_first_stage = reader.get("downsample_in_first_stage", false);
  model.downsample_in_bottleneck = reader.get("downsample_in_bottleneck", false);
  model.activation = reader.get<std::string>("hidden_act", "relu");
  if (*model.activation != "relu" && *model.activation != "gelu" && *model.activation != "silu")
    throw usage_error("config.json: hidden_act = \"{}\" is not supported; allowed: relu, gelu or silu",
                      *model.activation);
  model.num_labels = reader.has("id2label") ? std::ssize(config.at("id2label")) : reader.get<int64_t>("num_labels", 2);
  // The ignored keys are those that a backbone of other models needs, and names of runner's own files.
  reader.check_all_read("of resnet", hf_ignored_keys_and({"out_features", "out_indices", "stage_names", "pruned_heads",
                                                          "tie_word_embeddings", "crop"}));
  return model;
}

nlohmann::json hf_config(const Recipe::Model& model, const ModelSpec& spec) {
  nlohmann::json config = label_tables(spec.vocab_size);
  config.update({{"architectures", {"ResNetForImageClassification"}},
                 {"model_type", "resnet"},
                 {"num_channels", 3},
                 {"embedding_size", model.embedding_size},
                 {"hidden_sizes", model.hidden_sizes},
                 {"depths", model.depths},
                 {"layer_type", model.layer_type},
                 {"hidden_act", activation_of(model) == "gelu_tanh" ? "gelu_pytorch_tanh" : activation_of(model)},
                 {"downsample_in_first_stage", model.downsample_in_first_stage},
                 {"downsample_in_bottleneck", model.downsample_in_bottleneck}});
  return config;
}

}  // namespace runner::resnet
