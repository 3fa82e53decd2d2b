// `ddp`: a replica on every rank, gradients all-reduced in buckets while backward goes on.
#pragma once
#include "strategies/contract/entry.hpp"

namespace runner {
Entry ddp_entry();
}
