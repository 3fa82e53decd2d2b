#include "runner/train/hooks/hook_requests.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/base/error.hpp"
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

std::vector<double> CallEnd::pack() const {
  std::vector<double> row;
  for (bool word : {failed, stop, checkpoint, skip, parameters_written, gradients_written, lr.has_value()})
    row.push_back(word ? 1 : 0);
  for (double word : {lr.value_or(0), static_cast<double>(synced), synced_names, restored ? 1.0 : 0.0,
                      static_cast<double>(restored.value_or(0)), state_tensors, static_cast<double>(changes), changed})
    row.push_back(word);
  RUNNER_CHECK(row.size() == words);
  return row;
}

CallEnd CallEnd::unpack(const std::vector<double>& row) {
  size_t next = 0;
  auto number = [&] { return row.at(next++); };
  auto integer = [&] { return static_cast<int64_t>(number()); };
  auto flag = [&] { return number() != 0; };
  CallEnd end;
  for (bool* word :
       {&end.failed, &end.stop, &end.checkpoint, &end.skip, &end.parameters_written, &end.gradients_written})
    *word = flag();
  const bool sets_lr = flag();
  const double lr = number();
  if (sets_lr) end.lr = lr;
  end.synced = integer();
  end.synced_names = number();
  const bool restores = flag();
  const int64_t restored = integer();
  if (restores) end.restored = restored;
  end.state_tensors = number();
  end.changes = integer();
  end.changed = number();
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
