// `single`: one process, one device.
#pragma once
#include "strategies/contract/entry.hpp"

namespace runner {
Entry single_entry();
}
