#include "runner/ledger/memorable_name.hpp"

#include <array>
#include <random>
#include <string_view>

namespace runner {

namespace {

constexpr std::array<std::string_view, 64> adjectives = {
    "amber",  "ample",  "azure", "bold",   "brave",  "bright", "brisk", "calm",  "clear", "clever", "cosy",
    "crisp",  "curly",  "deep",  "eager",  "early",  "fair",   "fancy", "fleet", "fond",  "fresh",  "gentle",
    "glad",   "golden", "grand", "green",  "happy",  "hardy",  "ivory", "jolly", "keen",  "kind",   "light",
    "lively", "lucky",  "lunar", "mellow", "merry",  "mild",   "misty", "neat",  "noble", "olive",  "patient",
    "plain",  "polite", "proud", "quick",  "quiet",  "rapid",  "ready", "rosy",  "royal", "shiny",  "silent",
    "silver", "smooth", "snowy", "solar",  "steady", "sunny",  "swift", "tidy",  "warm"};
constexpr std::array<std::string_view, 64> nouns = {
    "acorn",  "badger", "beacon",  "birch",  "bison",  "breeze",  "brook",  "canyon", "cedar",   "cloud", "clover",
    "comet",  "coral",  "crane",   "creek",  "dune",   "eagle",   "ember",  "falcon", "fern",    "finch", "fjord",
    "forest", "garden", "glacier", "grove",  "harbor", "hare",    "heron",  "hill",   "island",  "kite",  "lagoon",
    "lake",   "lark",   "leaf",    "lynx",   "maple",  "meadow",  "meteor", "moon",   "moss",    "ocean", "orchid",
    "otter",  "owl",    "pearl",   "pebble", "pine",   "planet",  "plum",   "pond",   "prairie", "quail", "rabbit",
    "raven",  "reef",   "ridge",   "river",  "robin",  "sparrow", "star",   "valley", "willow"};

}  // namespace

std::string memorable_name(sqlite::Database& database) {
  std::random_device random;
  std::uniform_int_distribution<size_t> pick(0, adjectives.size() - 1);
  static_assert(adjectives.size() == nouns.size());
  const int64_t number = database.integer("SELECT ifnull(max(run), 0) + 1 FROM run");
  while (true) {
    std::string name = fmt::format("{}-{}-{}", adjectives[pick(random)], nouns[pick(random)], number);
    if (!database.query("SELECT 1 FROM run WHERE name = ?", name).step()) return name;
  }
}

}  // namespace runner
