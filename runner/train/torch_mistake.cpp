#include "runner/train/torch_mistake.hpp"

#include <c10/util/Exception.h>

#include "runner/base/text.hpp"

namespace runner {

std::string torch_mistake(const std::exception& error) {
  const auto* refusal = dynamic_cast<const c10::Error*>(&error);
  if (!refusal || dynamic_cast<const c10::OutOfMemoryError*>(&error) || dynamic_cast<const c10::DistError*>(&error))
    return "";
  return first_line(refusal->what_without_backtrace());
}

}  // namespace runner
