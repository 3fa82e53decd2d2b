// A file without a name, with its whole size reserved. However the process ends, nothing remains in the folder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace runner {

/// Opens a nameless file for reading and writing. Returns -1 and sets errno if the folder's file system does not support that.
int open_nameless(const std::filesystem::path& folder);
/// Opens a nameless file on any file system: creates a file and unlinks it immediately. Returns -1 and sets errno on failure.
int open_unlinked(const std::filesystem::path& folder);

class UnnamedFile {
 public:
  /// Reserves `bytes` bytes on disk, which read as zero. `label` names the owner in messages. Throws Error(environment) if the folder
  /// does not exist or is not writable, or if there is too little space.
  UnnamedFile(std::filesystem::path folder, int64_t bytes, std::string label, bool direct);
  ~UnnamedFile();
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  /// Whether I/O bypasses the page cache (O_DIRECT). Then offsets, sizes and addresses must be multiples of 4096.
  bool direct() const { return direct_; }
  int64_t size() const { return size_; }
  const std::string& name() const { return name_; }  ///< "the swap file of rank 0 in /nvme"

  /// Blocking, from any thread. Throws Error(run_failed) with the file, the offset, and the expected and actual byte counts.
  void read(int64_t offset, std::byte* into, int64_t size) const;
  void write(int64_t offset, const std::byte* from, int64_t size) const;

 private:
  struct State {
    int64_t bytes = -1, blocks = -1;  ///< blocks of 512 bytes on disk
  };
  State state() const;
  /// Throws if another process has truncated the file. `what` is the start of the message, for example "wrote".
  void refuse_cut(const char* what, int64_t offset, int64_t size) const;

  std::filesystem::path folder_;
  int64_t size_;
  std::string name_;
  int fd_ = -1;
  int64_t reserved_blocks_ = 0;
  bool direct_ = false;
};

}  // namespace runner
