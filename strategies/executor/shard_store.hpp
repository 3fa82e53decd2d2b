// All shards of a rank: their storage, the update of the copies that gathers send, and the gathers. The executor calls these
// functions, one for each instruction.
#pragma once
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runner/base/error.hpp"
#include "strategies/collective/libtorch.hpp"
#include "strategies/contract/dtype.hpp"
#include "strategies/contract/optimizer.hpp"
#include "strategies/contract/transfers.hpp"
#include "strategies/executor/bound_mesh.hpp"
#include "strategies/executor/quantized_shard.hpp"
#include "strategies/offload/swapped_arrays.hpp"
#include "strategies/program/parallel_plan.hpp"

namespace runner {

/// A unit of a plan on one rank: its shard and its gathered buffer, whose storage is allocated and freed while its views stay valid.
struct Shard {
  FlatLayout layout;
  int64_t first = 0;  ///< first element of this rank's shard in the layout
  ShardPlaces places;
  torch::Tensor local;  ///< master: [layout.shard], master dtype, where the update runs; may be a view of `full` in a
                        ///< resident unit; undefined if it is in the file
  torch::Tensor
      sent;  ///< [layout.shard], gathered dtype: what gathers send, if it is a separate tensor in memory; of a
             ///< quantized unit: bytes
  std::optional<QuantizedShard> quantized;  ///< converts `sent`
  torch::Tensor written;                 ///< [layout.shard], gathered dtype: the update also writes its new values here
  int64_t begin = 0;                     ///< first element of the shard in the file's arrays
  std::unique_ptr<SwappedRead> reading;  ///< a read of the shard from the file, started in advance
  torch::Tensor full;                    ///< [layout.total], gathered dtype; storage empty unless gathered
  bool gathered = false;
  torch::Tensor incoming;  ///< buffer of a gather in flight
  c10::intrusive_ptr<c10d::Work> gather;
  StreamMark copied;  ///< end of a gather that needs no collective
};

/// Frees the memory of a tensor and of all its views. The tensor objects stay valid.
inline void empty_storage(const torch::Tensor& tensor) {
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(at::DataPtr(nullptr, tensor.device()));
  storage->set_nbytes(0);
}

/// A 1-d tensor with `elements` elements and no memory. Views of it can be made; hand_over() gives it memory.
inline torch::Tensor without_memory(int64_t elements, const torch::TensorOptions& options) {
  auto tensor = torch::empty({0}, options);
  auto bytes = static_cast<size_t>(elements) * tensor.element_size();
  c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, at::DataPtr(nullptr, tensor.device()),
                       /*allocator=*/nullptr, /*resizable=*/false);
  return tensor.set_(storage, 0, {elements});
}

/// Moves the memory of `from` to the storage of `to` and of all its views. Does not change version counters.
inline void hand_over(const torch::Tensor& from, const torch::Tensor& to) {
  auto* source = from.storage().unsafeGetStorageImpl();
  auto* target = to.storage().unsafeGetStorageImpl();
  target->set_nbytes(source->nbytes());
  target->set_data_ptr_noswap(source->set_data_ptr(at::DataPtr(nullptr, from.device())));
  source->set_nbytes(0);
}

class ShardStore {
 public:
  /// Allocates the tensors of all units, with zeros as masters, and the file if some tier is NVMe. The unsharded buffer of a unit
  /// that is not resident is allocated at its first gather. `plan` and `mesh` must outlive this object.
  /// `states`: names of the optimizer's states, of which the file has one array each.
  ShardStore(const ParallelPlan& plan, const BoundMesh& mesh, const ModelSpec& model, torch::Device device,
             const std::vector<std::string>& states, const std::string& label)
      : plan_(plan), mesh_(mesh), device_(device), gathers_(device), shards_(plan.units.size()) {
    for (size_t u = 0; u < shards_.size(); ++u) {
      shards_[u].layout = layout_of(model, plan_, plan_.units[u]);
      shards_[u].first = plan_.units[u].replicated ? 0 : mesh_.coordinate(Axis::shard) * shards_[u].layout.shard;
      shards_[u].places = plan_.places(plan_.units[u]);
    }
    make_file(states, label);
    for (size_t u = 0; u < shards_.size(); ++u) plan_.units[u].quantized ? make_quantized(u, model) : make_tensors(u);
  }

