// The messages between this program and the processes in which data plug-ins run.
#pragma once
#include <cstdint>
#include <string>

namespace runner {

/// A question to a process. It is followed by `bytes` bytes.
struct PluginQuestion {
  enum class Kind : uint32_t {
    start,     ///< JSON: {"library", "options", "seq_len", "paths"}
    describe,  ///< a source: JSON {"count", "text", "fields", "weighs"}
    records,   ///< records from `begin`, at most to `end`, each with 8 bytes of length in front; at least one
    sample,    ///< the fields of sample `begin`, one behind the other
    weights,   ///< an int32 for each sample
  };
  Kind kind = Kind::start;
  uint32_t source = 0;  ///< an index of "paths"
  int64_t begin = 0, end = 0;
  uint64_t bytes = 0;
};

/// Followed by `bytes` bytes: the answer, or the text of an error.
struct PluginAnswer {
  uint32_t failed = 0;
  uint64_t bytes = 0;
};

/// The descriptors of a process: a socket for messages, and shared memory with one int64, the index that the plug-in works on.
inline constexpr int plugin_socket = 0, plugin_progress = 3;

/// The argument with which this program becomes such a process.
inline constexpr const char* plugin_process_argument = "--serve-data-plugin";

/// Sends or receives everything. False: the other side is gone.
bool send_all(int socket, const void* bytes, size_t count);
bool receive_all(int socket, void* bytes, size_t count);

/// Runs a data plug-in in this process, so a plug-in that crashes ends no other one. Answers the questions on plugin_socket until its other
/// side is closed. Returns the exit status.
int serve_data_plugin();

}  // namespace runner
