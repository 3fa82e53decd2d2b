// A file without a name, its whole size reserved: whatever ends the process, nothing of it stays in the folder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace runner {

/// Opens a nameless file for reading and writing; -1 and errno if the folder's file system has none.
int open_nameless(const std::filesystem::path& folder);
/// The same on any file system: creates a file and unlinks it at once; -1 and errno.
int open_unlinked(const std::filesystem::path& folder);

class UnnamedFile {
 public:
  /// Reserves `bytes` on the disk; they read as zero. `label` says in messages whose file it is. Throws
  /// Error(environment): no such folder, not writable, too little room.
  UnnamedFile(std::filesystem::path folder, int64_t bytes, std::string label, bool direct);
  ~UnnamedFile();
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  /// Whether I/O goes past the page cache (O_DIRECT): then offsets, sizes and addresses must be multiples of 4096.
  bool direct() const { return direct_; }
  int64_t size() const { return size_; }
  const std::string& name() const { return name_; }  ///< "the swap file of rank 0 in /nvme"

  /// Blocking, from any thread. Throws Error(run_failed) with the file, the offset, and what was expected and came.
  void read(int64_t offset, std::byte* into, int64_t size) const;
  void write(int64_t offset, const std::byte* from, int64_t size) const;

 private:
  struct State {
    int64_t bytes = -1, blocks = -1;  ///< blocks of 512 bytes that are on the disk
  };
  State state() const;
  /// Throws if somebody made the file shorter. `what` begins the message: "wrote".
  void refuse_cut(const char* what, int64_t offset, int64_t size) const;

  std::filesystem::path folder_;
  int64_t size_;
  std::string name_;
  int fd_ = -1;
  int64_t reserved_blocks_ = 0;
  bool direct_ = false;
};

}  // namespace runner
