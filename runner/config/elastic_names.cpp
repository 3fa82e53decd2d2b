// The names of torchrun and Horovod for the numbers of nodes of an elastic run.
#include <charconv>

#include "runner/base/text.hpp"
#include "runner/config/foreign_names.hpp"

namespace runner {

namespace {

using nlohmann::json;

std::optional<int64_t> count_of_nodes(const std::string& text) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() && count > 0 ? std::optional(count) : std::nullopt;
}

/// torchrun's --nnodes: N, "N" or "MIN:MAX".
std::optional<ForeignName::Values> nodes_meant(const json& value) {
  if (value.is_number_integer()) return ForeignName::Values{{"devices.num_nodes", value}};
  const auto parts = split(value.is_string() ? value.get<std::string>() : "", ':');
  std::vector<int64_t> counts;
  for (const auto& part : parts)
    if (const auto count = count_of_nodes(part)) counts.push_back(*count);
  if (counts.size() != parts.size() || counts.empty() || counts.size() > 2) return std::nullopt;
  if (counts.size() == 1) return ForeignName::Values{{"devices.num_nodes", counts[0]}};
  // torchrun waits a while for the most nodes.
  return ForeignName::Values{
      {"devices.min_nodes", counts[0]}, {"devices.max_nodes", counts[1]}, {"devices.num_nodes", counts[1]}};
}

}  // namespace

std::vector<ForeignName> elastic_names() {
  std::vector<ForeignName> names = {{.name = "nnodes",
                                     .key = "devices.num_nodes",
                                     .meaning = nodes_meant,
                                     .refusal = "it is a number of nodes, or \"MIN:MAX\" for an elastic run",
                                     .sections = {"", "devices"}}};
  for (const char* name : {"min_np", "min_num_proc", "max_np", "max_num_proc"}) {
    const std::string key = std::string(name).starts_with("min") ? "devices.min_nodes" : "devices.max_nodes";
    auto refused = ForeignName::refused(name, "Horovod counts processes, and " + key + " counts nodes");
    refused.key = key;
    names.push_back(std::move(refused));
  }
  for (const char* name : {"elastic_timeout", "last_call_timeout"}) {
    auto refused = ForeignName::refused(
        name,
        "devices.rendezvous_timeout is how long an elastic run waits for nodes; it does not wait for more than "
        "devices.num_nodes of them");
    refused.key = "devices.rendezvous_timeout";
    names.push_back(std::move(refused));
  }
  return names;
}

}  // namespace runner
