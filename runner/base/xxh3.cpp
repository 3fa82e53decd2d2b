#include "runner/base/xxh3.hpp"

#include <fmt/format.h>
#include <xxhash.h>

#include <new>

namespace runner {

void Xxh3::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Xxh3::Xxh3() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Xxh3::update(std::span<const std::byte> bytes) { XXH3_128bits_update(state_.get(), bytes.data(), bytes.size()); }

std::string Xxh3::hex() const {
  XXH128_canonical_t digest;
  XXH128_canonicalFromHash(&digest, XXH3_128bits_digest(state_.get()));
  return fmt::format("{:02x}", fmt::join(digest.digest, ""));
}

std::string xxh3_hex(std::span<const std::byte> bytes) {
  Xxh3 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string xxh3_hex(std::string_view text) { return xxh3_hex(std::as_bytes(std::span(text.data(), text.size()))); }

}  // namespace runner
