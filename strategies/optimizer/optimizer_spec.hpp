// The family of optimizers: what recipes, the planner and the executor must know of each. Torch-free.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace runner {

/// Elements of a parameter that share one scale, if an optimizer keeps states in 8 bits.
constexpr int64_t state_block = 256;

/// A state tensor that an optimizer keeps for a parameter: name, shape and bytes.
struct OptimizerState {
  std::string name;  ///< in checkpoints: optimizer/NAME/PARAMETER
  /// The part of a parameter for which the state has one value.
  enum class Extent { element, block, row, column };
  Extent extent = Extent::element;
  enum class Type { master, float32, code };  ///< the dtype of the masters, float32, or 8-bit codes
  Type type = Type::master;
  bool starts_as_parameter = false;  ///< the first value is the parameter's; otherwise 0

  /// Whether ranks that have any part of the parameter have the whole state.
  bool whole() const { return extent == Extent::row || extent == Extent::column; }
  /// Shape of the state of a parameter with this shape.
  std::vector<int64_t> shape(const std::vector<int64_t>& parameter) const {
    if (extent == Extent::row) return {parameter.front()};
    if (extent == Extent::column) return {parameter.back()};
    if (extent == Extent::element) return parameter;
    int64_t elements = 1;
    for (int64_t size : parameter) elements *= size;
    return {(elements + state_block - 1) / state_block};
  }
  /// Values for `count` elements of the parameter. If there is a scale for each block, the first of them begins a block.
  int64_t values(int64_t count, const std::vector<int64_t>& parameter) const {
    if (extent == Extent::element) return count;
    return extent == Extent::block ? (count + state_block - 1) / state_block : shape(parameter).front();
  }
  int64_t bytes_each(int64_t master_bytes) const {
    return type == Type::master ? master_bytes : type == Type::float32 ? 4 : 1;
  }
};

enum class OptimizerKind { adamw, adam, sgd, lion, adamw_8bit, adafactor, schedule_free_adamw, muon };

/// Updates of an element that depend on nothing but its gradient and its states.
enum class UpdateRule {
  none,
  adam,          ///< states: exp_avg, exp_avg_sq
  lion,          ///< state: exp_avg
  schedule_free  ///< states: z, exp_avg_sq; the parameter is the point y at which gradients are computed
};

struct OptimizerSpec {
  /// The part of a parameter that the update of an element depends on, apart from the element's own gradient and state.
  enum class Reach { element, block, matrix };
  /// The states of a parameter. `of_layer`: it is in a transformer layer.
  using StatesOf = std::vector<OptimizerState> (*)(const std::vector<int64_t>& shape, bool of_layer);

  OptimizerKind kind;
  std::string name;                         ///< optimizer.name in recipes
  std::vector<std::string> keys;            ///< the keys of [optimizer] that not every optimizer reads
  std::vector<std::string> states;          ///< the names of its state tensors
  bool states_need_momentum = false;        ///< without momentum it keeps no state
  bool decays_apart_from_gradient = false;  ///< weight decay shrinks the weights directly (AdamW)
  bool has_fused_kernel = false;            ///< of LibTorch, for any device and dtype of masters
  /// The elementwise rule. With it, the update of fp32 masters in host memory reads gradients of any dtype without a copy
  /// (contract/host_update.hpp), and updates state that is in a file.
  UpdateRule rule = UpdateRule::none;
  std::array<double, 2> betas = {0.9, 0.999};  ///< the defaults of keys
  double momentum = 0;
  bool nesterov = false;
  /// Wide copies of the updated elements that an update by LibTorch's operators needs (contract/tensor_update.hpp).
  int operator_copies = 4;
  double passes = 1;  ///< memory that an update reads and writes, relative to adamw's
  /// The weights to evaluate and to export are an average that follows from the parameter and the state z.
  bool averages = false;
  Reach reach = Reach::element;
  /// Whether the update of a parameter reaches over all of it (contract/matrix_update.hpp). Null: never.
  bool (*needs_matrix)(const std::vector<int64_t>& shape, bool of_layer) = nullptr;
  StatesOf states_of = nullptr;  ///< null: each parameter has all states, in its shape and the dtype of the masters

  bool has_host_kernel() const { return rule != UpdateRule::none; }
  /// The file of an offloaded optimizer has one array of zeros for each state.
  bool states_can_be_in_file() const { return has_host_kernel() && !states_of; }
  /// Names in checkpoints. A parameter has these states, or some of them (states_for()).
  std::vector<std::string> state_names(double momentum) const {
    return states_need_momentum && momentum == 0.0 ? std::vector<std::string>() : states;
  }
  /// The states of a parameter. `kept` is false if the optimizer keeps none (state_names() is empty).
  std::vector<OptimizerState> states_for(const std::vector<int64_t>& shape, bool of_layer, bool kept = true) const {
    if (kept && states_of) return states_of(shape, of_layer);
    std::vector<OptimizerState> list;
    if (kept)
      for (const auto& state : states) list.push_back({.name = state});
    return list;
  }
};

/// bitsandbytes, too, keeps the states of smaller parameters in 32 bits (min_8bit_size).
inline std::vector<OptimizerState> states_in_8_bits(const std::vector<int64_t>& shape, bool) {
  constexpr int64_t smallest = 4096;
  using State = OptimizerState;
  int64_t elements = 1;
  for (int64_t size : shape) elements *= size;
  if (elements < smallest) return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
  return {{.name = "exp_avg", .type = State::Type::code},
          {.name = "exp_avg_sq", .type = State::Type::code},
          {.name = "exp_avg_scale", .extent = State::Extent::block, .type = State::Type::float32},
          {.name = "exp_avg_sq_scale", .extent = State::Extent::block, .type = State::Type::float32}};
}

