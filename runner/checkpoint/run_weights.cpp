#include "runner/checkpoint/run_weights.hpp"

#include <algorithm>
#include <memory>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "runner/checkpoint/adapter_files.hpp"
#include "runner/checkpoint/safetensors.hpp"
#include "runner/models/adapters.hpp"
#include "strategies/contract/quantized_source.hpp"
#include "strategies/optimizer/optimizer_spec.hpp"

namespace runner {

using namespace nlohmann::literals;

namespace {

/// The average x of parameters, which follows from the trained point y and the state z. Other parameters are read as they are.
ParameterReader average_reader(const Checkpoint& checkpoint, const ModelSpec& spec, double beta1,
                               const ParameterReader& read) {
  std::vector<std::string> names;
  for (const auto* parameter : spec.stored()) names.push_back("optimizer/z/" + parameter->name);
  return [checkpoint, names, read, share = static_cast<float>(1 - 1 / beta1), bytes = std::vector<std::byte>(),
          z = std::vector<float>()](size_t slot, int64_t offset, std::span<float> out) mutable {
    read(slot, offset, out);
    if (!checkpoint.has(names[slot])) return;
    const auto& dtype = checkpoint.dtype(names[slot]);
    bytes.resize(out.size() * static_cast<size_t>(dtype_bytes(dtype)));
    checkpoint.read(names[slot], offset, static_cast<int64_t>(out.size()), bytes);
    z.resize(out.size());
    to_floats(dtype, bytes, z);
    for (size_t i = 0; i < out.size(); ++i) out[i] += share * (z[i] - out[i]);
  };
}

/// Initial values: of a base without a folder, and of a head that the folder lacks.
ParameterReader drawn_again(const ModelSpec& spec, int64_t seed) {
  std::vector<ParameterSpec> parameters;
  for (const auto* parameter : spec.parameters()) parameters.push_back(*parameter);
  return
      [=](size_t slot, int64_t offset, std::span<float> out) { initialize_slice(parameters[slot], seed, offset, out); };
}

}  // namespace

ModelSpec spec_of(const Recipe& recipe, const Checkpoint& checkpoint) {
  auto number = [&](const char* key) {
    nlohmann::json::json_pointer place("/model/" + std::string(key));
    if (!checkpoint.state().contains(place) || !checkpoint.state().at(place).is_number_integer())
      throw environment_error("{}: the manifest's state has no model.{}", checkpoint.path().string(), key);
    return checkpoint.state().at(place).get<int64_t>();
  };
  return make_spec(recipe, number("vocab_size"), number("seq_len"));
}

ParameterReader parameter_reader(const Checkpoint& checkpoint, const ModelSpec& spec, const std::string& place,
                                 const ParameterReader& base) {
  std::vector<std::string> problems, names;
  for (const auto* parameter : spec.stored()) {
    const auto& name = names.emplace_back(place + parameter->name);
    if (!checkpoint.has(name) && parameter->of_base)
      names.back().clear();
    else if (!checkpoint.has(name))
      problems.push_back(fmt::format("`{}` is missing", name));
    else if (checkpoint.shape(name) != parameter->shape)
      problems.push_back(fmt::format("`{}` is [{}] instead of [{}]", name, fmt::join(checkpoint.shape(name), ", "),
                                     fmt::join(parameter->shape, ", ")));
    else if (!is_float_dtype(checkpoint.dtype(name)))
      problems.push_back(fmt::format("`{}` is {}", name, checkpoint.dtype(name)));
  }
  if (!problems.empty())
    throw environment_error("{} does not fit the run's resolved.toml: {}", checkpoint.path().string(),
                            join(problems, "; "));
  return [checkpoint, names, base, bytes = std::vector<std::byte>()](size_t slot, int64_t offset,
                                                                     std::span<float> out) mutable {
    if (names[slot].empty()) return base(slot, offset, out);
    const auto& dtype = checkpoint.dtype(names[slot]);
    bytes.resize(out.size() * static_cast<size_t>(dtype_bytes(dtype)));
    checkpoint.read(names[slot], offset, static_cast<int64_t>(out.size()), bytes);
    to_floats(dtype, bytes, out);
  };
}

ParameterReader model_reader(const Recipe& recipe, const Checkpoint& checkpoint, const ModelSpec& spec,
                             const ParameterReader& base) {
  auto read = parameter_reader(checkpoint, spec, "param/", base);
  const auto* optimizer = find_optimizer(recipe.optimizer.name);
  const bool averages = optimizer && optimizer->averages;
  return averages ? average_reader(checkpoint, spec, recipe.optimizer.betas.at(0), read) : read;
}

ParameterReader base_reader(const Recipe& recipe, const ModelSpec& spec, const ModelSpec& base,
                            const Checkpoint& checkpoint) {
  if (std::ranges::none_of(spec.parameters(), &ParameterSpec::of_base)) return {};
  if (!recipe.model.init_from) return dequantized_source(spec, drawn_again(spec, recipe.run.seed));
  const auto& folder = *recipe.model.init_from;
  const auto trained_from = checkpoint.state().value("/settings/the weights of model.init_from"_json_pointer, "");
  if (!fs::exists(folder))
    throw environment_error(
        "{} is missing: the checkpoints of this run contain the adapter only, and need the weights of "
        "model.init_from; --adapter exports the adapter alone",
        folder);
  if (!trained_from.empty() && base_digest(folder) != trained_from)
    throw environment_error("{} has other weights than those that the run started from", folder);
  auto source = std::make_shared<HfSource>(folder, recipe.model, base);
  std::vector<size_t> slots;
  for (const auto* parameter : spec.parameters())
    slots.push_back(adapted_matrix(parameter->name).empty() ? base.slot(parameter->name) : SIZE_MAX);
  const auto drawn = drawn_again(spec, recipe.run.seed);
  return dequantized_source(spec, [source, slots, drawn](size_t slot, int64_t offset, std::span<float> out) {
    if (source->has(slots[slot]))
      source->read(slots[slot], offset, out);
    else
      drawn(slot, offset, out);
  });
}

}  // namespace runner
