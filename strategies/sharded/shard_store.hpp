// All shards of a rank: where they wait, how new values get from the masters to what gathers send, and the gathers.
// When which of this happens is the strategy's business (strategy.cpp).
#pragma once
#include <optional>

#include "strategies/contract/optimizer.hpp"
#include "strategies/sharded/groups.hpp"
#include "strategies/sharded/shard.hpp"

namespace runner {

class ShardStore {
 public:
  /// Makes every unit's tensors, masters zero, and the file where some tier is NVMe. Of a unit that is not resident no
  /// whole copy is allocated before its first gather. `plan` and `groups` outlive it.
  /// `master`: dtype of what the optimizer works on.
  ShardStore(const ShardPlan& plan, const ShardGroups& groups, const ModelSpec& model, DType master,
             torch::Device device, const std::string& label);

  size_t size() const { return shards_.size(); }
  Shard& operator[](size_t u) { return shards_[u]; }
  /// Blocks see gathered copies, not the shards themselves.
  bool has_own_copy() const { return own_copy_; }
  /// This rank's shard in the unit's whole buffer.
  torch::Tensor own_part(const Shard& shard) const;
  /// The optimizer's part of the file, if its state is there.
  const std::optional<OptimizerSwap>& optimizer_swap() const { return swap_; }
  /// Elements of a master that pass through memory at once.
  static constexpr int64_t piece = 1 << 20;
  /// Writes `values`, fp32 in host memory, to a master that is in the file, from element `begin` of the unit's shard
  /// on.
  void write_master(size_t u, int64_t begin, const torch::Tensor& values);

  /// New values go from the masters to what gathers send, and from resident units to all ranks. `updated`: the
  /// optimizer made them just now. Collective, as everything below is but read_ahead() and release().
  void spread(bool updated);
  void gather_resident(size_t u);

  /// Shards that come from the file are on their way to memory, as many as there are buffers beside the one in use.
  void read_ahead(const std::vector<size_t>& units);
  /// Whether `u` is a unit that is neither gathered nor on its way.
  bool lacks(size_t u) const;
  /// Does nothing for a unit that is not lacking. The gather runs beside what the calling thread's current stream does
  /// after this call, and begins when what it has done before has ended: then memory freed there is free.
  void start_gather(size_t u);
  void gather(size_t u);
  void release(size_t u);

 private:
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  void make_file(DType master, const std::string& label);
  void make_tensors(size_t u, DType master);
  void start_gather_resident(const Shard& shard, Works& gathers);
  void cast_master(const Shard& shard, const torch::Tensor& target, bool updated);
  void write_sent(const Shard& shard);
  template <typename Body>
  void for_pieces(const Shard& shard, Body&& body);
  void start_read(size_t u);
  torch::Tensor as_sent(const Shard& shard, torch::Tensor from) const;
  torch::Tensor shard_to_send(size_t u);

  const ShardPlan& plan_;
  const ShardGroups& groups_;
  torch::Device device_;
  bool own_copy_;
  SideStream gathers_;  ///< what gathers need before their collective, so that it waits for no later computation
  std::vector<Shard> shards_;
  std::shared_ptr<SwappedArrays> file_;
  std::optional<OptimizerSwap> swap_;
  std::optional<size_t> master_array_, sent_array_;
};

}  // namespace runner
