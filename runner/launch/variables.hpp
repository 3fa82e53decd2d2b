// Reading a launcher's variables: every missing or odd one is an error that names it, its value and who should have set
// it.
#pragma once
#include <string>

#include "runner/launch/cluster.hpp"

namespace runner {

class Variables {
 public:
  /// `title` is the launcher's, for the messages.
  Variables(const Environment& environment, std::string title) : environment_(environment), title_(std::move(title)) {}

  /// The value of the first of `names` that is set and not empty.
  std::optional<std::string> text(std::initializer_list<const char*> names) const;
  /// The same as a number >= 0. Throws Error(environment) when none is set or the value is no such number.
  int number(std::initializer_list<const char*> names) const;
  std::optional<int> optional_number(std::initializer_list<const char*> names) const;

  /// Fills master_addr and master_port: MASTER_ADDR and MASTER_PORT when set, else `default_addr` and a port that every
  /// rank of the job derives alike from `job_key`. With neither MASTER_ADDR nor a default, one node meets at 127.0.0.1
  /// and several nodes are refused.
  void set_meeting_point(Placement& placement, const std::optional<std::string>& default_addr,
                         const std::string& job_key) const;

 private:
  const Environment& environment_;
  std::string title_;
};

/// "1 node", "2 nodes".
std::string counted(int count, const char* noun);

/// 20000..32767 from a hash of `job_key` and our user id: below Linux's range for outgoing connections (32768..60999).
int derived_port(const std::string& job_key);

}  // namespace runner
