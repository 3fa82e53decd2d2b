// XXH3-128: checksums of files and addresses of texts. `xxh128sum` prints the same number.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct XXH3_state_s;

namespace runner {

class Xxh3 {
 public:
  Xxh3();
  void update(std::span<const std::byte> bytes);
  std::string hex() const;  ///< of everything so far; 32 digits

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

std::string xxh3_hex(std::span<const std::byte> bytes);
std::string xxh3_hex(std::string_view text);

}  // namespace runner
