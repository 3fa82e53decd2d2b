// The options of horovod. This header is torch-free.
#pragma once
#include "runner/base/option_table.hpp"

namespace runner {

struct HorovodOptions {
  std::string op = "average", compression = "none";
  double gradient_predivide_factor = 1;
  bool hierarchical = false;
  bool scale_learning_rate = true;
};
const OptionTable<HorovodOptions>& horovod_options();

}  // namespace runner
