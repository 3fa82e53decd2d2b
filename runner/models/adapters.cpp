#include "runner/models/adapters.hpp"

#include <algorithm>
#include <cmath>

#include "runner/base/glob.hpp"
#include "runner/base/text.hpp"
#include "runner/models/spec_parts.hpp"

namespace runner {

namespace {

constexpr std::string_view weight = ".weight", a_suffix = ".lora_a", b_suffix = ".lora_b",
                           magnitude_suffix = ".lora_magnitude";

/// The module of a parameter, under our name and under Hugging Face's.
struct ModuleNames {
  std::string ours, theirs;
};

std::string module_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

bool names_module(const std::string& pattern, const std::string& module) {
  return glob_matches(pattern, module) || module.ends_with("." + pattern);
}
bool names_module(const std::string& pattern, const ModuleNames& module) {
  return names_module(pattern, module.ours) || names_module(pattern, module.theirs);
}

/// Whether the pattern names the module, or one that contains it.
bool is_inside(const std::string& pattern, const ModuleNames& module) {
  for (const auto* name : {&module.ours, &module.theirs})
    for (auto end = name->size(); end != std::string::npos && end > 0; end = name->rfind('.', end - 1))
      if (names_module(pattern, name->substr(0, end))) return true;
  return false;
}

bool is_matrix(const ParameterSpec& parameter) {
  return parameter.shape.size() == 2 && parameter.name.ends_with(weight);
}

/// Answers questions about the modules of a base model.
class Modules {
 public:
  Modules(const Recipe& recipe, const ModelSpec& base) : fine_tune_(recipe.fine_tune), base_(base) {
    const auto parameters = base.parameters();
    const auto tensors = hf_names(recipe.model, base);
    for (size_t slot = 0; slot < parameters.size(); ++slot)
      names_.push_back({module_of(parameters[slot]->name), module_of(tensors[slot].name)});
  }

  /// `block`: of the parameter in `slot`.
  bool adapted(const BlockSpec& block, const ParameterSpec& parameter, size_t slot) const {
    if (block.kind != BlockKind::transformer || !is_matrix(parameter) || saved_whole(slot)) return false;
    return std::ranges::any_of(fine_tune_.targets, [&](const std::string& target) {
      return target == "all-linear" || names_module(target, names_[slot]);
    });
  }
  /// A classifier is trained completely even if it is not named, as in PEFT's task type SEQ_CLS.
  bool saved_whole(size_t slot) const {
    for (const char* classifier : {"classifier", "score"})
      if (base_.task && is_inside(classifier, names_[slot])) return true;
    return std::ranges::any_of(fine_tune_.modules_to_save,
                               [&](const std::string& target) { return is_inside(target, names_[slot]); });
  }

  /// Whether the pattern names a matrix of a layer, and whether it names any parameter.
  bool names_target(const std::string& pattern) const {
    bool found = pattern == "all-linear";
    for_each([&](const BlockSpec& block, const ParameterSpec& parameter, size_t slot) {
      found |= block.kind == BlockKind::transformer && is_matrix(parameter) && names_module(pattern, names_[slot]);
    });
    return found;
  }
  bool names_any(const std::string& pattern) const {
    return std::ranges::any_of(names_, [&](const ModuleNames& names) { return is_inside(pattern, names); });
  }

  /// The last parts of the names of modules, Hugging Face's first; `targets`: of those that can have adapters.
  std::vector<std::string> short_names(bool targets) const {
    std::vector<std::string> theirs, ours;
    auto add = [](std::vector<std::string>& list, const std::string& module) {
      const auto name = module.substr(module.rfind('.') + 1);
      if (std::ranges::find(list, name) == list.end()) list.push_back(name);
    };
    for_each([&](const BlockSpec& block, const ParameterSpec& parameter, size_t slot) {
      if (targets && !(block.kind == BlockKind::transformer && is_matrix(parameter))) return;
      add(theirs, names_[slot].theirs);
      add(ours, names_[slot].ours);
    });
    if (targets) theirs.insert(theirs.begin(), "all-linear");
    for (const auto& name : ours)
      if (std::ranges::find(theirs, name) == theirs.end()) theirs.push_back(name);
    return theirs;
  }

 private:
  template <class Body>
  void for_each(Body&& body) const {
    size_t slot = 0;
    for (const auto& block : base_.blocks)
      for (const auto& parameter : block.parameters) body(block, parameter, slot++);
  }

