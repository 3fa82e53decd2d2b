// How the ranks of a training meet while their hooks run: every collective of a hook, and the end of each of its calls.
//
// A script may take other turns on other ranks, or fail on one of them. So each meeting begins with what a rank is
// there for: where that differs, whoever wanted something is told who did what, as an error of the script, and whoever
// had come to the end of the call waits for the others to come there too. No rank is left waiting in a collective.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "strategies/collective/world.hpp"

namespace runner {

/// 52 bits of FNV-1a: what ranks compare of a text in a row of numbers.
double hash_of(const std::string& text);

class HookExchange {
 public:
  using Rows = std::vector<std::vector<double>>;  ///< by rank

  explicit HookExchange(World& world) : world_(world) {}

  /// From now on no other rank is there to be met (on_exception): what would need one is refused.
  void leave_alone() { alone_ = true; }
  /// While there is a reason, what would need another rank is refused with it.
  void close(std::optional<std::string> why) { closed_ = std::move(why); }
  bool alone() const { return alone_; }

  /// `values` of every rank. Collective; `what` says what for ("all_reduce (sum)") and must be the same on all ranks,
  /// and with it the number of values. Throws lua::ScriptMistake on the ranks that called it where it is not.
  Rows meet(const std::string& what, const std::vector<double>& values = {});
  /// The same at the end of a call, to which every rank comes whatever went wrong in it.
  Rows end(const std::vector<double>& values);
  /// A text of every rank, cut at 2000 bytes. Every rank calls it, after end() has shown that somebody has one.
  std::vector<std::string> texts(const std::string& mine);

  int rank() const { return world_.rank; }
  int size() const { return world_.size; }

 private:
  Rows gather(const std::vector<double>& values);
  std::vector<std::string> gather_texts(const std::string& mine, size_t bytes);
  /// nullopt where the ranks are there for different things; then all of them know it.
  std::optional<Rows> try_meeting(const std::string& what, const std::vector<double>& values);

  World& world_;
  bool alone_ = false;
  std::optional<std::string> closed_;
};

}  // namespace runner
