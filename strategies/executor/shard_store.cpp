#include "strategies/executor/shard_store.hpp"

#include <utility>

#include "runner/base/error.hpp"
#include "strategies/contract/dtype.hpp"

namespace runner {

using Master = ShardPlaces::Master;
using Sent = ShardPlaces::Sent;

ShardStore::ShardStore(const ParallelPlan& plan, const BoundMesh& mesh, const ModelSpec& model, torch::Device device,
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

/// Creates this rank's file and assigns the units' shards to ranges of its arrays, if some tier is NVMe.
void ShardStore::make_file(const std::vector<std::string>& states, const std::string& label) {
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

void ShardStore::make_tensors(size_t u) {
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

void ShardStore::make_quantized(size_t u, const ModelSpec& model) {
  Shard& shard = shards_[u];
  shard.quantized.emplace(model, shard.layout, device_);
  shard.full = without_memory(shard.layout.total, torch::dtype(scalar_type(plan_.compute)).device(device_));
  auto bytes = torch::dtype(torch::kUInt8).device(device_);
  if (plan_.units[u].tier == Tier::host) bytes = bytes.device(torch::kCPU).pinned_memory(plan_.pin_memory);
  shard.sent = torch::zeros({shard.quantized->bytes()}, bytes);
}

void ShardStore::quantize(size_t u, const ParameterSource& source) {
  Shard& shard = shards_[u];
  if (shard.sent.is_cpu()) return shard.quantized->fill(source, shard.first, shard.sent);
  const auto packed = torch::zeros({shard.sent.numel()}, torch::kUInt8);
  shard.quantized->fill(source, shard.first, packed);
  shard.sent.copy_(packed);
}

torch::Tensor ShardStore::own_part(const Shard& shard) const {
  return shard.full.narrow(0, shard.first, shard.layout.shard);
}

void ShardStore::write_master(size_t u, int64_t begin, const torch::Tensor& values) {
  file_->write(*master_array_, shards_[u].begin + begin, values.numel(), values.data_ptr());
}

// ---- new values

void ShardStore::spread(bool updated) {
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

void ShardStore::gather_resident(size_t u) {
  if (shards_[u].layout.shard == shards_[u].layout.total) return;
  torch::NoGradGuard no_grad;
  Works gathers;
  start_gather_resident(shards_[u], gathers);
  for (auto& gather : gathers) gather->wait();
}

void ShardStore::start_gather_resident(const Shard& shard, Works& gathers) {
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
void ShardStore::cast_master(const Shard& shard, const torch::Tensor& target, bool updated) {
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
void ShardStore::write_sent(const Shard& shard) {
  for_pieces(shard, [&](int64_t begin, const torch::Tensor& values) {
    auto cast = values.to(scalar_type(plan_.parameter));
    file_->write(*sent_array_, shard.begin + begin, cast.numel(), cast.data_ptr());
  });
}

/// Calls `body` with consecutive parts of the master, in host memory.
template <typename Body>
void ShardStore::for_pieces(const Shard& shard, Body&& body) {
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

// ---- gathers

void ShardStore::start_read(size_t u) {
  Shard& shard = shards_[u];
  if (shard.places.sent != Sent::file || !lacks(u) || shard.reading) return;
  shard.reading = std::make_unique<SwappedRead>(file_, *sent_array_, shard.begin, shard.layout.shard);
}

/// Converts `from` to the gathered dtype on the device. The current stream copies host memory, and the host does not
/// wait if that memory is pinned. The copy has ended before an update overwrites it: finish_gradients() has waited for
/// later kernels.
torch::Tensor ShardStore::as_sent(const Shard& shard, torch::Tensor from) const {
  bool pinned = from.is_cpu() && plan_.pin_memory;
  auto used = shard.full.options();
  if (pinned && from.scalar_type() != shard.full.scalar_type())
    from = torch::empty(from.sizes(), used.device(torch::kCPU).pinned_memory(true)).copy_(from);
  return from.to(used, /*non_blocking=*/pinned);
}

/// This rank's shard on the device, in the gathered dtype.
torch::Tensor ShardStore::shard_to_send(size_t u) {
  Shard& shard = shards_[u];
  if (shard.places.sent == Sent::master) return as_sent(shard, shard.local);
  if (shard.places.sent == Sent::memory) return as_sent(shard, shard.sent);
  if (shard.places.sent == Sent::packed) return shard.sent.to(device_, /*non_blocking=*/plan_.pin_memory);
  auto read = torch::from_blob(shard.reading->wait(), {shard.layout.shard}, torch::dtype(scalar_type(plan_.parameter)));
  auto mine = read.to(shard.full.options(), /*non_blocking=*/false, /*copy=*/true);
  shard.reading.reset();
  return mine;
}

bool ShardStore::lacks(size_t u) const {
  return u < shards_.size() && !shards_[u].gathered && !shards_[u].incoming.defined();
}

void ShardStore::start_gather(size_t u) {
  if (!lacks(u)) return;
  Shard& shard = shards_[u];
  torch::NoGradGuard no_grad;
  start_read(u);  // must come before `incoming` is set, because lacks(u) is false afterwards
  // The buffer is allocated on the compute stream, which also frees it. The shard to send is allocated on the side
  // stream.
  const bool packed = shard.places.sent == Sent::packed, sharded = is_sharded(plan_, plan_.units[u]);
  if (sharded)
    shard.incoming = packed ? torch::empty({plan_.shards() * shard.sent.numel()}, shard.sent.options().device(device_))
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

void ShardStore::gather(size_t u) {
  if (u >= shards_.size() || shards_[u].gathered) return;
  Shard& shard = shards_[u];
  start_gather(u);
  if (shard.gather) shard.gather->wait();
  shard.gather.reset();
  std::exchange(shard.copied, {}).wait_on_device();
  if (shard.quantized) shard.incoming = dequantized(shard);
  hand_over(shard.incoming, shard.full);
  shard.incoming.reset();
  shard.gathered = true;
}

torch::Tensor ShardStore::dequantized(const Shard& shard) const {
  torch::NoGradGuard no_grad;
  return shard.quantized->values(shard.incoming, shard.full.scalar_type());
}

void ShardStore::release(size_t u) {
  if (u >= shards_.size() || !shards_[u].gathered) return;
  if (shards_[u].places.sent == Sent::shared || plan_.units[u].resident) return;
  empty_storage(shards_[u].full);
  shards_[u].gathered = false;
}

}  // namespace runner
