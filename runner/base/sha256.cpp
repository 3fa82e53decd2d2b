#include "runner/base/sha256.hpp"

#include <algorithm>
#include <bit>
#include <random>

namespace runner {

namespace {

constexpr std::array<uint32_t, 64> round_constants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

}  // namespace

void Sha256::compress(const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = big_endian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t first = h + s1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t second = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + first, d = c, c = b, b = a, a = first + second;
  }
  const std::array<uint32_t, 8> change = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += change[i];
}

void Sha256::add(std::span<const uint8_t> bytes) {
  length_ += bytes.size();
  if (held_ > 0) {
    const size_t count = std::min(bytes.size(), rest_.size() - held_);
    std::copy_n(bytes.begin(), count, rest_.begin() + static_cast<std::ptrdiff_t>(held_));
    held_ += count;
    bytes = bytes.subspan(count);
    if (held_ < rest_.size()) return;
    compress(rest_.data());
    held_ = 0;
  }
  for (; bytes.size() >= rest_.size(); bytes = bytes.subspan(rest_.size())) compress(bytes.data());
  std::copy(bytes.begin(), bytes.end(), rest_.begin());
  held_ = bytes.size();
}

Digest Sha256::finish() {
  const uint64_t bits = length_ * 8;
  std::array<uint8_t, 72> padding = {0x80};
  const size_t zeros = (held_ < 56 ? 56 : 120) - held_;
  for (size_t i = 0; i < 8; ++i) padding[zeros + i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  add(std::span(padding).first(zeros + 8));
  Digest digest;
  for (size_t i = 0; i < 32; ++i) digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

Hmac::Hmac(std::span<const uint8_t> key) {
  std::array<uint8_t, 64> block = {};
  if (key.size() > block.size()) {
    Sha256 hash;
    hash.add(key);
    std::ranges::copy(hash.finish(), block.begin());
  } else {
    std::ranges::copy(key, block.begin());
  }
  for (auto& byte : block) byte ^= 0x36;
  keyed_inner_.add(block);
  for (auto& byte : block) byte ^= 0x36 ^ 0x5c;
  keyed_outer_.add(block);
  inner_ = keyed_inner_;
}

Digest Hmac::finish() {
  const Digest inner = inner_.finish();
  Sha256 outer = keyed_outer_;
  outer.add(inner);
  inner_ = keyed_inner_;
  return outer.finish();
}

Nonce new_nonce() {
  static thread_local std::random_device source;
  Nonce nonce{};
  for (auto& byte : nonce) byte = static_cast<uint8_t>(source());
  return nonce;
}

Hmac key_of_direction(const Digest& key, const char* direction, std::span<const uint8_t> server,
                      std::span<const uint8_t> client) {
  Hmac hmac(key);
  hmac.add(bytes_of_text(direction));
  hmac.add(server);
  hmac.add(client);
  return Hmac(hmac.finish());
}

bool equal_in_constant_time(std::span<const uint8_t> a, std::span<const uint8_t> b) {
  if (a.size() != b.size()) return false;
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference = static_cast<uint8_t>(difference | (a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace runner
