// `ipu`: Graphcore devices. There is no backend for them; with devices.simulate, CPU processes with replicas take their place.
//
// Source: Lightning 1.9's IPUStrategy; Lightning-Graphcore 264afac.
#pragma once
#include "strategies/program/parallel_plan.hpp"

namespace runner {

Entry ipu_entry();

}  // namespace runner
