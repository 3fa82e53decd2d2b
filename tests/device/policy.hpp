// When the tasks of a simulated device run.
#pragma once
#include <cstdint>

namespace runner::simulated {

enum class Order {
  eager,         ///< as soon as streams and events allow
  lazy,          ///< when the host waits, and then only the tasks that it waits for
  others_first,  ///< when the host waits: first all that other streams can do, then the tasks that it waits for
  random,        ///< some of them after each call, chosen by the seed
};

struct Policy {
  Order order = Order::lazy;
  uint64_t seed = 0;
};

}  // namespace runner::simulated
