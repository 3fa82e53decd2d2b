// The optimizer as strategies run it: fused updates over lists of local tensors, in groups of equal hyper-parameters.
// Updates are elementwise, so shards give the same bits as whole tensors.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/adam.hpp"
#include "strategies/contract/model_spec.hpp"
#include "strategies/offload/swapped_arrays.hpp"

namespace runner {

struct OptimizerConfig {
  enum class Kind { adamw, adam, sgd };
  Kind kind = Kind::adamw;
  double lr = 1e-3;  ///< where no group says otherwise; the schedule's factor multiplies this and theirs
  double weight_decay = 0.01;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double momentum = 0.0;
  bool nesterov = false;
  bool decay_norms_and_biases = false;
  struct Group {
    std::string pattern;  ///< glob over parameter names, first match wins
    std::optional<double> lr, weight_decay;
  };
  std::vector<Group> groups;

  /// Tensors of parameter size that are kept: Adam 2, momentum 1, plain SGD 0.
  int states() const { return kind == Kind::sgd ? (momentum != 0.0 ? 1 : 0) : 2; }
  std::vector<std::string> state_names() const;
};

/// What applies to a parameter. Comparable, so that equal ones share a fused call.
struct GroupSettings {
  double lr = 1e-3;
  double weight_decay = 0.0;
  auto operator<=>(const GroupSettings&) const = default;
};
/// 1-d parameters (norms, biases) get no decay unless the recipe says so; patterns come first.
GroupSettings group_of(const ParameterSpec& parameter, const OptimizerConfig& config);

/// `*` and `?` as in a shell, over the whole name.
bool glob_matches(const std::string& pattern, const std::string& text);

/// The optimizer's part of a rank's file on NVMe: arrays by index, and how many tiles of them may be in memory.
struct OptimizerSwap {
  std::shared_ptr<SwappedArrays> file;
  int buffers = 4;
  size_t exp_avg = 0, exp_avg_sq = 0;
  std::optional<size_t> parameter, copy;  ///< fp32 masters; what each update also writes, in `copy_dtype`
  DType copy_dtype = DType::float32;
};

class Optimizer {
 public:
  explicit Optimizer(OptimizerConfig config);

  /// Adds a local tensor (a parameter or a piece of one); returns its index. `copy`, if given, is of its shape in
  /// another dtype, and each update writes the new values there too. State is allocated at the first step.
  size_t add(const torch::Tensor& parameter, const GroupSettings& group, const torch::Tensor& copy = {});
  /// From now on state is in a file, and parameters are added with their place in it: Adam or AdamW of fp32 in host
  /// memory.
  void swap_to(OptimizerSwap swap) { swap_ = std::move(swap); }
  /// Elements [begin, begin + count) of the file's arrays. `parameter` and `copy` are undefined where the file has
  /// them. Ascending.
  size_t add_swapped(int64_t begin, int64_t count, const GroupSettings& group, const torch::Tensor& parameter,
                     const torch::Tensor& copy);
  /// One update. `gradients` has one tensor per added parameter, of its shape; in another dtype they are cast, at
  /// most `copied_elements` at a time if that is > 0, where no kernel of ours reads them as they are. They are divided
  /// by `gradient_divisor` on the way (loss scale and clipping in one pass). `lr_factor` multiplies every group's rate.
  void step(const std::vector<torch::Tensor>& gradients, double lr_factor, double gradient_divisor);

  /// What holds for all parameters in one update.
  struct Update {
    double lr_factor = 1, gradient_divisor = 1;
    int64_t step = 1;  ///< its number, from 1
  };
  /// The same in parts: counts the update and makes room for its state ...
  Update begin_step(double lr_factor, double gradient_divisor);
  /// ... and updates parameters [first, first + gradients.size()). Each once an update, in any order, from any one
  /// thread: it allocates no state and reads no counter. Not where state is in a file.
  void step_part(const Update& update, size_t first, const std::vector<torch::Tensor>& gradients);

  void set_copied_elements(int64_t elements) { copied_elements_ = elements; }

  /// State tensors of parameter `index`, in the order of config().state_names(); allocated (zero) if there are none
  /// yet. None where state is in a file.
  std::vector<torch::Tensor> state(size_t index);
  const std::optional<OptimizerSwap>& swap() const { return swap_; }
  /// Where parameter `index` begins in the file's arrays.
  int64_t swapped_at(size_t index) const { return slots_.at(index).begin; }
  int64_t steps() const { return steps_; }
  void set_steps(int64_t steps) { steps_ = steps; }
  const OptimizerConfig& config() const { return config_; }

 private:
  struct Slot {
    torch::Tensor parameter;
    torch::Tensor copy;
    std::vector<torch::Tensor> state;
    GroupSettings group = {};
    int64_t begin = 0, count = 0;  ///< in the file's arrays
  };
  void allocate(Slot& slot);
  /// Tensors that one fused call works on: [i] of each list belong together.
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
  /// Parameters of one group and one part, by index.
  using Members = std::span<const size_t>;
  void step_group(const Update& update, const GroupSettings& group, Members members, const Part& part);
  /// Adam of float32 parameters in host memory (adam.hpp).
  void step_on_host(const Update& update, const GroupSettings& group, Members members, const Part& part);
  /// Tile by tile through the file.
  void step_swapped(const Update& update, const std::vector<torch::Tensor>& gradients);
  AdamSettings settings_of(const Update& update, const GroupSettings& group) const;
  void step_batch(const Update& update, const GroupSettings& group, const Batch& batch);

  OptimizerConfig config_;
  std::optional<OptimizerSwap> swap_;
  std::vector<Slot> slots_;
  std::map<GroupSettings, std::vector<size_t>> groups_;
  int64_t steps_ = 0, copied_elements_ = 0;
};

}  // namespace runner
