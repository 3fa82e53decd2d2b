// The tokenizer that a recipe names (runner/tokenizers has the tokenizers), and its chat template: named in data.chat_template, or the
// tokenizer's own.
#pragma once
#include <optional>
#include <set>

#include "runner/base/files.hpp"
#include "runner/chat/chat_template.hpp"
#include "runner/chat/layouts.hpp"
#include "runner/config/recipe.hpp"
#include "runner/data/data.hpp"

namespace runner {

/// The tokenizer that `data.tokenizer` names: "bytes", a file or folder, or "sentencepiece": a model that is trained once on
/// the training data and cached in `cache_dir`. Throws Error(usage) that begins with "data.tokenizer", or Error(environment).
std::unique_ptr<Tokenizer> open_tokenizer(const Recipe::Data& data, const std::string& cache_dir);
/// The model of the tokenizer "sentencepiece", trained if it is not in `cache_dir`.
fs::path trained_sentencepiece(const Recipe::Data& data, const std::string& cache_dir);

/// Throws Error(usage) if data.tokenizer_vocab_size has no room for the characters of the texts that train the tokenizer "sentencepiece".
void check_trained_vocabulary(const Recipe::Data& data);

/// The template of data.chat_template (a built-in name, a file, or a folder); otherwise the one in the tokenizer's folder;
/// otherwise "alpaca" for this layout, and none for plain text and for prompt_completion, which may consist of texts. Throws
/// Error(usage) that begins with "data.chat_template" if there is none for another layout, or if it is wrong.
std::optional<chat::ChatTemplate> chat_template_of(const Recipe::Data& data, chat::Layout layout);

/// The markers in data.chat_template, such as <|im_start|>, each of which should be one token. Throws as chat_template_of().
std::set<std::string> markers_of_template(const Recipe::Data& data);

}  // namespace runner
