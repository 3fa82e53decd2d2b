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

/// The same for a module that the named one contains.
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

/// Counts elements of a block's parameters from the last one to the first, as gradients are computed, before and after adapters were
/// added.
class Elements {
 public:
  Elements(const std::vector<ParameterSpec>& before, const std::vector<ParameterSpec>& after) {
    auto added = after.rbegin();
    int64_t of_before = 0, of_after = 0;
    for (auto parameter = before.rbegin(); parameter != before.rend(); ++parameter) {
      ends_.emplace_back(of_before, of_after);
      while (added->name != parameter->name) of_after += (added++)->numel();
      of_after += (added++)->numel();
      of_before += parameter->numel();
    }
    ends_.emplace_back(of_before, of_after);
  }
  /// The number of elements after, for a number before that is at the end of a parameter.
  int64_t after(int64_t before) const {
    const auto end = std::ranges::lower_bound(ends_, before, {}, &std::pair<int64_t, int64_t>::first);
    return end == ends_.end() ? before : end->second + (before - end->first);
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> ends_;
};

/// The memory of one adapter's activations, per token.
struct AdapterMemory {
  std::string matrix;
  double saved = 0;   ///< elements that are kept for its backward
  double beside = 0;  ///< elements beside the gradients of input and output while a product with the matrix is computed
  double dropped =
      0;  ///< elements after that product, when the gradient of the dropped input is computed, and then masked
  int64_t rank = 0, in = 0;
  int64_t begin = 0, end = 0;  ///< its matrix and parameters among the elements of the block, counted from the last one
};

AdapterMemory adapter_memory(const AdapterSpec& adapter, const ParameterSpec& matrix) {
  const auto out = static_cast<double>(matrix.shape[0]), in = static_cast<double>(matrix.shape[1]);
  AdapterMemory memory{
      .matrix = matrix.name, .saved = static_cast<double>(adapter.rank), .rank = adapter.rank, .in = matrix.shape[1]};
  const bool drops = adapter.dropout > 0;
  if (drops) memory.dropped = in;
  if (!adapter.magnitudes) return memory;
  memory.saved += out;                     // the sum that is multiplied by the magnitudes
  memory.beside = out + (drops ? in : 0);  // the gradient of that sum, and of the dropped input
  memory.dropped += drops ? out : 0;
  return memory;
}

/// Where the parameters of each adapter are in its block.
void find_places(const BlockSpec& block, std::vector<AdapterMemory>& adapters) {
  for (auto& adapter : adapters) {
    const auto [a, b, magnitude] = adapter_names(adapter.matrix);
    int64_t elements = 0;
    for (auto parameter = block.parameters.rbegin(); parameter != block.parameters.rend(); ++parameter) {
      const auto& name = parameter->name;
      const bool own = name == magnitude || name == b || name == a || name == adapter.matrix;
      if (own && adapter.end == 0) adapter.begin = elements;
      elements += parameter->numel();
      if (own) adapter.end = elements;
    }
  }
}

/// Elements per token that a block saves for the matrices after this one.
double saved_for_later(const BlockSpec& block, const std::vector<AdapterMemory>& adapters, size_t adapter) {
  double elements = 0;
  std::vector<std::string> later;
  for (size_t i = adapter; i < adapters.size(); ++i) {
    elements += adapters[i].saved;
    if (i > adapter) later.push_back(adapters[i].matrix);
  }
  for (const auto& input : block.inputs)
    if (input.saved && std::ranges::all_of(input.matrices, [&](const std::string& matrix) {
          return std::ranges::find(later, matrix) != later.end();
        }))
      elements += input.elements_per_token;
  return elements;
}

/// The moments at which forward computes the row norms of adapted matrices. Of what the block saves, the results of later matrices do not
/// exist yet.
void add_norms(BlockSpec& block, const std::vector<AdapterMemory>& adapters) {
  for (size_t i = 0; i < adapters.size(); ++i) {
    const auto matrix = std::ranges::find(block.parameters, adapters[i].matrix, &ParameterSpec::name);
    block.forward_moments.push_back(
        {.compute_elements_per_token = block.saved.compute_elements_per_token - saved_for_later(block, adapters, i),
         .joined_per_token = block.saved.joined_per_token,
         .float32_per_token = block.saved.float32_per_token,
         .normed_rows = matrix->shape[0],
         .normed_columns = matrix->shape[1]});
  }
}

/// Adds the products with A to the moments without a graph. With magnitudes, the norms of the matrix's rows are computed before them. At
/// the end, both the sum of the products and the scaled result exist.
void add_without_graph(BlockSpec& block, const std::vector<AdapterMemory>& adapters, bool magnitudes) {
  std::vector<MemoryMoment> moments;
  for (auto moment : block.moments_without_graph) {
    const std::vector<int64_t> shape = {moment.out_features, moment.in_features};
    const bool adapted = std::ranges::any_of(adapters, [&](const AdapterMemory& adapter) {
      return std::ranges::find(block.parameters, adapter.matrix, &ParameterSpec::name)->shape == shape;
    });
    auto added = moment;
    if (adapted) moment.compute_elements_per_token += static_cast<double>(adapters.front().rank);
    moments.push_back(moment);
    if (!adapted || !magnitudes) continue;
    const auto out = static_cast<double>(moment.out_features);
    added.compute_elements_per_token = moment.compute_elements_per_token + out;
    moments.push_back(added);
    added.compute_elements_per_token = moment.compute_elements_per_token - out;
    added.normed_rows = moment.out_features;
    added.normed_columns = moment.in_features;
    moments.push_back(added);
  }
  block.moments_without_graph = std::move(moments);
}

/// Declares the activations of a block's adapters.
void add_memory(BlockSpec& block, std::vector<AdapterMemory> adapters, bool magnitudes) {
  find_places(block, adapters);
  for (const auto& adapter : adapters) block.saved.compute_elements_per_token += adapter.saved;
  std::vector<MemoryMoment> moments;
  for (auto moment : block.backward_moments) {
    double beside = 0, released = 0;
    MemoryMoment multiplied{.arrived = moment.arrived};
    for (const auto& adapter : adapters) {
      if (moment.arrived >= adapter.end) continue;  // its backward has ended
      moment.compute_elements_per_token += adapter.saved;
      if (adapter.begin >= moment.arrived + moment.arriving) continue;
      beside = std::max(beside, adapter.beside);
      if (adapter.dropped > multiplied.compute_elements_per_token) {
        multiplied.compute_elements_per_token = adapter.dropped;
        multiplied.out_features = adapter.rank;  // the last product is with A
        multiplied.in_features = adapter.in;
      }
      released += adapter.saved;
    }
    if (multiplied.in_features > 0) {
      multiplied.compute_elements_per_token += moment.compute_elements_per_token;
      multiplied.mask_bytes_per_token = moment.mask_bytes_per_token;
      auto masked = multiplied;  // after the product
      masked.mask_bytes_per_token += static_cast<double>(masked.in_features);
      masked.out_features = masked.in_features = 0;
      moments.push_back(multiplied);
      moments.push_back(masked);
    }
    moment.compute_elements_per_token += beside;
    moment.released_per_token += released + beside;
    moments.push_back(moment);
  }
  block.backward_moments = std::move(moments);
  add_without_graph(block, adapters, magnitudes);
  if (magnitudes) add_norms(block, adapters);
}

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
  std::vector<AdapterMemory> memory;
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
    memory.push_back(adapter_memory(adapter, matrix));
  }
  const Elements elements(block.parameters, parameters);
  block.parameters = std::move(parameters);
  for (auto& moment : block.backward_moments) {
    const int64_t end = elements.after(moment.arrived + moment.arriving);
    moment.arrived = elements.after(moment.arrived);
    if (moment.arriving > 0) moment.arriving = end - moment.arrived;
  }
  add_memory(block, std::move(memory), adapter.magnitudes);
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
