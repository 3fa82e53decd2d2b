// How long an optimizer step takes: what one rank computes and sends, times what each kind of work costs on the device.
//
// Computation is linear in a few kinds of work (Work); the coefficients come from a calibration of this machine, or of
// a device in the table from its peaks. Collectives cost a latency and their bytes on the wire (the alpha-beta model of
// Hockney 1994); on CUDA they run beside computation, which they slow down.
#pragma once
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/selection/candidate.hpp"

namespace runner {

/// Kinds of work. An operation counts once for a forward, twice for a backward.
enum class Work {
  product_flops,       ///< of matrix products with parameters; a multiply-add is 2
  thin_product_flops,  ///< the same, each over the smaller of its two widths: small matrices are slower
  attention_flops,     ///< over the full T x T scores
  activation_bytes,    ///< that blocks keep, for element-wise operations
  logits,              ///< tokens x vocabulary
  block_passes,        ///< blocks x micro-batches: what operations cost however small
  recomputations,      ///< blocks x micro-batches that are run again in backward: what that costs beyond the passes
  updates,             ///< parameters this rank's optimizer updates
  copied_bytes,        ///< parameters and gradients cast
  collective_calls,    ///< what they cost beyond the time of the collective alone: ranks wait for one another,
  collective_bytes,    ///< and copy to and from flat buffers
  steps,
  count
};
constexpr size_t work_kinds = static_cast<size_t>(Work::count);
const char* name_of(Work kind);

/// What one rank does in a step.
using StepWork = std::array<double, work_kinds>;
StepWork step_work(const Job& job, const MemoryParts& memory, const std::vector<Traffic>& traffic);

/// Time of one collective by the bytes of its whole tensor: measured points, between which it is interpolated.
struct CollectiveCurve {
  std::vector<std::pair<double, double>> points;  ///< (bytes, seconds), ascending
  double seconds(double bytes) const;
};

/// What work costs one rank while all ranks of its node work.
struct Rates {
  std::string source;  ///< "calibration of this machine, 2026-11-21", "h100-80g's peaks (NVIDIA H100 datasheet)"
  std::array<double, work_kinds> seconds = {};                    ///< for one of each kind
  bool overlaps = false;                                          ///< collectives run beside computation
  double latency = 0, link_bandwidth = 0, network_bandwidth = 0;  ///< of collectives without a curve; 0: not known
  std::map<std::pair<std::string, int>, CollectiveCurve> curves;  ///< by name and ranks; instead of bandwidths
  double host_link_bandwidth = 0, host_update_rate = 0;           ///< offload: bytes, and parameters, a second and rank
  double peak_flops = 0;                                          ///< for MFU; 0: not known
  std::string peak_name;
  double error = 0.1;  ///< part by which predictions were wrong where they could be compared
};

/// Of a device in the table; nullopt when it has no products in the job's dtype.
std::optional<Rates> rates_of(const DeviceKind& kind, DType compute, int ranks_per_node);

/// What one rank does in a step, independent of the machine. The ledger keeps it with each run.
struct StepLoad {
  StepWork work = {};
  std::vector<Traffic> traffic = {};
  int local_size = 1;  ///< ranks of a node
  HostWork host = {};
  int64_t checkpoint_bytes = 0;  ///< inputs of recomputed blocks that are copied to host memory, and back

  /// {work: {kind: count}, traffic: [...], local_size, host_bytes, host_updates, checkpoint_bytes}
  nlohmann::json to_json() const;
  /// nullopt if the kinds of work have other names: another build wrote it.
  static std::optional<StepLoad> from_json(const nlohmann::json& json);
};
/// nullopt where something is not known: state on NVMe, what a script sends.
std::optional<StepLoad> step_load(const Candidate& candidate);

/// Of all calls together, each without anything beside it; nullopt where a bandwidth is not known.
std::optional<double> communication_seconds(const std::vector<Traffic>& traffic, int local_size, const Rates& rates);

/// The parts of a step's time: each kind of work, communication that is not hidden, offload.
constexpr size_t communication_part = work_kinds, offload_part = work_kinds + 1, step_parts = work_kinds + 2;
using StepParts = std::array<double, step_parts>;

struct StepTime {
  StepParts parts = {};
  double communication = 0;  ///< hidden or not
  double total() const;
};
/// nullopt where something is not known: a collective without bandwidth.
std::optional<StepTime> step_time(const StepLoad& load, const Rates& rates);

}  // namespace runner