inline std::vector<OptimizerState> factored_states(const std::vector<int64_t>& shape, bool) {
  using State = OptimizerState;
  if (shape.size() != 2) return {{.name = "exp_avg_sq", .type = State::Type::float32}};
  return {{.name = "exp_avg_sq_row", .extent = State::Extent::row, .type = State::Type::float32},
          {.name = "exp_avg_sq_column", .extent = State::Extent::column, .type = State::Type::float32}};
}

/// Values that adafactor sums over the ranks for a sharded parameter: of rows, of columns, of the parameter's squares, and of the update's.
inline int64_t adafactor_sums(const std::vector<int64_t>& shape) {
  return (shape.size() == 2 ? shape[0] + shape[1] : 0) + 2;
}

inline std::vector<OptimizerState> schedule_free_states(const std::vector<int64_t>&, bool) {
  return {{.name = "z", .starts_as_parameter = true}, {.name = "exp_avg_sq"}};
}

inline bool is_hidden_matrix(const std::vector<int64_t>& shape, bool of_layer) { return of_layer && shape.size() == 2; }

inline std::vector<OptimizerState> muon_states(const std::vector<int64_t>& shape, bool of_layer) {
  if (is_hidden_matrix(shape, of_layer)) return {{.name = "momentum_buffer"}};
  return {{.name = "exp_avg"}, {.name = "exp_avg_sq"}};
}

/// The optimizers are in the order in which messages list them.
inline const std::vector<OptimizerSpec>& optimizers() {
  static const std::vector<OptimizerSpec> list = {
      {.kind = OptimizerKind::adamw,
       .name = "adamw",
       .keys = {"betas", "eps"},
       .states = {"exp_avg", "exp_avg_sq"},
       .decays_apart_from_gradient = true,
       .has_fused_kernel = true,
       .rule = UpdateRule::adam},
      {.kind = OptimizerKind::adam,
       .name = "adam",
       .keys = {"betas", "eps"},
       .states = {"exp_avg", "exp_avg_sq"},
       .has_fused_kernel = true,
       .rule = UpdateRule::adam},
      {.kind = OptimizerKind::sgd,
       .name = "sgd",
       .keys = {"momentum", "nesterov"},
       .states = {"momentum_buffer"},
       .states_need_momentum = true,
       .has_fused_kernel = true},
      {.kind = OptimizerKind::lion,
       .name = "lion",
       .keys = {"betas"},
       .states = {"exp_avg"},
       .decays_apart_from_gradient = true,
       .rule = UpdateRule::lion,
       .betas = {0.9, 0.99}},
      {.kind = OptimizerKind::adamw_8bit,
       .name = "adamw_8bit",
       .keys = {"betas", "eps"},
       .states = {"exp_avg", "exp_avg_sq", "exp_avg_scale", "exp_avg_sq_scale"},
       .decays_apart_from_gradient = true,
       .has_fused_kernel = true,
       .rule = UpdateRule::adam,
       .operator_copies = 9,
       .reach = OptimizerSpec::Reach::block,
       .states_of = states_in_8_bits},
      {.kind = OptimizerKind::adafactor,
       .name = "adafactor",
       .keys = {"decay_rate", "clip_threshold", "scale_parameter"},
       .states = {"exp_avg_sq_row", "exp_avg_sq_column", "exp_avg_sq"},
       .decays_apart_from_gradient = true,
       .passes = 4,
       .reach = OptimizerSpec::Reach::matrix,
       .needs_matrix = [](const std::vector<int64_t>&, bool) { return true; },
       .states_of = factored_states},
      {.kind = OptimizerKind::schedule_free_adamw,
       .name = "schedule_free_adamw",
       .keys = {"betas", "eps"},
       .states = {"z", "exp_avg_sq"},
       .rule = UpdateRule::schedule_free,
       .operator_copies = 5,
       .averages = true,
       .states_of = schedule_free_states},
      {.kind = OptimizerKind::muon,
       .name = "muon",
       .keys = {"momentum", "nesterov", "ns_steps", "adjust_lr", "betas", "eps"},
       .states = {"momentum_buffer", "exp_avg", "exp_avg_sq"},
       .decays_apart_from_gradient = true,
       .has_fused_kernel = true,
       .rule = UpdateRule::adam,
       .momentum = 0.95,
       .nesterov = true,
       .passes = 2,
       .reach = OptimizerSpec::Reach::matrix,
       .needs_matrix = is_hidden_matrix,
       .states_of = muon_states},
  };
  return list;
}

inline const OptimizerSpec& optimizer_spec(OptimizerKind kind) {
  for (const auto& spec : optimizers())
    if (spec.kind == kind) return spec;
  return optimizers().front();
}

/// nullptr if there is no optimizer of this name.
inline const OptimizerSpec* find_optimizer(const std::string& name) {
  for (const auto& spec : optimizers())
    if (spec.name == name) return &spec;
  return nullptr;
}

/// The names of the optimizers for which `has` is true.
template <typename Has>
std::vector<std::string> optimizer_names(Has&& has) {
  std::vector<std::string> names;
  for (const auto& spec : optimizers())
    if (has(spec)) names.push_back(spec.name);
  return names;
}

}  // namespace runner
