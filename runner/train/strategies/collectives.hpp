// Collectives for strategies in Lua: `world`, and the works that its asynchronous functions give.
//
//   world.rank, world.size
//   world:all_reduce(tensor, "sum" | "min" | "max")             in place
//   world:all_gather(out, tensor)                               out: size times as many elements, by rank
//   world:reduce_scatter(out, tensor, "sum" | "min" | "max")    out: this rank's size-th part of what is reduced
//   world:broadcast(tensor, root)                               in place
//   world:shift(out, tensor, by)                                to the rank `by` further round the ring, from the one
//                                                               as far behind; one message a rank
//   world:barrier()
//
// Each but the last also as NAME_async, which gives a work at once: work:wait() before the tensors are used. Every rank
// makes the same calls in the same order. What nobody has waited for is waited for before the step goes on.
#pragma once
#include "runner/train/strategies/tensor.hpp"

namespace runner {

struct ScriptWork {
  c10::intrusive_ptr<c10d::Work> work;  ///< null: one rank alone, there was nothing to do
  std::vector<torch::Tensor> tensors;   ///< that it uses
  bool reduces_in_place = false;
  bool ended = false;

  void wait();
};

const lua::Class& script_work_class();
/// The host outlives it.
lua::Value script_world(ScriptHost& host);

}  // namespace runner
