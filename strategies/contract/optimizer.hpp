// The optimizer of strategies: fused updates over lists of local tensors, in groups of equal hyper-parameters.
// Updates are elementwise, so sharded and unsharded tensors get the same bits.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/adascale.hpp"
#include "strategies/contract/host_update.hpp"
#include "strategies/contract/model_spec.hpp"
#include "strategies/offload/swapped_arrays.hpp"
#include "strategies/optimizer/optimizer_spec.hpp"

namespace runner {

struct OptimizerConfig {
  using Kind = OptimizerKind;
  Kind kind = Kind::adamw;
  double lr = 1e-3;  ///< of parameters without a rate from a group; the schedule multiplies all rates
  double weight_decay = 0.01;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double momentum = 0.0;
  bool nesterov = false;
  bool decay_norms_and_biases = false;
  double decay_rate = 0.8, clip_threshold = 1;   ///< adafactor
  bool scale_parameter = false;                  ///< adafactor
  bool match_rms = true;                         ///< muon: lr has the scale of AdamW's
  int64_t ns_steps = 5;                          ///< muon
  std::optional<AdaScaleOptions> adascale = {};  ///< multiplies the rates of each update
  /// qadam: updates up to this one are a warm-up with gradients, and the last of them changes no moment. Later updates are given the first
  /// moment instead of gradients, and keep the second. Nullopt: plain Adam.
  std::optional<int64_t> qadam_warmup = {};
  struct Group {
    std::string pattern;  ///< glob over parameter names; the first match is used
    std::optional<double> lr, weight_decay;
    double lr_factor = 1;    ///< of the rate that the parameter has without the group; not of `lr`
    std::string label = "";  ///< for logs; empty: the pattern
    size_t optimizer = 0;    ///< the n-th of `others`, or this one
  };
  std::vector<Group> groups = {};
  double layer_decay =
      1;  ///< rate of a layer, relative to that of the layer above it (BEiT, arXiv:2106.08254, appendix)

  std::vector<OptimizerConfig> others = {};  ///< the optimizers of groups
  const OptimizerConfig& at(size_t number) const { return number == 0 ? *this : others.at(number - 1); }
  size_t count() const { return 1 + others.size(); }

  const OptimizerSpec& spec() const { return optimizer_spec(kind); }
  /// The state tensors of a parameter, and their number.
  std::vector<std::string> state_names() const { return spec().state_names(momentum); }
  int states() const { return static_cast<int>(state_names().size()); }
};

/// The settings of one parameter. Parameters with equal settings share a fused call.
struct GroupSettings {
  double lr = 1e-3;
  double weight_decay = 0.0;
  size_t optimizer = 0;  ///< OptimizerConfig::at()
  auto operator<=>(const GroupSettings&) const = default;
};
/// The first group that matches; nullptr if there is none.
const OptimizerConfig::Group* matching_group(const ParameterSpec& parameter, const OptimizerConfig& config);
/// Values of the first matching group come first. Other 1-d parameters (norms, biases) get no decay unless
/// decay_norms_and_biases.
GroupSettings group_of(const ParameterSpec& parameter, const OptimizerConfig& config);
/// The rates of the trained parameters by group, for logs. Groups without a rate of their own are left out. With layer_decay, there is
/// one rate for each layer ("blocks.0"), and for each group and layer ("*norm* in blocks.0").
std::map<std::string, double> rates_by_group(const ModelSpec& model, const OptimizerConfig& config);

/// The optimizer's arrays in a rank's file on NVMe, by index, and the number of tiles in memory.
struct OptimizerSwap {
  std::shared_ptr<SwappedArrays> file;
  int buffers = 4;
  std::vector<size_t> states;             ///< in the order of OptimizerConfig::state_names()
  std::optional<size_t> parameter, copy;  ///< fp32 masters; a copy in `copy_dtype` that each update also writes
  DType copy_dtype = DType::float32;
};

/// A parameter that is sharded, for updates that need all of it. All ranks that share a copy list the same ones, in the same order.
struct SharedParameter {
  std::vector<int64_t> shape;
  bool of_layer = true;
  size_t optimizer = 0;              ///< GroupSettings::optimizer
  std::optional<size_t> index = {};  ///< of this rank's part; nullopt: it has none
};

/// The ranks that share a copy of the parameters, and the collectives of updates over whole parameters. Each changes its tensor in place.
struct ShardGroup {
  using Collective = std::function<void(torch::Tensor& values)>;
  using WithRoot = std::function<void(torch::Tensor& values, int root)>;
  int rank = 0, size = 1;
  torch::ScalarType sums = torch::kFloat32;  ///< dtype of the values that `sum` gets, also of a rank without a part
  Collective sum = {};                       ///< over the ranks
  WithRoot sum_at = {};     ///< the sum on rank `root`; on other ranks the values are undefined afterwards
  WithRoot send_from = {};  ///< the values of rank `root` to all others
};

/// The parameter that a local tensor is a part of.
struct PartOf {
  std::vector<int64_t> shape = {};  ///< of the whole parameter; empty: the tensor is the whole
  bool of_layer = true;             ///< the parameter is in a transformer layer
  int64_t offset = 0;               ///< of the tensor's first element
};

class Optimizer {
 public:
  explicit Optimizer(OptimizerConfig config);

