// Writes safetensors files: hashes and writes the bytes in one pass, then calls fsync.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runner/base/error.hpp"
#include "runner/base/round_up.hpp"
#include "runner/checkpoint/safetensors.hpp"

namespace runner {

namespace {

constexpr size_t data_alignment = 64;
constexpr size_t chunk_bytes = 1 << 20;  ///< small enough to be in the cache for both hashing and writing

/// The header's length and JSON, padded with spaces as the format allows.
std::string encode_header(const std::vector<TensorInfo>& tensors, const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  for (const auto& tensor : tensors)
    header[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {tensor.begin, tensor.end}}};
  RUNNER_CHECK(header.size() == tensors.size(), "two tensors of one name");
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::string text = header.dump();
  uint64_t length = round_up(sizeof(uint64_t) + text.size(), data_alignment) - sizeof(uint64_t);
  text.resize(length, ' ');
  std::string encoded;
  for (size_t i = 0; i < sizeof length; ++i) encoded.push_back(static_cast<char>(length >> (8 * i)));
  return encoded + text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const fs::path& path, std::vector<TensorInfo> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : path_(path), tensors_(std::move(tensors)) {
  uint64_t end = 0;
  for (auto& tensor : tensors_) {
    tensor.begin = end;
    end = tensor.end = end + static_cast<uint64_t>(tensor.numel() * dtype_bytes(tensor.dtype));
  }
  std::string header = encode_header(tensors_, metadata);
  data_offset_ = header.size();
  expected_ = data_offset_ + end;
  // An existing file is not reused: an older process that has not ended yet may still write to it.
  ::unlink(path_.c_str());
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ < 0) throw environment_error("cannot write {}: {}", path_.string(), std::strerror(errno));
  try {
    write(std::as_bytes(std::span(header.data(), header.size())));
  } catch (...) {
    ::close(fd_);
    ::unlink(path_.c_str());
    throw;
  }
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!finished_) ::unlink(path_.c_str());
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  RUNNER_CHECK(bytes.size() <= expected_ - written_, "more bytes for {} than its header says", path_.string());
  while (!bytes.empty()) {
    auto chunk = bytes.first(std::min(bytes.size(), chunk_bytes));
    ssize_t n = ::write(fd_, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw environment_error("cannot write {}: {}", path_.string(), std::strerror(errno));
    hash_.update(chunk.first(static_cast<size_t>(n)));
    written_ += static_cast<uint64_t>(n);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

WrittenFile SafetensorsWriter::finish() {
  RUNNER_CHECK(written_ == expected_, "{} of {} bytes for {}", written_, expected_, path_.string());
  if (::fsync(fd_) != 0) throw environment_error("cannot sync {}: {}", path_.string(), std::strerror(errno));
  // Network filesystems may report a full disk only here.
  if (::close(std::exchange(fd_, -1)) != 0)
    throw environment_error("cannot write {}: {}", path_.string(), std::strerror(errno));
  finished_ = true;
  return {written_, hash_.hex()};
}

}  // namespace runner
