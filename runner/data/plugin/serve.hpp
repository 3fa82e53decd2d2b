// The process in which a data plug-in runs. A plug-in that crashes ends only this process.
#pragma once

namespace runner {

/// Answers the questions on plugin_socket until its other side is closed. Returns the exit status.
int serve_data_plugin();

}  // namespace runner
