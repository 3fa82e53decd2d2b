// Predicts the time of an optimizer step from the work and the traffic of one rank, and from their costs on the device.
//
// Computation is linear in a few kinds of work (Work). The coefficients come from a calibration of this machine, or
// from the peak rates of a device in the table. A collective costs a latency and its bytes on the wire (the alpha-beta
// model of Hockney 1994). On CUDA, collectives between data ranks overlap with computation and slow it down. Blocks wait for collectives of
// the tensor axis. Of the transfers between stages, those add to a step that are on the longest path through its schedule.
#pragma once
#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/selection/candidate.hpp"

namespace runner {

/// Kinds of work. An operation counts once for a forward pass, twice for a backward pass.
enum class Work {
  product_flops,       ///< of matrix products with parameters; a multiply-add is 2
  thin_product_flops,  ///< the same, each divided by the smaller of its two widths: small matrices are slower
  attention_flops,     ///< over the full T x T scores
  activation_bytes,    ///< that blocks keep; measures element-wise operations
  logits,              ///< tokens x vocabulary, or rows x outputs of a model of labels or numbers
  block_passes,        ///< layers x micro-batches: fixed cost of operations
  recomputations,      ///< layers x micro-batches that the backward pass recomputes: additional fixed cost
  updates,             ///< parameters that this rank's optimizer updates
  copied_bytes,        ///< parameters and gradients that are cast, and gradients that are added to a buffer
  collective_calls,    ///< cost in addition to the collective alone: ranks wait for each other,
  collective_bytes,    ///< and copy to and from flat buffers
  steps,
  count
};
constexpr size_t work_kinds = static_cast<size_t>(Work::count);
const char* name_of(Work kind);

/// The work of one rank in a step.
using StepWork = std::array<double, work_kinds>;
/// `plan`: of the job; null: parameters are gathered in the dtype of the masters.
StepWork step_work(const Job& job, const ParallelPlan* plan, const MemoryParts& memory,
                   const std::vector<Traffic>& traffic);

/// Time of one collective by the bytes of its complete tensor, interpolated between measured points.
struct CollectiveCurve {
  std::vector<std::pair<double, double>> points;  ///< (bytes, seconds), ascending
  double seconds(double bytes) const;
};

/// Costs of work for one rank while all ranks of its node work.
struct Rates {
  std::string source;  ///< "calibration of this machine, 2026-11-21", "peaks of h100-80g (NVIDIA H100 datasheet)"
  std::array<double, work_kinds> seconds = {};                    ///< for one unit of each kind of work
  bool overlaps = false;                                          ///< collectives overlap with computation
  double latency = 0, link_bandwidth = 0, network_bandwidth = 0;  ///< of collectives without a curve; 0: not known
  std::map<std::pair<std::string, int>, CollectiveCurve>
      curves;                                            ///< by collective and ranks; used instead of bandwidths
  double host_link_bandwidth = 0, host_update_rate = 0;  ///< offload: bytes, and parameters, per second and rank
  double peak_flops = 0;                                 ///< for MFU; 0: not known
  std::string peak_name;
  double error = 0.1;  ///< relative error of predictions
};

/// How much longer all work takes if the threads of the ranks on a node are more than its cores.
inline double crowding(int ranks, int threads, int cores) {
  return std::max(1.0, static_cast<double>(ranks) * threads / std::max(1, cores));
}

/// Rates of a device in the table; nullopt if it has no matrix products in `compute`.
std::optional<Rates> rates_of(const DeviceKind& kind, DType compute, int ranks_per_node);

/// The load of one rank in a step, independent of the machine. The ledger stores it with each run.
struct StepLoad {
  StepWork work = {};
  std::vector<Traffic> traffic = {};
  int local_size = 1;  ///< ranks of a node
  HostWork host = {};
  int64_t checkpoint_bytes = 0;  ///< inputs of recomputed blocks that are copied to host memory and back
  /// exposed_communication() of the plan (strategies/program); empty: not known, or communication does not overlap on this device.
  std::vector<std::pair<double, double>> exposed = {};
  /// How much longer than its own work a rank of the pipeline is busy or waits for other ranks. `work` of blocks contains the factor.
  double stretch = 1;
  double exposed_transfers = 1;  ///< the share of transfers between stages for which ranks wait
  bool ring = false;             ///< communication along the context axis overlaps with attention

  /// The share of communication between data ranks that is exposed if it takes `ratio` times as long as computation, interpolated.
  double exposed_share(double ratio) const;
  /// {work: {kind: count}, traffic: [...], local_size, host_bytes, host_updates, checkpoint_bytes, exposed: [[ratio, share]],
  /// stretch, exposed_transfers, ring}
  nlohmann::json to_json() const;
  /// nullopt if the kinds of work have other names: another build wrote it.
  static std::optional<StepLoad> from_json(const nlohmann::json& json);
};
/// The load of a step; for a pipeline, that of its slowest rank, where the time in which it waits for the others counts as more work of
/// blocks. nullopt if something is not known: the cost of state on NVMe, or the traffic of a script.
std::optional<StepLoad> step_load(const Candidate& candidate);

/// Seconds of all calls together, without overlap; nullopt if a bandwidth is not known.
std::optional<double> communication_seconds(const std::vector<Traffic>& traffic, int local_size, const Rates& rates);

/// The parts of a step's time: each kind of work, communication that does not overlap, offload.
constexpr size_t communication_part = work_kinds, offload_part = work_kinds + 1, step_parts = work_kinds + 2;
using StepParts = std::array<double, step_parts>;

struct StepTime {
  StepTime() = default;
  /// A time whose parts are not known.
  StepTime(double seconds) { parts[static_cast<size_t>(Work::steps)] = seconds; }

  StepParts parts = {};
  double communication = 0;         ///< all of it, also what overlaps
  std::vector<AxisTime> axes = {};  ///< of the axes with communication, innermost first
  double total() const;
  double on_tokens()
      const;  ///< the work that grows with the tokens of a step, however they are divided into micro-batches
};
/// nullopt if a bandwidth is not known.
std::optional<StepTime> step_time(const StepLoad& load, const Rates& rates);

}  // namespace runner
