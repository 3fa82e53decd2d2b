#include "runner/sweep/search.hpp"

#include <cmath>

#include "runner/base/error.hpp"

namespace runner::sweep {

using nlohmann::json;
using EntryKind = HistoryEntry::Kind;

namespace {

double number(const std::optional<double>& value) { return value.value_or(std::nan("")); }
std::optional<double> finite(double value) { return std::isfinite(value) ? std::optional(value) : std::nullopt; }

template <typename Value>
void put(json& target, const char* name, const std::optional<Value>& value) {
  if (value) target[name] = *value;
}
template <typename Value>
std::optional<Value> get(const json& source, const char* name) {
  auto found = source.find(name);
  return found == source.end() ? std::nullopt : std::optional(found->get<Value>());
}

/// The parts of a proposal that determine the run.
std::string describe(const Trial& trial) {
  auto text = trial.parameters.dump();
  if (trial.from_trial) text += fmt::format(" from trial {}", *trial.from_trial);
  if (trial.until_step) text += fmt::format(" until step {}", *trial.until_step);
  return text;
}

}  // namespace

json to_json(const HistoryEntry& entry) {
  if (entry.kind == EntryKind::proposed) {
    json text = {{"kind", "proposed"}, {"parameters", entry.proposal.parameters}};
    put(text, "from_trial", entry.proposal.from_trial);
    put(text, "until_step", entry.proposal.until_step);
    return text;
  }
  json text = {{"kind", entry.kind == EntryKind::reported ? "reported" : "ended"}, {"step", entry.step}};
  put(text, "value", entry.value);
  if (entry.kind == EntryKind::reported) {
    text["stop"] = entry.stop;
  } else {
    text["status"] = entry.status;
    if (!entry.reason.empty()) text["reason"] = entry.reason;
  }
  return text;
}

HistoryEntry history_entry_from_json(const json& text) {
  HistoryEntry entry;
  std::string kind = text.at("kind");
  entry.kind = kind == "proposed" ? EntryKind::proposed : kind == "reported" ? EntryKind::reported : EntryKind::ended;
  if (entry.kind == EntryKind::proposed) {
    entry.proposal.parameters = text.at("parameters");
    entry.proposal.from_trial = get<int64_t>(text, "from_trial");
    entry.proposal.until_step = get<int64_t>(text, "until_step");
  }
  entry.step = text.value("step", int64_t{0});
  entry.value = get<double>(text, "value");
  entry.stop = text.value("stop", false);
  entry.status = text.value("status", "");
  entry.reason = text.value("reason", "");
  return entry;
}

void Search::replay(const HistoryEntry& entry) {
  method_->set_replaying(true);
  repeat(entry);
  method_->set_replaying(false);
}

void Search::repeat(const HistoryEntry& entry) {
  auto differs = [&](const std::string& what) {
    return environment_error("this sweep cannot be continued: {}; {}", what, method_->why_other());
  };
  if (entry.kind == EntryKind::proposed && method_->adopt(entry.proposal)) {
    trials_[entry.trial] = {entry.proposal};
    return;
  }
  if (entry.kind == EntryKind::proposed) {
    auto proposal = method_->propose(entry.trial);
    auto was = describe(entry.proposal);
    if (proposal.kind != Proposal::Kind::trial)
      throw differs(fmt::format("trial {} was {}, and would now not be proposed", entry.trial, was));
    auto would_be = describe(proposal.trial);
    const bool same = proposal.trial.parameters == entry.proposal.parameters &&
                      proposal.trial.from_trial == entry.proposal.from_trial &&
                      proposal.trial.until_step == entry.proposal.until_step;
    if (!same) throw differs(fmt::format("trial {} was {}, and would now be {}", entry.trial, was, would_be));
    trials_[entry.trial] = {proposal.trial};
    return;
  }
  if (entry.kind == EntryKind::reported) {
    bool stop = method_->report(entry.trial, entry.step, minimized(number(entry.value))) == Verdict::stop;
    if (stop != entry.stop)
      throw differs(fmt::format("trial {} was {} at step {}, and would now be {}", entry.trial,
                                entry.stop ? "stopped" : "continued", entry.step, stop ? "stopped" : "continued"));
    auto& state = trials_.at(entry.trial);
    state.value = entry.value;
    state.step = entry.step;
    state.stop_requested = stop;
    return;
  }
  apply_end(entry);
}

Proposal Search::propose() {
  if (!limit_reached().empty()) return {};
  auto proposal = method_->propose(static_cast<int64_t>(trials_.size()));
  if (proposal.kind == Proposal::Kind::trial) trials_[proposal.trial.number] = {proposal.trial};
  return proposal;
}

HistoryEntry proposed(const Trial& trial) { return {EntryKind::proposed, trial.number, trial, 0, {}}; }

std::optional<HistoryEntry> Search::report(int64_t trial, int64_t step, double value) {
  auto& state = trials_.at(trial);
  if (state.stop_requested || !method_->wants(trial, step)) return std::nullopt;
  HistoryEntry entry{EntryKind::reported, trial, {}, step, finite(value)};
  entry.stop = method_->report(trial, step, minimized(number(entry.value))) == Verdict::stop;
  state.value = entry.value;
  state.step = step;
  state.stop_requested = entry.stop;
  return entry;
}

HistoryEntry Search::end(int64_t trial, const std::string& status, double value, int64_t step,
                         const std::string& reason) {
  HistoryEntry entry{EntryKind::ended, trial, {}, step, finite(value)};
  entry.status = status;
  entry.reason = reason;
  apply_end(entry);
  return entry;
}

void Search::apply_end(const HistoryEntry& entry) {
  auto& state = trials_.at(entry.trial);
  const bool again = state.status == "failed";
  if (again) --failures_;
  state.status = entry.status;
  state.value = entry.value;
  state.step = entry.step;
  state.reason = entry.reason;
  state.stop_requested = false;
  method_->finished(state.trial, {.kind = entry.status == "finished" ? Ending::Kind::completed
                                          : entry.status == "pruned" ? Ending::Kind::pruned
                                                                     : Ending::Kind::failed,
                                  .value = minimized(number(entry.value)),
                                  .step = entry.step,
                                  .diverged = entry.reason == "nan" || entry.reason == "out_of_memory",
                                  .reason = entry.reason});
  if (!again) ++ended_since_best_;
  if (entry.status == "failed") ++failures_;
  bool better = entry.status == "finished" && entry.value &&
                (!best_ || minimized(*entry.value) < minimized(*trials_.at(*best_).value));
  if (!better) return;
  best_ = entry.trial;
  ended_since_best_ = 0;
}

std::string Search::limit_reached() const {
  if (limits_.trials && static_cast<int64_t>(trials_.size()) >= *limits_.trials)
    return fmt::format("budget.trials = {}", *limits_.trials);
  if (limits_.target && best_ && minimized(*trials_.at(*best_).value) <= minimized(*limits_.target))
    return fmt::format("stop.target = {} was reached", *limits_.target);
  if (limits_.no_improvement && ended_since_best_ >= *limits_.no_improvement)
    return fmt::format("stop.no_improvement = {} trials", *limits_.no_improvement);
  if (limits_.failures && failures_ >= *limits_.failures) return fmt::format("stop.failures = {}", *limits_.failures);
  return "";
}

const TrialState* Search::best() const { return best_ ? &trials_.at(*best_) : nullptr; }

std::optional<int64_t> Search::count() const {
  if (!count_) {
    const auto all = method_->count(limits_.trials);
    count_ = all && limits_.trials ? std::min(*all, *limits_.trials) : all ? all : limits_.trials;
  }
  return *count_;
}

}  // namespace runner::sweep
