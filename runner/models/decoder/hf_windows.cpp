// Sliding windows in Hugging Face's config.json: which layers have one, in the form of each class.
#include <algorithm>

#include "runner/models/decoder/hf_config.hpp"

namespace runner::decoder {

namespace {

const std::string sliding = "sliding_attention", full = "full_attention";

/// The shortest list that gives `types` when it is repeated.
std::vector<std::string> shortest(const std::vector<std::string>& types) {
  for (size_t period = 1; period < types.size(); ++period) {
    bool repeats = true;
    for (size_t i = period; i < types.size() && repeats; ++i) repeats = types[i] == types[i - period];
    if (repeats) return {types.begin(), types.begin() + static_cast<ptrdiff_t>(period)};
  }
  return types;
}

std::vector<std::string> read_types(const HfConfigReader& config, const Recipe::Model& model) {
  auto types = config.require<std::vector<std::string>>("layer_types");
  if (static_cast<int64_t>(types.size()) != model.n_layers)
    throw usage_error("config.json: layer_types has {} entries, and num_hidden_layers = {}", types.size(),
                      model.n_layers);
  for (const auto& type : types)
    if (type != sliding && type != full)
      throw usage_error("config.json: layer_types: \"{}\" is not supported; allowed: {} or {}", type, full, sliding);
  return shortest(types);
}

std::vector<std::string> window_from(int64_t first, int64_t layers) {
  std::vector<std::string> types(static_cast<size_t>(layers), full);
  for (int64_t i = first; i < layers; ++i) types[static_cast<size_t>(std::max<int64_t>(i, 0))] = sliding;
  return shortest(types);
}

std::vector<std::string> all_types(const Recipe::Model& model) {
  std::vector<std::string> types;
  for (int64_t i = 0; i < model.n_layers; ++i) types.push_back(slides(model, i) ? sliding : full);
  return types;
}

}  // namespace

void read_windows(const HfConfigReader& config, const HfFamily& family, Recipe::Model& model) {
  const bool typed = config.has("layer_types");
  if (family.window == HfWindow::none || family.window == HfWindow::every_layer) {
    // From transformers 5 on, some files name the types of layers that are all equal.
    if (typed && shortest(read_types(config, model)).size() != 1)
      throw usage_error("config.json: layer_types with windows in some layers is not supported for {}", family.type);
    if (family.window == HfWindow::none && typed && read_types(config, model)[0] == sliding)
      throw usage_error("config.json: layer_types with \"{}\" is not supported for {}", sliding, family.type);
    model.layer_types = {};
    model.sliding_window = 0;
    if (family.window == HfWindow::none) return;
    // Null means no window; an absent key means the class's default.
    model.sliding_window = config.has("sliding_window") || !config.contains("sliding_window")
                               ? config.get<int64_t>("sliding_window", family.sliding_window)
                               : 0;
    return;
  }
  const bool on = family.window == HfWindow::pattern || config.get("use_sliding_window", false);
  const int64_t window = config.contains("sliding_window") && !config.has("sliding_window")
                             ? 0
                             : config.get<int64_t>("sliding_window", family.sliding_window);
  const int64_t first = config.get<int64_t>("max_window_layers", 28);
  model.sliding_window = on ? window : 0;
  const bool pattern = family.window == HfWindow::pattern;
  if (pattern && config.has("sliding_window_pattern") && !typed) {
    const auto every = config.require_count("sliding_window_pattern");
    model.layer_types = std::vector<std::string>(static_cast<size_t>(every), sliding);
    model.layer_types.back() = full;
  } else {
    config.get<nlohmann::json>("sliding_window_pattern", nullptr);  // layer_types says the same
  }
  if (typed)
    model.layer_types = read_types(config, model);
  else if (!pattern)
    model.layer_types = on ? window_from(first, model.n_layers) : std::vector<std::string>{};
  if (!pattern && model.sliding_window == 0) model.layer_types = {};
  if (family.window == HfWindow::only_types && on && !typed)
    throw usage_error("config.json: use_sliding_window = true is supported only with layer_types for {}", family.type);
}

void write_windows(const Recipe::Model& model, const HfFamily& family, nlohmann::json& config) {
  if (family.window == HfWindow::none) return;
  const nlohmann::json window = model.sliding_window > 0 ? nlohmann::json(model.sliding_window) : nlohmann::json();
  config["sliding_window"] = window;
  if (family.window == HfWindow::every_layer) return;
  const auto types = all_types(model);
  const bool any = model.sliding_window > 0 && std::ranges::find(types, sliding) != types.end();
  if (family.window == HfWindow::from_layer || family.window == HfWindow::only_types) {
    config["use_sliding_window"] = any;
    if (family.window == HfWindow::from_layer)
      config["max_window_layers"] = any ? std::ranges::find(types, sliding) - types.begin() : model.n_layers;
    if (any) config["layer_types"] = types;
    return;
  }
  config["layer_types"] = types;
  if (model.name != "gemma3") return;
  // transformers 4.50 to 4.52 know only this key.
  const auto global = std::ranges::find(types, full) - types.begin();
  config["sliding_window_pattern"] = global + 1;
}

}  // namespace runner::decoder
