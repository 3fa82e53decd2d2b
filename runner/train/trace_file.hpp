// Writes a trace in Chrome's format, which Perfetto and chrome://tracing show.
// Source: Trace Event Format (Google, 2016): complete events ("X"), with times in microseconds, and metadata ("M").
#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace runner {

struct TraceEvent {
  std::string name, category;
  std::string track;           ///< events of one track nest
  int64_t begin, nanoseconds;  ///< begin: Unix time in nanoseconds
  nlohmann::json arguments = nlohmann::json::object();
};

/// The process of the trace is `rank`. Times begin at midnight (UTC), because readers take them as doubles. Each event is one line.
/// All files have the same first and last line, so that files of several ranks can be joined line by line
/// (report/joined_traces.hpp).
void write_trace_file(const std::filesystem::path& file, int rank, std::vector<TraceEvent> events);

}  // namespace runner
