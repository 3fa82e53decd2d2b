// `bagua`: data parallelism with Bagua's algorithms. Ranks train replicas, and exchange gradients or parameters.
//
// Source: Gan et al., BAGUA (VLDB 2021), and BaguaSys/bagua 3e480d29.
#pragma once
#include "strategies/program/parallel_plan.hpp"

namespace runner {

Entry bagua_entry();

}  // namespace runner
