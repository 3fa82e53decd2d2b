#include "runner/models/module.hpp"

#include "runner/base/error.hpp"
#include "runner/config/model_families.hpp"
#include "runner/models/plugin/module.hpp"
#include "runner/models/profiler.hpp"
#include "runner/models/record_profiles.hpp"

namespace runner {

/// A process that can build models records their profiles itself.
[[maybe_unused]] static const bool records = record_in_process(record_profiles);

std::unique_ptr<Model> build_model(const Recipe::Model& recipe, const ModelSpec& spec) {
  auto model = std::make_unique<Model>(spec);
  if (spec.family == "plugin")
    plugin::add_blocks(*model, make_plugin_model(*recipe.plugin, recipe.options,
                                                 {.vocab_size = spec.vocab_size, .seq_len = spec.seq_len})
                                   .blocks);
  else if (spec.family == "gpt")
    gpt::add_blocks(*model, recipe);
  else if (spec.family == "mlp")
    mlp::add_blocks(*model, recipe);
  else if (spec.family == "vit")
    vit::add_blocks(*model, recipe);
  else if (spec.family == "resnet")
    resnet::add_blocks(*model, recipe);
  else if (family_kind(spec.family) == "encoder")
    encoder::add_blocks(*model, recipe);
  else
    decoder::add_blocks(*model, recipe);
  RUNNER_CHECK(!model->blocks.empty(), "no module for the family `{}`", spec.family);
  RUNNER_CHECK(model->blocks.size() == spec.blocks.size());
  return model;
}

}  // namespace runner
