#include "runner/models/plugin/describe.hpp"

#include <algorithm>
#include <map>

#include "runner/base/error.hpp"
#include "runner/base/files.hpp"
#include "runner/base/json_text.hpp"
#include "runner/base/text.hpp"
#include "runner/models/plugin/module.hpp"
#include "runner/models/plugin/spec.hpp"
#include "strategies/collective/counting_allocator.hpp"
#include "strategies/contract/dtype.hpp"

namespace runner {

namespace {

using nlohmann::json;
using torch::Tensor;

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

/// Bytes of a block's tensors, with its input.
struct Bytes {
  int64_t saved = 0, forward_peak = 0, backward_peak = 0, output = 0;
};

/// One micro-batch through all blocks. Only one block's parameters exist at a time.
class Pass {
 public:
  Pass(Model& model, int64_t rows, torch::ScalarType dtype) : model_(model), dtype_(dtype) {
    batch_.rows = rows;
    for (const auto& field : model.spec.batch) {
      std::vector<int64_t> shape{rows};
      shape.insert(shape.end(), field.row.begin(), field.row.end());
      batch_.fields.push_back(torch::zeros(shape, scalar_type(field.type)));
    }
    batch_.host_fields = batch_.fields;
  }

  Bytes run(size_t b) {
    place_parameters(b);
    const Tensor input = x_.defined() ? x_.detach().requires_grad_(true) : Tensor();
    const int64_t input_bytes = input.defined() ? static_cast<int64_t>(input.nbytes()) : 0;
    Bytes bytes;
    Tensor output;
    {
      const AccountScope scope(account_);
      const int64_t before = account_.current();
      account_.reset_peak();
      const ForwardContext context{.batch = &batch_, .training = true};
      output = model_.blocks[b]->forward(input, context);
      bytes.output = static_cast<int64_t>(output.nbytes());
      bytes.saved = input_bytes + account_.current() - before - bytes.output;
      bytes.forward_peak = input_bytes + account_.peak() - before;
      account_.reset_peak();
      std::vector<Tensor> inputs = placed_;
      if (input.defined()) inputs.push_back(input);
      torch::autograd::grad({output}, inputs, {torch::ones_like(output)}, false, false, /*allow_unused=*/true);
      bytes.backward_peak = input_bytes + account_.peak() - before;
    }
    x_ = output.detach().clone();
    for (size_t slot : slots_) model_.slots[slot].reset();
    return bytes;
  }

 private:
  void place_parameters(size_t b) {
    placed_.clear();
    slots_.clear();
    const auto specs = model_.spec.parameters();
    const auto place = [&](size_t slot) {
      slots_.push_back(slot);
      model_.slots[slot] = torch::full(specs[slot]->shape, 0.01, torch::dtype(dtype_)).requires_grad_(true);
      placed_.push_back(model_.slots[slot]);
    };
    for (const auto& parameter : model_.spec.blocks[b].parameters) place(model_.spec.slot(parameter.name));
    for (const auto& name : model_.spec.blocks[b].shared) place(model_.spec.slot(name));
  }

  MemoryAccount account_;  // outlives the tensors
  Model& model_;
  torch::ScalarType dtype_;
  MicroBatch batch_;
  Tensor x_;
  std::vector<Tensor> placed_;
  std::vector<size_t> slots_;
};

/// The bytes per token of each block, if `dtype` is the dtype of everything: what one more row needs.
std::vector<std::map<std::string, double>> measure(const plugin::Model& made, const json& description,
                                                   const plugin::Sizes& sizes, torch::ScalarType dtype) {
  Model model(plugin_spec_of(description, sizes.vocab_size, sizes.seq_len));
  plugin::add_blocks(model, made.blocks);
  Pass one(model, 1, dtype), two(model, 2, dtype);
  std::vector<std::map<std::string, double>> measured;
  for (size_t b = 0; b < model.blocks.size(); ++b) {
    const Bytes first = one.run(b), second = two.run(b);
    const auto per_token = [&](int64_t Bytes::*member) {
      return static_cast<double>(second.*member - first.*member) / static_cast<double>(sizes.seq_len);
    };
    measured.push_back({{"saved", per_token(&Bytes::saved)},
                        {"forward_peak", per_token(&Bytes::forward_peak)},
                        {"backward_peak", per_token(&Bytes::backward_peak)},
                        {"output", per_token(&Bytes::output)}});
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
  install_counting_allocator();
  try {
    const auto wide = measure(model, description, sizes, torch::kFloat32);
    auto narrow = wide;
    try {
      narrow = measure(model, description, sizes, torch::kBFloat16);
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
