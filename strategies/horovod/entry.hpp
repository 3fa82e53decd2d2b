// `horovod`: data parallelism with Horovod's options. Ranks average gradients, sum them, or combine updates by Adasum.
//
// Source: Sergeev and Del Balso, Horovod (arXiv:1802.05799), and horovod/horovod 2626dc87; Lightning 1.9's HorovodStrategy.
#pragma once
#include "strategies/program/parallel_plan.hpp"

namespace runner {

Entry horovod_entry();

}  // namespace runner
