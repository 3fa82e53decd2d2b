// `hpu`: Gaudi devices. There is no backend for them; with devices.simulate, CPU processes with replicas take their place.
//
// Source: Lightning 1.9's HPUParallelStrategy, SingleHPUStrategy and HPUPrecisionPlugin; Lightning-Habana 5549fa9.
#pragma once
#include "strategies/program/parallel_plan.hpp"

namespace runner {

Entry hpu_entry();

}  // namespace runner
