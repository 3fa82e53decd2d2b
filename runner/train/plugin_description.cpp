#include "runner/train/plugin_description.hpp"

#include <algorithm>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"
#include "runner/models/plugin/module.hpp"
#include "runner/models/plugin/spec.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/executor/block_recorder.hpp"

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
  const json nothing = {{"elements", 0.0}, {"bytes", 0.0}};
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
                      {"saved", nothing},
                      {"forward_peak", nothing},
                      {"backward_peak", nothing},
                      {"output", nothing}});
  }
  return {{"batch", batch}, {"blocks", blocks}};
}

/// The profiles of the blocks for `rows` sequences, if `dtype` is the dtype of everything. If an operator of the plug-in has no form without
/// values, the CPU computes the blocks.
std::vector<BlockProfile> profiles(const plugin::Model& made, const json& description, const plugin::Sizes& sizes,
                                   DType dtype, int64_t rows) {
  Model model(plugin_spec_of(description, sizes.vocab_size, sizes.seq_len));
  plugin::add_blocks(model, made.blocks);
  Job job;
  job.model = &model.spec;
  job.precision = {.parameter = dtype, .compute = dtype};
  job.micro_batch_size = rows;
  try {
    return record_blocks(model, job, dtype);
  } catch (const std::exception&) {
    return record_blocks(model, job, dtype, torch::kCPU);
  }
}

/// The most that one more row adds to a moment.
int64_t backward_growth(const std::vector<BackwardMoment>& one, const std::vector<BackwardMoment>& two) {
  int64_t most = 0;
  for (size_t i = 0; i < std::min(one.size(), two.size()); ++i) most = std::max(most, two[i].peak - one[i].peak);
  return most;
}

/// The bytes per token of each block, if `dtype` is the dtype of everything: what one more row needs.
std::vector<std::map<std::string, double>> measure(const plugin::Model& made, const json& description,
                                                   const plugin::Sizes& sizes, DType dtype) {
  const auto one = profiles(made, description, sizes, dtype, 1), two = profiles(made, description, sizes, dtype, 2);
  std::vector<std::map<std::string, double>> measured;
  for (size_t b = 0; b < one.size(); ++b) {
    const auto per_token = [&](int64_t bytes) {
      return static_cast<double>(bytes) / static_cast<double>(sizes.seq_len);
    };
    const auto &first = one[b].plain, &second = two[b].plain;
    measured.push_back({{"saved", per_token(second.saved - first.saved)},
                        {"forward_peak", per_token(second.forward_peak - first.forward_peak)},
                        {"backward_peak", per_token(backward_growth(first.backward, second.backward))},
                        {"output", per_token(two[b].output - one[b].output)}});
  }
  return measured;
}

/// Two measurements separate elements of the compute dtype, which have 4 or 2 bytes, from bytes that do not depend on it.
json separated(double in_float32, double in_bfloat16) {
  const double elements = std::clamp((in_float32 - in_bfloat16) / 2, 0.0, in_float32 / 4);
  return {{"elements", elements}, {"bytes", std::max(0.0, in_float32 - 4 * elements)}};
}

}  // namespace

json describe_plugin(const json& request) {
  const plugin::Sizes sizes{.vocab_size = request.at("vocab_size"), .seq_len = request.at("seq_len")};
  const auto model = make_plugin_model(request.at("plugin"), request.at("options"), sizes);
  json description = description_of(model);
  try {
    const auto wide = measure(model, description, sizes, DType::float32);
    auto narrow = wide;
    try {
      narrow = measure(model, description, sizes, DType::bfloat16);
    } catch (const Error&) {
      // An operator has no kernel for 16 bits. A training in 16 bits reports it.
      for (auto& block : narrow)
        for (auto& [name, bytes] : block) bytes /= 2;
    }
    for (size_t b = 0; b < wide.size(); ++b)
      for (const auto& [name, bytes] : wide[b]) description["blocks"][b][name] = separated(bytes, narrow[b].at(name));
  } catch (const Error& error) {
    throw usage_error("model.plugin: {}", error.what());
  }
  return description;
}

int answer_plugin_request(const std::string& question, const std::string& answer) {
  json result;
  try {
    result = describe_plugin(json::parse(read_file(question)));
  } catch (const std::exception& error) {
    result = {{"error", error.what()}};
  }
  write_file_atomic(answer, json_text(result));
  return 0;
}

}  // namespace runner
