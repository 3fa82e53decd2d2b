#include "runner/commands/run_labels.hpp"

#include <map>

namespace runner {

std::vector<std::string> run_labels(const Ledger& ledger, const std::vector<std::string>& ids) {
  std::map<std::string, std::string> names;
  std::map<std::string, int> count;
  for (const auto& id : ids) ++count[names[id] = ledger.row(id).name];
  std::vector<std::string> labels;
  for (const auto& id : ids)
    labels.push_back(count[names[id]] > 1 ? names[id] + " " + id.substr(id.rfind('-') + 1) : names[id]);
  return labels;
}

}  // namespace runner
