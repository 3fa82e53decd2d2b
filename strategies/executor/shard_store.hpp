// All shards of a rank: their storage, the update of the copies that gathers send, and the gathers. The executor calls these
// functions, one for each instruction.
#pragma once
#include <optional>

#include "strategies/contract/optimizer.hpp"
#include "strategies/executor/bound_mesh.hpp"
#include "strategies/executor/shard.hpp"

namespace runner {

class ShardStore {
 public:
  /// Allocates the tensors of all units, with zeros as masters, and the file if some tier is NVMe. The unsharded buffer of a unit
  /// that is not resident is allocated at its first gather. `plan` and `mesh` must outlive this object.
  /// `states`: names of the optimizer's states, of which the file has one array each.
  ShardStore(const ParallelPlan& plan, const BoundMesh& mesh, const ModelSpec& model, torch::Device device,
             const std::vector<std::string>& states, const std::string& label);

  size_t size() const { return shards_.size(); }
  Shard& operator[](size_t u) { return shards_[u]; }
  /// This rank's shard in the unit's unsharded buffer.
  torch::Tensor own_part(const Shard& shard) const;
  /// The optimizer's arrays in the file, if its state is there.
  const std::optional<OptimizerSwap>& optimizer_swap() const { return swap_; }
  /// Masters are cast and written to the file in parts of this many elements.
  static constexpr int64_t piece = 1 << 20;
  /// Quantizes this rank's shard of a quantized unit, whose values `source` has.
  void quantize(size_t u, const ParameterSource& source);
  /// Writes `values` (fp32, in host memory) to a master in the file. `begin`: first element, relative to the unit's shard.
  void write_master(size_t u, int64_t begin, const torch::Tensor& values);

  // The functions below are collective, except start_read(), lacks() and release().

  /// Updates all copies that gathers send from the masters, and gathers resident units. `updated`: the optimizer has just made an
  /// update, so copies that it wrote itself are up to date.
  void spread(bool updated);
  /// Gathers the shards of a resident unit.
  void gather_resident(size_t u);

  /// Starts to read the unit's shard, if it is in the file and not gathered.
  void start_read(size_t u);
  /// Whether unit `u` is not gathered and no gather of it is in flight. False for u == size().
  bool lacks(size_t u) const;
  /// Starts a gather if lacks(u). The gather waits for all work queued on the calling thread's current stream, so it can use
  /// memory that was freed there. It overlaps with later work on that stream.
  void start_gather(size_t u);
  /// Ensures that the unit is gathered for later work on the current stream.
  void gather(size_t u);
  /// Frees the gathered copy, if there is one. Does nothing for resident units.
  void release(size_t u);

 private:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  void make_file(const std::vector<std::string>& states, const std::string& label);
  void make_tensors(size_t u);
  void make_quantized(size_t u, const ModelSpec& model);
  void start_gather_resident(const Shard& shard, Works& gathers);
  void cast_master(const Shard& shard, const torch::Tensor& target, bool updated);
  void write_sent(const Shard& shard);
  template <typename Body>
  void for_pieces(const Shard& shard, Body&& body);
  torch::Tensor as_sent(const Shard& shard, torch::Tensor from) const;
  torch::Tensor shard_to_send(size_t u);
  torch::Tensor dequantized(const Shard& shard) const;

  const ParallelPlan& plan_;
  const BoundMesh& mesh_;
  torch::Device device_;
  SideStream gathers_;  ///< prepares the shards to send, so that a gather does not wait for later computation
  std::vector<Shard> shards_;
  std::shared_ptr<SwappedArrays> file_;
  std::optional<OptimizerSwap> swap_;
  std::optional<size_t> master_array_, sent_array_;
};

}  // namespace runner
