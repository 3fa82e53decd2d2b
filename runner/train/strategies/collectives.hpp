// Collectives for strategies in Lua: `world`, and the works that its asynchronous functions return.
//
//   world.rank, world.size
//   world:all_reduce(tensor, operation)                         in place; operation: "sum", "mean", "product", "min" or "max"
//   world:all_gather(out, tensor)                               out: world.size times as many elements, by rank
//   world:reduce_scatter(out, tensor, operation)                out: this rank's 1 / world.size of the result
//   world:broadcast(tensor, root)                               in place
//   world:shift(out, tensor, by)                                sends to rank (rank + by) % size and receives from rank
//                                                               (rank - by) % size; one message per rank
//   world:barrier("name")                                       the name is optional. If ranks wait in barriers of different
//                                                               names, each gets an error with all names
//   world:group("node")                                         the ranks of this rank's node
//   world:group("name", {0, 1}), world:group("name", {{0, 1}, {2, 3}})
//                                                               in `setup`, on every rank: makes a group of some ranks, or
//                                                               several without common ranks, and returns that of this rank
//   world:group("name")                                         later: the same group, or nil if this rank is in none
//
// A group has the same functions, except `group`. Its `rank`, and the ranks in the arguments of its functions, are places in the group,
// from 0; group.name is its name, and group.ranks lists its ranks of the world.
//
// Each collective except barrier also exists as NAME_async, which returns a work immediately. Call work:wait() before the tensors
// are used. Every rank of a group makes the same calls in the same order. The step waits for all remaining works.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runner/train/scripts/tensor.hpp"
#include "strategies/collective/world.hpp"

namespace runner {

/// Shared by the tensors, collectives and buckets of one script.
struct ScriptHost {
  World& world;
  TensorHost tensors = {};
  std::vector<std::shared_ptr<lua::Object>> works = {};  ///< works that may not have ended
  bool may_make_groups = false;                          ///< at the current moment, which is the same on all ranks
  int local_size = 1;                                    ///< ranks of a node
  std::map<std::string, lua::Value> groups = {};         ///< that were made, by name: nil if this rank is in none
};

struct ScriptWork {
  c10::intrusive_ptr<c10d::Work> work;  ///< null if there is nothing to wait for (one rank)
  std::vector<torch::Tensor> tensors;   ///< tensors that the work uses; the first one is its result
  int divisor = 1;                      ///< of the result, when the work has ended
  bool ended = false;

  void wait();
};

const lua::Class& script_work_class();
const lua::Class& script_world_class();
const lua::Class& script_group_class();
/// `host` must outlive it.
lua::Value script_world(ScriptHost& host);

}  // namespace runner
