// The strategy `hivemind`: peers that come and go. This header is torch-free.
#pragma once
#include "strategies/contract/entry.hpp"

namespace runner {

Entry hivemind_entry();

}  // namespace runner
