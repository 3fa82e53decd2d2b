// With which nodes an elastic run (devices.min_nodes, max_nodes) goes on.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "runner/commands/place.hpp"
#include "runner/config/recipe.hpp"
#include "runner/launch/elastic_members.hpp"
#include "runner/launch/first_cause.hpp"
#include "runner/launch/stop_signals.hpp"
#include "runner/launch/supervisor.hpp"

namespace runner {

/// Chooses the nodes of each attempt: as many of those that are there as max_nodes allows and a plan can use, at least min_nodes. The
/// others wait.
class ElasticNodes {
 public:
  /// `place`: of this node, which leads.
  ElasticNodes(ElasticMembers& members, const Recipe& recipe, const Place& place);

  /// Waits for the nodes of the first attempt: num_nodes of them, or at least min_nodes if no other has come for 30 s, torchrun's
  /// last_call_timeout, or until rendezvous_timeout. Throws Error(environment) if there are fewer then, and the planner's error if
  /// it has no plan for num_nodes.
  void gather();
  /// SupervisorHooks::nodes_changed.
  NodeChange change();
  /// SupervisorHooks::end_newcomer.
  bool end_newcomer(int rank, const Outcome& failure) { return members_.end_newcomer(rank, failure); }
  /// Chooses the nodes of the next attempt. If there are too few, waits up to rendezvous_timeout for others and calls `tick` meanwhile.
  /// `why`: why the last attempt has ended. Returns the outcome of the run if it ends there: too few nodes, or a signal.
  std::optional<Outcome> regroup(const std::string& why, StopSignals& signals, const std::function<void()>& tick);

  /// The chosen nodes.
  const Place& place() const { return place_; }
  /// The changes at the last regroup(), e.g. "node 1 (gpu07) was lost, gpu09 joined".
  const std::string& changes() const { return changes_; }
  /// The recipe to plan for them. If the number of sequences of a step depends on the number of ranks, it is the number that
  /// num_nodes have, if the ranks can share it.
  const Recipe& recipe() { return choice(place_.placement.num_nodes).recipe; }
  /// Plans from now on with the micro-batch of this recipe, because larger ones ran out of memory.
  void limit_micro_batch(const Recipe& smaller);

 private:
  struct Choice {
    Recipe recipe;
    std::exception_ptr problem;  ///< why there is no plan; null if there is one
    bool may_pass = false;       ///< the problem is one of the environment, so it is looked at again
  };
  const Choice& choice(int nodes);
  Choice choose(int nodes) const;
  int usable(int there);
  std::string reason_to_wait(int nodes);
  void settle(int nodes);
  void measure_step();
  std::string shortage(int there);

  ElasticMembers& members_;
  Recipe recipe_;
  Place place_;
  int64_t step_rows_ = 0;  ///< sequences of a step with num_nodes; 0: the recipe decides, or they differ between epochs
  std::map<int, Choice> known_;  ///< by the number of nodes
  std::string changes_;
};

}  // namespace runner
