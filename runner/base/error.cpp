#include "runner/base/error.hpp"

namespace runner {

void check_failed(const char* expression, const char* file, int line, const std::string& message) {
  throw std::logic_error(fmt::format("internal error at {}:{}: {} does not hold{}{}", file, line, expression,
                                     message.empty() ? "" : ": ", message));
}

}  // namespace runner
