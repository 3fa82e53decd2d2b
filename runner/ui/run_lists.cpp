#include "runner/ui/run_lists.hpp"

#include <algorithm>

#include "runner/base/clock.hpp"

namespace runner::ui {

namespace {
constexpr size_t lists_kept = 3;
constexpr double fresh_seconds = 1;
}  // namespace

RunList RunLists::matching(const std::string& filter) {
  const std::lock_guard lock(mutex_);
  const auto file = readers_.home() / "ledger.db";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) {
    parse_filter(filter);
    return std::make_shared<std::vector<RunRow>>();
  }
  const Ledger ledger(readers_.home().string(), Ledger::Mode::read);
  if (!database_) {
    database_ = std::make_unique<sqlite::Database>(file, sqlite::Access::existing);
    database_->execute("PRAGMA query_only = ON");
  }
  const int64_t version = database_->integer("PRAGMA data_version");
  const double now = steady_seconds();
  const auto found = std::ranges::find(entries_, filter, &Entry::filter);
  if (found != entries_.end()) {
    if (found->version == version || now - found->read < fresh_seconds) return found->list;
    entries_.erase(found);
  }
  RunFilter parsed = parse_filter(filter);
  if (parsed.order.empty()) parsed.order.push_back({.operand = {.name = "started"}, .descending = true});
  auto list = std::make_shared<std::vector<RunRow>>(ledger.runs(parsed));
  entries_.push_front({.filter = filter, .version = version, .read = steady_seconds(), .list = list});
  if (entries_.size() > lists_kept) entries_.pop_back();
  return list;
}

}  // namespace runner::ui
