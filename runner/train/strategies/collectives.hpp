// Collectives for strategies in Lua: `world`, and the works that its asynchronous functions return.
//
//   world.rank, world.size
//   world:all_reduce(tensor, "sum" | "min" | "max")             in place
//   world:all_gather(out, tensor)                               out: world.size times as many elements, by rank
//   world:reduce_scatter(out, tensor, "sum" | "min" | "max")    out: this rank's 1 / world.size of the result
//   world:broadcast(tensor, root)                               in place
//   world:shift(out, tensor, by)                                sends to rank (rank + by) % size and receives from rank
//                                                               (rank - by) % size; one message per rank
//   world:barrier()
//
// Each except barrier also exists as NAME_async, which returns a work immediately. Call work:wait() before the tensors
// are used. Every rank makes the same calls in the same order. The step waits for all remaining works.
#pragma once
#include <memory>
#include <vector>

#include "runner/train/scripts/tensor.hpp"
#include "strategies/collective/world.hpp"

namespace runner {

/// Shared by the tensors, collectives and buckets of one script.
struct ScriptHost {
  World& world;
  TensorHost tensors = {};
  std::vector<std::shared_ptr<lua::Object>> works = {};  ///< works that may not have ended
};

struct ScriptWork {
  c10::intrusive_ptr<c10d::Work> work;  ///< null if there is nothing to wait for (one rank)
  std::vector<torch::Tensor> tensors;   ///< tensors that the work uses
  bool ended = false;

  void wait();
};

const lua::Class& script_work_class();
/// `host` must outlive it.
lua::Value script_world(ScriptHost& host);

}  // namespace runner
