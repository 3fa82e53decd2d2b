// Kinds of collectives and of transfers between two ranks: the bytes that each puts on the wire, and how a call is described in
// messages. This header is torch-free.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace runner {

enum class Collective : uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  barrier,
  transfer,  ///< from the first rank of a group of two to the second; both call it
};

constexpr const char* name_of(Collective kind) {
  constexpr const char* names[] = {"all_reduce",     "broadcast",  "reduce",  "all_gather",
                                   "reduce_scatter", "all_to_all", "barrier", "transfer"};
  return names[static_cast<int>(kind)];
}

/// "SUM", "MAX" ... of a c10d::ReduceOp::RedOpType.
constexpr const char* name_of_reduction(uint8_t reduction) {
  constexpr const char* names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return reduction < sizeof names / sizeof *names ? names[reduction] : "an unknown operation";
}

/// Bytes that a rank sends when `payload` bytes (the whole tensor: an all_gather's output, a reduce_scatter's input) are sent around
/// a ring: all but one of `ranks` parts, and twice that for an all_reduce. If the parts cannot be equal, ranks differ by one
/// element, and this is their mean, rounded down. So it is for a transfer, where one of two ranks sends. For several calls, sum the
/// payloads first and round once.
constexpr int64_t ring_bytes(Collective kind, int64_t payload, int ranks) {
  int64_t passes = kind == Collective::all_reduce ? 2 : kind == Collective::barrier ? 0 : 1;
  return passes * payload * (ranks - 1) / ranks;
}

/// One call of a collective; equal on all ranks of a group. `kind` and `dtype` (of c10) are numbers because ranks compare bytes.
struct Operation {
  uint64_t sequence = 0;  ///< number of the call within its group, from 1; 0: no call yet
  uint64_t bytes = 0;     ///< payload
  Collective kind = Collective::all_reduce;
  int8_t dtype = 0;       ///< c10::ScalarType
  uint8_t reduction = 0;  ///< c10d::ReduceOp::RedOpType, for reductions
  uint8_t unused = 0;
  uint32_t root = 0;  ///< of a broadcast or reduce: rank in the group; of a transfer: the number of the message
  bool operator==(const Operation&) const = default;
};

/// Operation::root of an all-to-all in which each rank sends all of its payload to one other rank; of another one it is 0.
inline constexpr int64_t exchange_root = 1;

/// "all_reduce #42 (12.3 MiB of float32)", "broadcast #7 (8 B of int64 from rank 2)", "barrier #3",
/// "transfer #5 (8 B of int64, message 3)", without the number if it is 0.
std::string describe(const Operation& operation);

/// The call of one rank (of the world), at a point where all ranks should make the same call.
struct RankOperation {
  int rank;
  Operation operation;
  std::string group = "";  ///< set if the ranks use different groups, and for a transfer
};
/// "ranks diverged: ranks 0-2 are in all_reduce #42 (12.3 MiB of float32), rank 3 in all_gather #42 (1.5 MiB of
/// float32)".
std::string describe_divergence(const std::vector<RankOperation>& operations);

}  // namespace runner
