// DeepSpeed's part in reading a recipe: strategies with a configuration, options that are "auto", and DeepSpeed's keys that are
// written as keys of a recipe.
#include <algorithm>

#include "runner/base/text.hpp"
#include "runner/config/key_table.hpp"
#include "runner/config/tool_names.hpp"
#include "runner/import/deepspeed_config.hpp"
#include "runner/import/deepspeed_keys.hpp"

namespace runner {

namespace {

/// The meaning of a DeepSpeed key that is ignored, refused, or has only one supported value.
ForeignName name_of(const std::string& name, const DeepSpeedKey& key) {
  if (key.fate == DeepSpeedKey::Fate::ignored) return ForeignName::accepted(name, "nothing to do: " + key.note);
  if (key.fate == DeepSpeedKey::Fate::refused) return {.name = name, .refusal = key.note};
  return {.name = name,
          .meaning = ForeignName::one_of({key.default_value}),
          .note = "already the case here: " + key.note,
          .refusal = key.note};
}

/// A name of another tool that has no effect, for the reason of a DeepSpeed key.
ForeignName without_effect(const std::string& name, const std::string& key) {
  return ForeignName::accepted(name, "nothing to do: " + find_deepspeed_key(key)->note);
}

/// The names below that are not in schemas/names/deepspeed.toml.
constexpr std::string_view own_names[] = {"logging_batch_size_per_gpu", "sparse_as_dense", "drop_last"};

ForeignNames make_names() {
  std::vector<ForeignName> names = {
      {.name = "zero_optimization",
       .meaning = ForeignName::one_of({true}),
       .note = "already the case here: the strategy is ZeRO",
       .refusal =
           "a configuration goes into config = { zero_optimization = { ... } }; without ZeRO it is name = \"ddp\""},
      ForeignName::accepted("logging_batch_size_per_gpu", "nothing to do: DeepSpeed would log train.micro_batch_size"),
      without_effect("sparse_as_dense", "sparse_gradients"),
  };
  // The names in further blocks (ratio, betas) mean something only in their block.
  for (const auto& key : deepspeed_keys())
    for (const char* block : {"", "zero_optimization", "activation_checkpointing", "fp16", "bf16"})
      if (key.parent() == block && !key.note.empty() && !find_section(key.name))
        names.push_back(name_of(key.name, key));
  for (auto& name : names) name.sections = {"", "train", "strategy", "activation_checkpointing"};
  names.push_back(without_effect("drop_last", "dataloader_drop_last"));
  ForeignNames all;
  for (auto& name : names) all.emplace(name.name, name);
  return all;
}

class DeepSpeedImporter final : public Importer {
 public:
  std::string tool() const override { return "DeepSpeed"; }

  bool takes(const std::string& strategy) const override {
    const auto name = lower(strategy);
    return name == "zero" || name.starts_with("deepspeed");
  }

  Imported read(const LocatedJson& configuration, const std::function<bool(const std::string&)>& given) const override {
    return read_deepspeed(configuration, given);
  }

  void complete(Recipe& recipe, const std::optional<Origin>& configured_at,
                std::vector<Diagnostic>& diagnostics) const override {
    auto& options = recipe.strategy.options;
    for (auto& [name, value] : options.items())
      if (auto automatic = automatic_option(name, recipe.model.dim); value == "auto" && !automatic.is_null())
        value = automatic;
    const bool named = lower(recipe.strategy.name).starts_with("deepspeed_stage_");
    if (!configured_at || named || options.contains("stage")) return;
    diagnostics.push_back(
        {.place = *configured_at,
         .code = "missing-key",
         .message = "the configuration has no zero_optimization.stage, and DeepSpeed's stage 0 shards nothing (that is "
                    "strategy.name = \"ddp\"); set it to 1, 2 or 3",
         .section = "strategy"});
  }
};

}  // namespace

const char* const deepspeed_needed = "`config` needs a strategy with a name of DeepSpeed: name = \"deepspeed\"";

const ForeignName* find_argument(const std::string& name) {
  if (const auto* argument = find_strategy_argument(name)) return argument;
  const bool is_own = std::ranges::find(own_names, name) != std::end(own_names);
  if (!is_own && deepspeed_text.find(name + "\"") == std::string_view::npos)
    return nullptr;  // nothing is parsed for it
  static const ForeignNames names = make_names();
  const auto found = names.find(name);
  return found == names.end() ? nullptr : &found->second;
}

const Importer& deepspeed_importer() {
  static const DeepSpeedImporter importer;
  return importer;
}

}  // namespace runner
