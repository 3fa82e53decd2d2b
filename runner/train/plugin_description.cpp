#include "runner/train/plugin_description.hpp"

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/models/plugin/module.hpp"
#include "runner/models/plugin/spec.hpp"
#include "runner/models/record_profiles.hpp"
#include "strategies/contract/dtype.hpp"

namespace runner {

namespace {

using nlohmann::json;

std::string type_name_of(torch::ScalarType type) {
  std::vector<std::string> names;
  for (const ElementType known : element_types()) {
    if (scalar_type(known) == type) return name_of(known);
    names.push_back(name_of(known));
  }
  throw usage_error("model.plugin: a field of the batch can be {}, not {}", join_or(names), c10::toString(type));
}

json description_of(const plugin::Model& model) {
  json blocks = json::array(), batch = json::array();
  for (const auto& field : model.batch)
    batch.push_back(
        {{"name", field.name}, {"type", type_name_of(field.type)}, {"row", field.row}, {"padding", field.padding}});
  for (const auto& block : model.blocks) {
    json parameters = json::array();
    for (const auto& parameter : block.parameters)
      parameters.push_back({{"name", parameter.name},
                            {"shape", parameter.shape},
                            {"init", static_cast<int>(parameter.init.kind)},
                            {"scale", parameter.init.scale}});
    blocks.push_back({{"name", block.name},
                      {"parameters", parameters},
                      {"shared", block.shared},
                      {"flops_per_token", block.flops_per_token},
                      {"output", 0.0}});
  }
  return {{"batch", batch}, {"blocks", blocks}};
}

/// The bytes of each block's output for `rows` sequences in fp32. If an operator of the plug-in has no form without
/// values, the CPU computes the blocks.
std::vector<int64_t> output_bytes(const plugin::Model& made, const json& description, const plugin::Sizes& sizes,
                                  int64_t rows) {
  Model model(plugin_spec_of(description, sizes.vocab_size, sizes.seq_len));
  plugin::add_blocks(model, made.blocks);
  const Job job = job_of({.micro_batch_size = rows}, model.spec);
  std::vector<int64_t> bytes;
  for (const auto& profile : record_model(model, job, DType::float32)) bytes.push_back(profile.output);
  return bytes;
}

}  // namespace

json describe_plugin(const json& request) {
  const plugin::Sizes sizes{.vocab_size = request.at("vocab_size"), .seq_len = request.at("seq_len")};
  const auto model = make_plugin_model(request.at("plugin"), request.at("options"), sizes);
  json description = description_of(model);
  try {
    const auto one = output_bytes(model, description, sizes, 1), two = output_bytes(model, description, sizes, 2);
    for (size_t b = 0; b < one.size(); ++b)
      description["blocks"][b]["output"] =
          static_cast<double>((two[b] - one[b]) / bytes_of(DType::float32)) / static_cast<double>(sizes.seq_len);
  } catch (const std::exception& error) {
    throw usage_error("model.plugin: {}", error.what());
  }
  return description;
}

}  // namespace runner
