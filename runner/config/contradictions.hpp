// Finds contradictions between keys and settings without effect, as far as this needs no knowledge of strategies and devices.
#pragma once
#include <string>
#include <vector>

#include "runner/config/diagnostics.hpp"

namespace runner {

/// Appends to `diagnostics`. Skips sections that have a mistake already, except keys that another key makes useless. If a section has an
/// unknown name, it also skips absent sections, because the name may be a misspelling of one. If a mistake belongs to no section, it
/// checks nothing.
void find_contradictions(const Recipe& recipe, std::vector<Diagnostic>& diagnostics);

/// Whether one of the mistakes is about the key: at its place, or a name in its section that may mean it.
bool in_doubt(const Recipe& recipe, const std::string& key, const std::vector<Diagnostic>& mistakes);

/// Two keys that contradict each other, both dotted.
struct KeyConflict {
  std::string key;
  std::string message;  ///< why it cannot be so, and what to do
  std::string other;
};
/// Contradictions in the numbers of nodes of an elastic run. Empty without devices.min_nodes and max_nodes.
std::vector<KeyConflict> node_conflicts(const Recipe& recipe);
/// Other keys that decide what a plug-in in [plugins] decides.
std::vector<KeyConflict> plugin_conflicts(const Recipe& recipe);
/// The keys that data.streaming cannot be combined with. Empty without data.streaming.
std::vector<KeyConflict> streaming_conflicts(const Recipe& recipe);

/// Notes about switches that change nothing in this recipe.
std::vector<std::string> idle_switches(const Recipe& recipe);

}  // namespace runner