  size_t size() const { return shards_.size(); }
  Shard& operator[](size_t u) { return shards_[u]; }
  /// This rank's shard in the unit's unsharded buffer.
  torch::Tensor own_part(const Shard& shard) const { return shard.full.narrow(0, shard.first, shard.layout.shard); }

  /// The optimizer's arrays in the file, if its state is there.
  const std::optional<OptimizerSwap>& optimizer_swap() const { return swap_; }
  /// Masters are cast and written to the file in parts of this many elements.
  static constexpr int64_t piece = 1 << 20;
  /// Quantizes this rank's shard of a quantized unit, whose values `source` has.
  void quantize(size_t u, const ParameterSource& source) {
    Shard& shard = shards_[u];
    if (shard.sent.is_cpu()) return shard.quantized->fill(source, shard.first, shard.sent);
    const auto packed = torch::zeros({shard.sent.numel()}, torch::kUInt8);
    shard.quantized->fill(source, shard.first, packed);
    shard.sent.copy_(packed);
  }

  /// Writes `values` (fp32, in host memory) to a master in the file. `begin`: first element, relative to the unit's shard.
  void write_master(size_t u, int64_t begin, const torch::Tensor& values) {
    file_->write(*master_array_, shards_[u].begin + begin, values.numel(), values.data_ptr());
  }

  // The functions below are collective, except start_read(), lacks() and release().

  /// Updates all copies that gathers send from the masters, and gathers resident units. `updated`: the optimizer has just made an
  /// update, so copies that it wrote itself are up to date.
  void spread(bool updated) {
    torch::NoGradGuard no_grad;
    Works gathers;
    for (size_t u = 0; u < shards_.size(); ++u) {
      Shard& shard = shards_[u];
      if (shard.places.sent == Sent::shared || shard.places.sent == Sent::packed) continue;
      if (updated && plan_.units[u].frozen) continue;
      RUNNER_CHECK(!shard.reading, "a shard was read ahead and not used");
      if (shard.places.sent == Sent::file) {
        if (sent_array_ != master_array_ && (!updated || shard.local.defined())) write_sent(shard);
      } else if (plan_.units[u].resident || shard.sent.defined()) {
        cast_master(shard, plan_.units[u].resident ? own_part(shard) : shard.sent, updated);
      }
      if (plan_.units[u].resident && shard.layout.shard < shard.layout.total) start_gather_resident(shard, gathers);
    }
    for (auto& gather : gathers) gather->wait();
  }

  /// Gathers the shards of a resident unit.
  void gather_resident(size_t u) {
    if (shards_[u].layout.shard == shards_[u].layout.total) return;
    torch::NoGradGuard no_grad;
    Works gathers;
    start_gather_resident(shards_[u], gathers);
    for (auto& gather : gathers) gather->wait();
  }

  /// Starts to read the unit's shard, if it is in the file and not gathered.
  void start_read(size_t u) {
    Shard& shard = shards_[u];
    if (shard.places.sent != Sent::file || !lacks(u) || shard.reading) return;
    shard.reading = std::make_unique<SwappedRead>(file_, *sent_array_, shard.begin, shard.layout.shard);
  }

  /// Whether unit `u` is not gathered and no gather of it is in flight. False for u == size().
  bool lacks(size_t u) const { return u < shards_.size() && !shards_[u].gathered && !shards_[u].incoming.defined(); }

  /// Starts a gather if lacks(u). The gather waits for all work queued on the calling thread's current stream, so it can use
  /// memory that was freed there. It overlaps with later work on that stream.
  void start_gather(size_t u) {
    if (!lacks(u)) return;
    Shard& shard = shards_[u];
    torch::NoGradGuard no_grad;
    start_read(u);  // must come before `incoming` is set, because lacks(u) is false afterwards
    // The buffer is allocated on the compute stream, which also frees it. The shard to send is allocated on the side
    // stream.
    const bool packed = shard.places.sent == Sent::packed, sharded = is_sharded(plan_, plan_.units[u]);
    if (sharded)
      shard.incoming = packed
                           ? torch::empty({plan_.shards() * shard.sent.numel()}, shard.sent.options().device(device_))
                           : torch::empty({shard.layout.total}, shard.full.options());
    auto beside = gathers_.enter();
    auto mine = shard_to_send(u);
    if (sharded) {
      shard.gather = mesh_.group(Axis::shard)._allgather_base(shard.incoming, mine);
    } else {
      const bool kept = !packed && (mine.is_same(shard.local) || mine.is_same(shard.sent));
      shard.incoming = kept ? mine.clone() : mine;
      shard.copied = gathers_.now();
    }
  }

