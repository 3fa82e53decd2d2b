// Which runs train nothing, and how runs are linked to each other.
#pragma once
#include <algorithm>
#include <array>
#include <string_view>

namespace runner {

/// A verb that reads a model and trains nothing. Its runs have its name as their strategy.
struct ReadingVerb {
  std::string_view name;
  std::string_view link;  ///< to the run whose model it reads
};
inline constexpr std::array<ReadingVerb, 3> reading_verbs = {{{.name = "evaluate", .link = "evaluated"},
                                                              {.name = "predict", .link = "predicted"},
                                                              {.name = "embed", .link = "embedded"}}};

/// How a training is linked to the run that it started from.
namespace training_link {
inline constexpr const char* rerun = "rerun";            ///< trains the same again
inline constexpr const char* continued = "continued";    ///< starts from one of its checkpoints
inline constexpr const char* fine_tuned = "fine-tuned";  ///< starts from its weights (model.init_from)
}  // namespace training_link

/// Whether the runs of a strategy (RunRow::strategy) train a model.
constexpr bool trains(std::string_view strategy) {
  return std::ranges::find(reading_verbs, strategy, &ReadingVerb::name) == reading_verbs.end();
}

/// Whether a link is that of a training, and not of a verb that read the model.
constexpr bool is_training_link(std::string_view link) {
  return std::ranges::find(reading_verbs, link, &ReadingVerb::link) == reading_verbs.end();
}

/// The link of the runs of a verb in reading_verbs.
constexpr std::string_view link_of(std::string_view verb) {
  return std::ranges::find(reading_verbs, verb, &ReadingVerb::name)->link;
}

}  // namespace runner
