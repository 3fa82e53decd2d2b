// The unnamed file: nothing remains of it, its size is reserved, and errors name the problem of the folder.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#include <catch2/catch_test_macros.hpp>
#include <fstream>

#include "runner/base/error.hpp"
#include "runner/base/text.hpp"
#include "strategies/offload/swap_file.hpp"
#include "tests/offload/swap_folder.hpp"

using namespace runner;

namespace {

std::string refusal(const std::filesystem::path& folder, int64_t bytes = 4096) {
  try {
    UnnamedFile(folder, bytes, "rank 3", true);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::environment);
    return error.what();
  }
  return "";
}

std::string free_there(const std::filesystem::path& folder) {
  struct statvfs disk {};
  ::statvfs(folder.c_str(), &disk);
  return format_bytes(disk.f_bavail * disk.f_frsize);
}

/// Checks the free space in the message. Another program may write to the disk, so the value from before or after is
/// accepted.
bool says_free(const std::filesystem::path& folder, int64_t bytes, const std::string& begin) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    auto before = free_there(folder), message = refusal(folder, bytes);
    INFO(message);
    CHECK(message.starts_with(begin));
    if (message == begin + before + " are free there" || message == begin + free_there(folder) + " are free there")
      return true;
  }
  return false;
}

/// Changes to a user without rights for one scope.
struct AsNobody {
  AsNobody() {
    if (::geteuid() == 0) REQUIRE(::seteuid(65534) == 0);
  }
  ~AsNobody() {
    if (::getuid() == 0 && ::seteuid(0) != 0) std::abort();
    ::prctl(PR_SET_DUMPABLE, 1);  // changing users cleared the flag, and the leak checker needs it
  }
};

}  // namespace

TEST_CASE("the file has no name, with O_TMPFILE and without") {
  SwapFolder folder;
  UnnamedFile file(folder.path, 1 << 20, "rank 0", true);
  CHECK(folder.empty());
  int fd = open_unlinked(folder.path);
  REQUIRE(fd >= 0);
  CHECK(folder.empty());
  CHECK(::write(fd, "abc", 3) == 3);
  ::close(fd);
}

TEST_CASE("the file disappears with a killed process") {
  SwapFolder folder;
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  pid_t child = ::fork();
  if (child == 0) {
    SwapFile file({.folder = folder.path}, 64 << 20);
    AlignedBuffer buffer(1 << 20);
    file.wait(file.write(0, buffer.bytes()));
    file.write(1 << 20, buffer.bytes());
    (void)!::write(ready[1], "1", 1);
    ::pause();
  }
  ::close(ready[1]);
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  ::close(ready[0]);
  CHECK(folder.empty());
  ::kill(child, SIGKILL);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(folder.empty());
}

TEST_CASE("the complete size is reserved before the first use") {
  SwapFolder folder;
  UnnamedFile file(folder.path, 64 << 20, "rank 0", true);
  struct stat info {};
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path(), gone).string().starts_with(folder.path.string()))
      REQUIRE(::stat(entry.path().c_str(), &info) == 0);
  }
  CHECK(info.st_size == 64 << 20);
  CHECK(info.st_blocks * 512 >= 64 << 20);
}

TEST_CASE("a disk that is too small is an error before anything is written") {
  SwapFolder folder;
  auto terabytes = int64_t{8000} << 40;
  auto name = "the swap file of rank 3 in " + folder.path.string();
  CHECK(says_free(folder.path, terabytes,
                  "cannot reserve 7.81 PiB (8796093022208000 bytes) for " + name + ": No space left on device; "));
  CHECK(folder.empty());

  ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit before {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  struct rlimit small = before;
  small.rlim_cur = 1 << 20;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  bool said =
      says_free(folder.path, 2 << 20, "cannot reserve 2.00 MiB (2097152 bytes) for " + name + ": File too large; ");
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(said);
}

TEST_CASE("problems of the folder are named") {
  SwapFolder folder;
  auto none = folder.path / "none";
  CHECK(refusal(none) == "cannot open the swap file of rank 3 in " + none.string() + ": there is no such folder");
  auto plain = folder.path / "plain";
  std::ofstream(plain) << "x";
  CHECK(refusal(plain) ==
        "cannot open the swap file of rank 3 in " + plain.string() + ": that is a file, not a folder");
  auto locked = folder.path / "locked";
  std::filesystem::create_directory(locked);
  std::filesystem::permissions(locked, std::filesystem::perms::owner_read | std::filesystem::perms::owner_exec);
  AsNobody nobody;
  CHECK(refusal(locked) == "cannot open the swap file of rank 3 in " + locked.string() + ": Permission denied");
}