  /// Ensures that the unit is gathered for later work on the current stream.
  void gather(size_t u) {
    if (u >= shards_.size() || shards_[u].gathered) return;
    Shard& shard = shards_[u];
    start_gather(u);
    if (shard.gather) shard.gather->wait();
    shard.gather.reset();
    std::exchange(shard.copied, {}).wait_on_device();
    if (shard.quantized) {
      torch::NoGradGuard no_grad;
      shard.incoming = shard.quantized->values(shard.incoming, shard.full.scalar_type());
    }
    hand_over(shard.incoming, shard.full);
    shard.incoming.reset();
    shard.gathered = true;
  }

  /// Frees the gathered copy, if there is one. Does nothing for resident units.
  void release(size_t u) {
    if (u >= shards_.size() || !shards_[u].gathered) return;
    if (shards_[u].places.sent == Sent::shared || plan_.units[u].resident) return;
    empty_storage(shards_[u].full);
    shards_[u].gathered = false;
  }

 private:
  using Master = ShardPlaces::Master;
  using Sent = ShardPlaces::Sent;
  using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

  /// Creates this rank's file and assigns the units' shards to ranges of its arrays, if some tier is NVMe.
  void make_file(const std::vector<std::string>& states, const std::string& label) {
    auto use = plan_.swap_use();
    if (!use.any()) return;
    int64_t elements = 0;
    for (auto& shard : shards_) {
      shard.begin = elements;
      elements += SwappedArrays::whole_units(shard.layout.shard);  // asynchronous reads begin at multiples of tile_unit
    }
    std::vector<SwappedArrays::Array> arrays;
    auto add = [&](const std::string& name, int64_t bytes) {
      arrays.push_back({name, static_cast<int>(bytes)});
      return arrays.size() - 1;
    };
    OptimizerSwap swap;
    swap.buffers = plan_.swap.update_buffers;
    if (use.state)
      for (const auto& state : states) swap.states.push_back(add(state, bytes_of(DType::float32)));
    if (use.master) swap.parameter = add("parameter", bytes_of(DType::float32));
    if (use.sent) swap.copy = add("sent", bytes_of(plan_.parameter));
    swap.copy_dtype = plan_.parameter;
    SwapOptions options{.folder = plan_.swap.folder,
                        .block_size = plan_.swap.block_size,
                        .queue_depth = plan_.swap.queue_depth,
                        .thread_count = plan_.swap.threads,
                        .label = label};
    swap.file = file_ = std::make_shared<SwappedArrays>(options, arrays, elements, plan_.swap.tile);
    master_array_ = swap.parameter;
    sent_array_ = swap.copy ? swap.copy : swap.parameter;
    if (use.state) swap_ = swap;
  }

  void make_tensors(size_t u) {
    Shard& shard = shards_[u];
    const Unit& unit = plan_.units[u];
    bool on_device = shard.places.sent == Sent::whole || unit.tier == Tier::device;
    bool pinned = plan_.pin_memory;
    torch::Device host = plan_.optimizer != Tier::device ? torch::Device(torch::kCPU) : device_;
    auto kept = torch::dtype(scalar_type(plan_.master)).device(host);
    auto used = torch::dtype(scalar_type(plan_.parameter)).device(device_);
    auto beside = used.device(torch::kCPU).pinned_memory(pinned);
    if (host.is_cpu()) kept = kept.pinned_memory(pinned);
    shard.gathered = unit.resident || shard.places.sent == Sent::shared;
    if (shard.places.sent == Sent::shared) {
      shard.full = shard.local = torch::zeros({shard.layout.shard}, kept);
      return;
    }
    shard.full = unit.resident ? torch::zeros({shard.layout.total}, used) : without_memory(shard.layout.total, used);
    if (shard.places.master == Master::whole) shard.local = own_part(shard);
    if (shard.places.master == Master::memory) shard.local = torch::zeros({shard.layout.shard}, kept);
    if (shard.places.sent == Sent::memory) shard.sent = torch::zeros({shard.layout.shard}, on_device ? used : beside);
    if (shard.places.master == Master::whole || shard.places.sent == Sent::master || shard.places.sent == Sent::file)
      return;
    // The update also writes the cast values: directly to the copy that gathers send if it can access it, otherwise to a
    // buffer.
    if (!plan_.separate_host || on_device == (plan_.optimizer == Tier::device))
      shard.written = shard.places.sent == Sent::whole ? own_part(shard) : shard.sent;
    else if (plan_.written_apart(unit))
      shard.written = torch::zeros({shard.layout.shard}, beside);
  }

