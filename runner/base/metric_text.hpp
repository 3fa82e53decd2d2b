// Values of metrics as text for people. NaN has no sign there.
#pragma once
#include <string>

namespace runner {

/// "2.5000", or "2.250e-06" where four decimals would not show the value.
std::string metric_text(double value);
/// All digits: "2.25e-06".
std::string exact_metric_text(double value);

}  // namespace runner