  const Recipe::FineTune& fine_tune_;
  const ModelSpec& base_;
  std::vector<ModuleNames> names_;  ///< by slot
};

/// The matrices A [rank, in] and B [out, rank] of an adapter. Of a divided matrix, each rank has the rows of B or the columns of A that
/// belong to its part, and the other one completely.
std::pair<ParameterSpec, ParameterSpec> low_rank_pair(const ParameterSpec& matrix, int64_t rank,
                                                      const TensorDivision& division) {
  const auto names = adapter_names(matrix.name);
  const int64_t out = matrix.whole_shape()[0], in = matrix.whole_shape()[1];
  const Init uniform{.kind = Init::Kind::uniform, .std = 1 / std::sqrt(static_cast<double>(in))};
  ParameterSpec a{.name = names.a, .shape = {rank, in}, .init = uniform, .whole_use = WholeUse::columns};
  ParameterSpec b{.name = names.b, .shape = {out, rank}, .init = {}, .whole_use = WholeUse::columns};
  if (matrix.split) (matrix.split->dim == 0 ? b : a).split = matrix.split;
  divide(a, division);
  divide(b, division);
  return {a, b};
}

/// Adds the adapters of a block's matrices. An adapter follows its matrix, so that gradients arrive in the order of parameters.
void add_adapters(BlockSpec& block, const Modules& modules, size_t first_slot, const AdapterSpec& adapter,
                  const TensorDivision& division) {
  std::vector<ParameterSpec> parameters;
  for (size_t i = 0; i < block.parameters.size(); ++i) {
    const auto& matrix = block.parameters[i];
    parameters.push_back(matrix);
    if (!modules.adapted(block, matrix, first_slot + i)) continue;
    const int64_t out = matrix.shape[0], in = matrix.shape[1];
    auto [a, b] = low_rank_pair(matrix, adapter.rank, division);
    block.forward_flops_per_token += 2 * static_cast<double>(a.numel() + b.numel());
    parameters.push_back(std::move(a));
    parameters.push_back(std::move(b));
    if (adapter.magnitudes)
      parameters.push_back({.name = adapter_names(matrix.name).magnitude,
                            .shape = {out},
                            .init = {.kind = Init::Kind::row_norms, .of = matrix.name}});
    // The dropped input has a product of its own with the matrix.
    if (adapter.magnitudes && adapter.dropout > 0) block.forward_flops_per_token += 2 * static_cast<double>(in * out);
  }
  block.parameters = std::move(parameters);
}

}  // namespace

AdapterNames adapter_names(const std::string& matrix) {
  const auto module = module_of(matrix);
  return {.a = module + std::string(a_suffix),
          .b = module + std::string(b_suffix),
          .magnitude = module + std::string(magnitude_suffix)};
}

std::string adapted_matrix(const std::string& parameter) {
  const bool adapter =
      parameter.ends_with(a_suffix) || parameter.ends_with(b_suffix) || parameter.ends_with(magnitude_suffix);
  return adapter ? module_of(parameter) + std::string(weight) : "";
}

void fine_tune(ModelSpec& spec, const Recipe& recipe) {
  const auto& settings = recipe.fine_tune;
  if (settings.method == "freeze") {
    train_only(spec, [&](const ParameterSpec& parameter, size_t) {
      return parameter.trainable && std::ranges::any_of(settings.trainable, [&](const std::string& pattern) {
               return glob_matches(pattern, parameter.name);
             });
    });
  }
  if (!settings.adapts()) return;
  const ModelSpec base = spec;
  const Modules modules(recipe, base);
  train_only(spec, [&](const ParameterSpec& parameter, size_t slot) {
    return parameter.trainable && modules.saved_whole(slot);
  });
  if (settings.quantizes()) spec.quantization = {.double_quantization = settings.double_quantization};
  for (auto& block : spec.blocks)
    for (auto& parameter : block.parameters) {
      parameter.quantized =
          settings.quantizes() && block.kind == BlockKind::transformer && is_matrix(parameter) && !parameter.trainable;
      parameter.of_base = !parameter.trainable && (recipe.model.init_from || parameter.quantized);
    }
  spec.adapter = {.rank = settings.rank,
                  .scale = settings.scale(),
                  .dropout = settings.dropout,
                  .magnitudes = settings.has_magnitudes()};
  size_t slot = 0;
  for (auto& block : spec.blocks) {
    const size_t count = block.parameters.size();
    add_adapters(block, modules, slot, *spec.adapter, spec.division);
    slot += count;
  }
}

std::vector<UnmatchedTarget> unmatched_targets(const Recipe& recipe, const ModelSpec& base) {
  std::vector<UnmatchedTarget> unmatched;
  const auto& settings = recipe.fine_tune;
  const Modules modules(recipe, base);
  if (settings.adapts()) {
    for (const auto& target : settings.targets)
      if (!modules.names_target(target))
        unmatched.push_back({.key = "fine_tune.targets",
                             .name = target,
                             .available = modules.short_names(/*targets=*/true),
                             .reason = modules.names_any(target)
                                           ? "adapters are for matrices of layers; modules_to_save "
                                             "trains other modules completely"
                                           : ""});
    for (const auto& module : settings.modules_to_save)
      if (!modules.names_any(module))
        unmatched.push_back({.key = "fine_tune.modules_to_save",
                             .name = module,
                             .available = modules.short_names(/*targets=*/false),
                             .reason = ""});
  }
  if (settings.method == "freeze")
    for (const auto& pattern : settings.trainable)
      if (std::ranges::none_of(base.parameters(), [&](const auto* one) { return glob_matches(pattern, one->name); }))
        unmatched.push_back(
            {.key = "fine_tune.trainable", .name = pattern, .available = parameter_names(base), .reason = ""});
  return unmatched;
}

std::string saved_module(const std::string& module) {
  for (const std::string head : {"classifier", "pooler"})
    if (names_module(head, module.substr(0, module.rfind('.')))) return head;
  return module.substr(module.rfind('.') + 1);
}

}  // namespace runner
