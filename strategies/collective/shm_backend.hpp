// A c10d backend for CPU ranks of one host. Collectives copy through a shared segment.
//
// Collectives run in the calling thread and return completed work. Transfers between two ranks run in a thread of their own. Memory
// traffic per rank of a collective, for a payload of n bytes among R ranks: all_reduce copies n in, reads n (its 1/R share from R
// slots), copies n out; all_gather and reduce_scatter about half of that.
// An all_reduce of up to shm_small_bytes reads R n, behind one barrier instead of two.
#pragma once
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "strategies/collective/segment.hpp"

namespace runner {

/// The backend of this rank. A group has either collectives, of one contiguous CPU tensor, or transfers: of two ranks, the first one sends
/// and the second one receives. abort() ends the waiting of all ranks.
c10::intrusive_ptr<c10d::Backend> shm_backend(std::unique_ptr<SegmentGroup> group);

}  // namespace runner
