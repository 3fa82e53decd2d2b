#include "runner/train/hooks/hook_requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "runner/base/text.hpp"

namespace runner {

namespace {

/// "rank 0 DESCRIPTION, rank 1 DESCRIPTION".
template <typename Describe>
std::string of_each(const std::vector<CallEnd>& ends, Describe describe) {
  std::vector<std::string> parts;
  for (size_t rank = 0; rank < ends.size(); ++rank)
    parts.push_back(fmt::format("rank {} {}", rank, describe(ends[rank])));
  return join(parts, ", ");
}

template <typename Member>
bool differs(const std::vector<CallEnd>& ends, Member member) {
  return std::any_of(ends.begin(), ends.end(), [&](const auto& end) { return end.*member != ends[0].*member; });
}

}  // namespace

static_assert(std::is_trivially_copyable_v<CallEnd> && sizeof(CallEnd) == call_end_words * sizeof(double));

std::vector<double> CallEnd::pack() const {
  std::vector<double> row(call_end_words);
  std::memcpy(row.data(), this, sizeof *this);
  return row;
}

CallEnd CallEnd::unpack(const std::vector<double>& row) {
  CallEnd end;
  std::memcpy(static_cast<void*>(&end), row.data(), sizeof end);
  return end;
}

std::string contradiction(const std::vector<CallEnd>& ends) {
  if (differs(ends, &CallEnd::lr))
    return "set_lr: every rank must set the same rate: " + of_each(ends, [](const CallEnd& end) {
             return end.lr ? fmt::format("sets {}", *end.lr) : std::string("sets none");
           });
  if (differs(ends, &CallEnd::synced))
    return "log with a sync: every rank must log the same names, in the same order: " +
           of_each(ends, [](const CallEnd& end) { return "logs " + counted(end.synced, "value"); });
  if (differs(ends, &CallEnd::synced_names))
    return "log with a sync: every rank must log the same names with the same sync, in the same order";
  if (differs(ends, &CallEnd::restored))
    return "restore: every rank must restore the same snapshot: " + of_each(ends, [](const CallEnd& end) {
             return end.restored ? fmt::format("restores that of step {}", *end.restored)
                                 : std::string("restores none");
           });
  if (differs(ends, &CallEnd::changes) || differs(ends, &CallEnd::changed))
    return "every rank must change the same parameters and gradients: " +
           of_each(ends, [](const CallEnd& end) { return "makes " + counted(end.changes, "change"); });
  if (differs(ends, &CallEnd::state_tensors)) return "the tensors in its state, or their names, differ between ranks";
  return "";
}

}  // namespace runner
