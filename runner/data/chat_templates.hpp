// The chat template of a recipe: named in data.chat_template, or the tokenizer's own.
#pragma once
#include <optional>
#include <set>

#include "runner/chat/chat_template.hpp"
#include "runner/chat/layouts.hpp"
#include "runner/config/recipe.hpp"

namespace runner {

/// The template of data.chat_template (a built-in name, a file, or a folder); otherwise the one in the tokenizer's folder;
/// otherwise "alpaca" for this layout, and none for plain text and for prompt_completion, which may consist of texts. Throws
/// Error(usage) that begins with "data.chat_template" if there is none for another layout, or if it is wrong.
std::optional<chat::ChatTemplate> chat_template_of(const Recipe::Data& data, chat::Layout layout);

/// The markers in data.chat_template, such as <|im_start|>, each of which should be one token. Throws as chat_template_of().
std::set<std::string> markers_of_template(const Recipe::Data& data);

}  // namespace runner
