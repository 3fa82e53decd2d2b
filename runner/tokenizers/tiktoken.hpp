// tiktoken files: one token a line, as Base64 of its bytes and its rank. The merges and the expression for words are not in them.
// A file has at most tokenizer_bytes_max, and a token token_bytes_max (limits.hpp).
#pragma once
#include "runner/tokenizers/hf_tokenizer.hpp"

namespace runner {

/// Whether a file begins like a tiktoken file.
bool looks_like_tiktoken(std::string_view content);
/// Opens a tiktoken file. Expression and special tokens are known by the number of tokens: GPT-2 (50256), cl100k (100256), Llama 3
/// (128000), Qwen (151643), o200k (199998). `expression` is for other files, which then have no special tokens. The merges of a token
/// are all its cuts into two tokens, in the order of the parts' ranks (convert_slow_tokenizer.py of transformers does the same).
/// Throws Error(usage) with file and line.
std::unique_ptr<HfTokenizer> open_tiktoken(const fs::path& file, const std::string& expression = "");

}  // namespace runner
