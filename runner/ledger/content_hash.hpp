// The address of a text: XXH3-128 as 32 hexadecimal digits.
#pragma once
#include <string>
#include <string_view>

namespace runner {

std::string content_hash(std::string_view content);

}  // namespace runner
