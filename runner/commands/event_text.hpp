// An event of a run as one line of text.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace runner {

/// The event's message, otherwise its values ("step 12, seconds 0.31"), with the first samples of a batch that it names ("(samples 480 to
/// 491)"). Values that only programs need are left out, and without `with_rank` the rank, which a table has in a column.
std::string event_text(const nlohmann::json& event, bool with_rank = true);

}  // namespace runner