  /// Adds a local tensor (a parameter or a part of one) and returns its index. `copy` (optional) has the same shape and
  /// another dtype; each update also writes the new values to it. State is allocated at the first step.
  size_t add(const torch::Tensor& parameter, const GroupSettings& group, const torch::Tensor& copy = {},
             PartOf part = {});
  /// Keeps the state in a file. Parameters must then be added by add_swapped(). Only for rules with
  /// a kernel (host_update.hpp), with fp32 in host memory.
  void swap_to(OptimizerSwap swap) { swap_ = std::move(swap); }
  /// Adds elements [begin, begin + count) of the file's arrays, in ascending order. `parameter` and `copy` are
  /// undefined if they are in the file.
  size_t add_swapped(int64_t begin, int64_t count, const GroupSettings& group, const torch::Tensor& parameter,
                     const torch::Tensor& copy);
  /// One update. `gradients` has one tensor for each added parameter, of the same shape. Gradients of another dtype are
  /// cast, at most `copied_elements` at a time if that is > 0, except if the kernel in host_update.hpp reads them directly.
  /// Gradients are divided by `gradient_divisor` (loss scale and clipping in one pass). `lr_factor` multiplies every
  /// group's rate.
  void step(const std::vector<torch::Tensor>& gradients, double lr_factor, double gradient_divisor);

  /// Settings of one update that all parameters share.
  struct Update {
    double lr_factor = 1, gradient_divisor = 1;
    int64_t step = 1;          ///< number of the update, from 1
    double average_share = 0;  ///< of this update in the average
  };
  /// begin_step() and step_part() together do the work of step(). begin_step() counts the update and allocates missing
  /// state.
  Update begin_step(double lr_factor, double gradient_divisor);
  /// Updates parameters [first, first + gradients.size()). Call it once for each parameter, in any order, on any
  /// thread, but not on two at once. It allocates no state and reads no counter. Not allowed if the state is in a file.
  void step_part(const Update& update, size_t first, const std::vector<torch::Tensor>& gradients);

  /// For optimizers whose updates reach over a whole matrix. Then only complete updates are allowed, not step_part() of some
  /// parameters.
  void share(std::vector<SharedParameter> shared, ShardGroup group);

  /// For optimizers that average (OptimizerSpec::averages): the average of parameter `index`, in a new tensor.
  torch::Tensor average(size_t index);
  /// The values that an average depends on besides tensors: the sum of the weights of all updates, and the largest factor on the rate.
  struct AverageState {
    double weight_sum = 0, largest_factor = 0;
  };
  const AverageState& average_state() const { return average_; }
  void set_average_state(const AverageState& state) { average_ = state; }

  void set_copied_elements(int64_t elements) { copied_elements_ = elements; }

  /// The states that the optimizer keeps for parameter `index`.
  const std::vector<OptimizerState>& states_of(size_t index) const { return slots_.at(index).states; }
  /// The tensors of states_of(index), 1-d. Allocates them if they do not exist yet. Empty if they are in a file.
  std::vector<torch::Tensor> state(size_t index);
  const std::optional<OptimizerSwap>& swap() const { return swap_; }
  /// First element of parameter `index` in the file's arrays.
  int64_t swapped_at(size_t index) const { return slots_.at(index).begin; }
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  const OptimizerConfig& config() const { return config_; }
  /// Whether OptimizerSpec::needs_matrix is set for an optimizer.
  bool needs_matrix() const;

 private:
  struct Slot {
    torch::Tensor parameter;
    torch::Tensor copy;
    std::vector<torch::Tensor> state = {};
    GroupSettings group = {};
    PartOf part = {};
    std::vector<OptimizerState> states = {};
    int64_t begin = 0, count = 0;  ///< in the file's arrays
  };
  void allocate(Slot& slot);
  /// Arguments of one fused call: element i of each list is of the same parameter.
  struct Batch {
    std::vector<torch::Tensor> parameters, gradients, first, second;
    int64_t elements = 0;
  };
  /// Gradients of consecutive parameters.
  struct Part {
    size_t first;
    const std::vector<torch::Tensor>& gradients;
    const torch::Tensor& gradient(size_t index) const { return gradients[index - first]; }
  };
  /// Indices of the parameters of one group in one part.
  using Members = std::span<const size_t>;
  void step_group(const Update& update, const GroupSettings& group, Members members, const Part& part);
  /// For float32 parameters in host memory (host_update.hpp).
  void step_on_host(const Update& update, const GroupSettings& group, Members members, const Part& part);
  /// By LibTorch's operators (tensor_update.hpp).
  void step_by_operators(const Update& update, const GroupSettings& group, Members members, const Part& part);
  /// Streams the file's arrays through memory, tile by tile.
  void step_swapped(const Update& update, const std::vector<torch::Tensor>& gradients);
  Moments moments_at(int64_t step) const;
  UpdateSettings settings_of(const Update& update, const GroupSettings& group) const;
  void step_batch(const Update& update, const GroupSettings& group, const Batch& batch);
  /// How a parameter is updated.
  enum class Path { host, blocks, fused, operators, matrix };
  Path path_of(const Slot& slot) const;
  void step_blocks(const Update& update, const GroupSettings& group, Members members, const Part& part);
  /// Updates the matrices of the optimizer `number`.
  void step_matrices(const Update& update, const Part& part, size_t number);

  OptimizerConfig config_;
  std::optional<OptimizerSwap> swap_;
  std::vector<Slot> slots_;
  std::map<GroupSettings, std::vector<size_t>> groups_;
  std::vector<SharedParameter> shared_;
  ShardGroup shard_group_;
  AverageState average_;
  int64_t steps_ = 0, copied_elements_ = 0;
};

}  // namespace runner
