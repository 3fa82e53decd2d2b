#include "runner/inference/option_messages.hpp"

#include <fmt/format.h>

namespace runner {

std::string with_options_for_keys(const InferenceRequest& request, std::string message) {
  const auto replace = [&](const std::string& from, const std::string& to) {
    if (const auto at = message.find(from); at != std::string::npos) message.replace(at, from.size(), to);
  };
  const bool given = !request.data.empty() || !request.files.empty();  // the data are those that the user names
  if (given) {
    for (const char* key : {"data.validation: ", "data.train: ", "data.target: "})
      replace(key, request.data.empty() ? "" : "--data: ");
    replace("; data.missing = \"drop\" leaves such rows out", "");
    replace(": set data.chat_template", "");
    for (const char* value : {"error", "drop", "mean"})
      for (const char* link : {": ", ", and "}) replace(fmt::format("{}data.missing is \"{}\"", link, value), "");
  }
  replace("data.chat_template: ", "--chat-template: ");
  if (!request.load.place().of_run()) replace("data.tokenizer: ", "");
  if (given) replace(": data.columns = { text = \"COLUMN\" } names it", ", and the model was trained on this column");
  return message;
}

}  // namespace runner
