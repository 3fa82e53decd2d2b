#include "runner/ui/run_lists.hpp"

#include <algorithm>

#include "runner/base/clock.hpp"

namespace runner::ui {

namespace {
constexpr size_t lists_kept = 3;
constexpr double fresh_seconds = 1;

/// Whether the matching runs or their order change with the time alone: since:2m, took>1h.
bool depends_on_time(const RunFilter& filter) {
  const auto timed = [](const RunOperand& operand) {
    const auto* field = operand.of == RunOperand::Of::name ? find_run_field(operand.name) : nullptr;
    return field && (field->kind == FieldKind::time || field->kind == FieldKind::duration);
  };
  return std::ranges::any_of(filter.terms, timed, &RunTerm::operand) ||
         std::ranges::any_of(filter.order, timed, &RunOrder::operand);
}
}  // namespace

RunList RunLists::matching(const std::string& filter) {
  const std::lock_guard lock(mutex_);
  if (database_ && database_->moved()) {
    database_.reset();
    entries_.clear();
  }
  // Before the ledger is read, so that a file that replaces it meanwhile is found to be another one at the next call.
  if (!database_) database_ = readers_.open();
  if (!database_) {
    parse_filter(filter);
    return std::make_shared<std::vector<RunRow>>();
  }
  const Ledger ledger(readers_.home().string(), Ledger::Mode::read);
  const int64_t version = database_->integer("PRAGMA data_version");
  const double now = steady_seconds();
  const auto found = std::ranges::find(entries_, filter, &Entry::filter);
  if (found != entries_.end()) {
    if ((found->version == version && !found->timed) || now - found->read < fresh_seconds) return found->list;
    entries_.erase(found);
  }
  RunFilter parsed = parse_filter(filter);
  const bool timed = depends_on_time(parsed);
  if (parsed.order.empty()) parsed.order.push_back({.operand = {.name = "started"}, .descending = true});
  auto list = std::make_shared<std::vector<RunRow>>(ledger.runs(parsed));
  entries_.push_front({.filter = filter, .timed = timed, .version = version, .read = steady_seconds(), .list = list});
  if (entries_.size() > lists_kept) entries_.pop_back();
  return list;
}

}  // namespace runner::ui
