// Finds secrets in commands and other texts by what stands before them.
#pragma once
#include <cstddef>
#include <string_view>
#include <vector>

namespace runner {

/// Bytes of a text.
struct SecretMark {
  size_t begin, size;
};

/// The values in "Bearer V", "Authorization: V", "-u USER:V", "NAME=V", and "X-NAME: V" or "\"NAME\": \"V\"", where NAME is a secret name;
/// and words that have the form of a token: JSON web tokens, those of GitHub, GitLab, Hugging Face, Slack, AWS, OpenAI, Anthropic. The
/// last one comes first. Not references to variables ($NAME, ${env:NAME}), and not "***".
std::vector<SecretMark> secret_marks(std::string_view text);

}  // namespace runner
