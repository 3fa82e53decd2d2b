// Recognises by their first bytes files that are not what data.format says.
#pragma once
#include <cstddef>
#include <string>

namespace runner {

/// The kind of a file that is not text, and what to do with it, e.g. "a gzip file: unpack it first". Empty for text.
std::string other_than_text(const std::string& file);
/// Why training on this text is probably not what the user wants: it is JSON, a table or HTML. Empty for other texts.
std::string doubtful_text(const std::string& file);

/// The kind of a file that is neither raw tokens nor a file of llm.c, and what to do with it. Empty for tokens.
std::string other_than_tokens(const std::string& file);
/// The type that the tokens of a raw file seem to have, if it is wider than `item_bytes` (2 or 4): "uint32" or "int64".
/// Wider integers, read as narrow ones, have nearly only zeros at the places of their high halves. Otherwise empty.
std::string wider_tokens(const std::string& file, size_t item_bytes);

}  // namespace runner
