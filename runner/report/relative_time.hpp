// Formats a time relative to now.
#pragma once
#include <string>

namespace runner {

/// "just now", "42 s ago", "5 min ago", "3 h ago", "2 days ago"; after 30 days the date. Arguments are Unix seconds.
std::string format_ago(double time, double now);

}  // namespace runner
