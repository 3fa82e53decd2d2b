#include "runner/checkpoint/tied_head.hpp"

#include <algorithm>

#include "runner/checkpoint/adapter_files.hpp"
#include "runner/config/model_families.hpp"

namespace runner {

std::optional<TiedHead> find_tied_head(const Recipe::Model& model, const ModelSpec& spec) {
  if (spec.blocks.back().shared.empty()) return std::nullopt;
  TiedHead tied{.slot = spec.slot(spec.blocks.back().shared.front())};
  tied.embedding = hf_names(model, spec)[tied.slot].name;
  if (family_kind(model.name) == "encoder") return tied;
  ModelSpec own;
  own.blocks.push_back({.name = "head", .parameters = {{.name = "head.weight", .shape = {}, .init = {}}}});
  tied.head = hf_names(model, own).front().name;
  return tied;
}

std::string difference_of_head(const fs::path& folder, const TiedHead& tied) {
  const auto path = folder / "adapter_model.safetensors";
  if (!fs::exists(path)) return "";
  const SafetensorsFile file(path);
  const auto *embedding = file.find(peft_prefix + tied.embedding), *head = file.find(peft_prefix + tied.head);
  if (!embedding && !head) return "";
  if (embedding && head && embedding->dtype == head->dtype && embedding->shape == head->shape &&
      std::ranges::equal(file.data(*embedding), file.data(*head)))
    return "";
  const auto config =
      nlohmann::json::parse(read_file(folder / "adapter_config.json"), nullptr, /*allow_exceptions=*/false);
  if (embedding && !head && config.is_object() && config.value("ensure_weight_tying", nlohmann::json()) == true)
    return "";
  const auto& lacking = embedding ? "the output layer" : "the embedding";
  return fmt::format("`{}` and the output layer share one weight here (model.tie_embeddings), and with this folder {}",
                     tied.embedding,
                     embedding && head ? "PEFT has two" : fmt::format("PEFT leaves {} as it is in the base", lacking));
}

}  // namespace runner