  void make_quantized(size_t u, const ModelSpec& model) {
    Shard& shard = shards_[u];
    shard.quantized.emplace(model, shard.layout, device_);
    shard.full = without_memory(shard.layout.total, torch::dtype(scalar_type(plan_.compute)).device(device_));
    auto bytes = torch::dtype(torch::kUInt8).device(device_);
    if (plan_.units[u].tier == Tier::host) bytes = bytes.device(torch::kCPU).pinned_memory(plan_.pin_memory);
    shard.sent = torch::zeros({shard.quantized->bytes()}, bytes);
  }

  void start_gather_resident(const Shard& shard, Works& gathers) {
    if (!plan_.gather_by_broadcast) {
      auto full = shard.full, mine = own_part(shard);
      gathers.push_back(mesh_.group(Axis::shard)._allgather_base(full, mine));
      return;
    }
    for (int owner = 0; owner < plan_.shards(); ++owner) {
      std::vector<at::Tensor> part{shard.full.narrow(0, owner * shard.layout.shard, shard.layout.shard)};
      gathers.push_back(mesh_.group(Axis::shard).broadcast(part, {.rootRank = owner}));
    }
  }

  /// Copies the master to `target`, in the dtype of `target`.
  void cast_master(const Shard& shard, const torch::Tensor& target, bool updated) {
    if (shard.places.master == Master::whole) return;
    if (updated && shard.written.defined()) {
      if (!shard.written.is_alias_of(target)) target.copy_(shard.written);
    } else if (shard.local.defined()) {
      target.copy_(shard.local);
    } else {
      for_pieces(shard, [&](int64_t begin, const torch::Tensor& values) {
        target.narrow(0, begin, values.numel()).copy_(values);
      });
    }
  }

  /// Copies the master to the file's array of shards to send.
  void write_sent(const Shard& shard) {
    for_pieces(shard, [&](int64_t begin, const torch::Tensor& values) {
      auto cast = values.to(scalar_type(plan_.parameter));
      file_->write(*sent_array_, shard.begin + begin, cast.numel(), cast.data_ptr());
    });
  }

  /// Calls `body` with consecutive parts of the master, in host memory.
  template <typename Body>
  void for_pieces(const Shard& shard, Body&& body) {
    for (int64_t begin = 0; begin < shard.layout.shard; begin += piece) {
      int64_t count = std::min(piece, shard.layout.shard - begin);
      if (shard.local.defined()) {
        body(begin, shard.local.narrow(0, begin, count).to(torch::kCPU));
        continue;
      }
      auto values = torch::empty({count}, torch::kFloat32);
      file_->read(*master_array_, shard.begin + begin, count, values.data_ptr());
      body(begin, values);
    }
  }

  /// Converts `from` to the gathered dtype on the device. The current stream copies host memory, and the host does not
  /// wait if that memory is pinned. The copy has ended before an update overwrites it: finish_gradients() has waited for
  /// later kernels.
  torch::Tensor as_sent(const Shard& shard, torch::Tensor from) const {
    bool pinned = from.is_cpu() && plan_.pin_memory;
    auto used = shard.full.options();
    if (pinned && from.scalar_type() != shard.full.scalar_type())
      from = torch::empty(from.sizes(), used.device(torch::kCPU).pinned_memory(true)).copy_(from);
    return from.to(used, /*non_blocking=*/pinned);
  }

  /// This rank's shard on the device, in the gathered dtype.
  torch::Tensor shard_to_send(size_t u) {
    Shard& shard = shards_[u];
    if (shard.places.sent == Sent::master) return as_sent(shard, shard.local);
    if (shard.places.sent == Sent::memory) return as_sent(shard, shard.sent);
    if (shard.places.sent == Sent::packed) return shard.sent.to(device_, /*non_blocking=*/plan_.pin_memory);
    auto read =
        torch::from_blob(shard.reading->wait(), {shard.layout.shard}, torch::dtype(scalar_type(plan_.parameter)));
    auto mine = read.to(shard.full.options(), /*non_blocking=*/false, /*copy=*/true);
    shard.reading.reset();
    return mine;
  }

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
