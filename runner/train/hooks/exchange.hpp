// Exchanges between ranks while hooks run: the collectives of a hook, and the end of each of its calls.
//
// A script may run differently on different ranks, or fail on one of them. So each exchange first compares its purpose
// on all ranks. If the purposes differ, ranks that called a collective get a script error that names the call of each
// rank. Ranks that are at the end of the call wait there for the others. So no rank waits in a collective forever.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "runner/lua/training.hpp"
#include "strategies/collective/world.hpp"

namespace runner {

/// The sum, mean, min or max of the values.
double reduced(const std::vector<double>& values, const std::string& operation);

/// 52 bits of FNV-1a, exact in a double. Ranks compare texts by it.
double hash_of(const std::string& text);

/// Collective. The first `bytes` of a text of each rank. The ranks of a group on a device exchange tensors of this device.
std::vector<std::string> gather_texts(World& world, const std::string& mine, size_t bytes);

class HookExchange : public lua::HookWorld {
 public:
  using Rows = std::vector<std::vector<double>>;  ///< by rank
  static std::vector<double> column(const Rows& rows, size_t index);

  explicit HookExchange(World& world) : world_(world) {}

  /// From now on, no other rank takes part (on_exception). Calls that need another rank throw lua::ScriptMistake.
  void leave_alone() { alone_ = true; }
  /// While `why` is set, calls that need another rank throw lua::ScriptMistake with it.
  void close(std::optional<std::string> why) { closed_ = std::move(why); }
  bool alone() const { return alone_; }

  /// Collective. Returns the `values` of every rank. `what` describes the call ("all_reduce (sum)"). `what` and the
  /// number of values must be equal on all ranks. Otherwise throws lua::ScriptMistake on the ranks that called it.
  Rows meet(const std::string& what, const std::vector<double>& values = {});
  /// meet() for the end of a call. Every rank calls it, also after an error.
  Rows end(const std::vector<double>& values);
  /// Collective. Returns a text of every rank, cut at 2000 bytes. Ranks call it after end() has shown that one has a
  /// text.
  std::vector<std::string> texts(const std::string& mine);

  // ---- lua::HookWorld: exchanges of a script
  int rank() override { return world_.rank; }
  int size() override { return world_.size; }
  double all_reduce(double value, const std::string& operation) override;
  std::vector<double> all_gather(double value) override;
  lua::Value all_gather(const lua::Value& rows, bool sync_grads) override;
  double broadcast(double value, int root) override;
  void barrier() override { meet("barrier"); }

 private:
  Rows gather(const std::vector<double>& values);
  /// nullopt, on all ranks, if the ranks are at different calls.
  std::optional<Rows> try_meeting(const std::string& what, const std::vector<double>& values);

  World& world_;
  bool alone_ = false;
  std::optional<std::string> closed_;
};

}  // namespace runner
