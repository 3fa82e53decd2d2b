#include "runner/train/torch_mistake.hpp"

#include <c10/util/Exception.h>

namespace runner {

std::string torch_mistake(const std::exception& error) {
  const auto* refusal = dynamic_cast<const c10::Error*>(&error);
  if (!refusal || dynamic_cast<const c10::OutOfMemoryError*>(&error) || dynamic_cast<const c10::DistError*>(&error))
    return "";
  std::string text = refusal->what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

}  // namespace runner
