// Atomic replacement of files, reading, and memory maps.
#include "runner/base/files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <csignal>
#include <fstream>
#include <functional>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "runner/base/error.hpp"
#include "runner/base/loopback.hpp"
#include "runner/base/outside_fault.hpp"
#include "runner/base/private_file.hpp"
#include "runner/base/scratch_folder.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;

namespace {
template <typename Result>
void use(const Result&) {}
}  // namespace

TEST_CASE("exceptions of libraries that the outside world causes are told from bugs") {
  const auto told = [](const std::function<void()>& action) -> std::string {
    try {
      action();
    } catch (const std::exception& error) {
      const auto fault = outside_fault(error);
      return fault ? std::to_string(static_cast<int>(fault->code())) + ": " + fault->what() : "a bug";
    }
    return "nothing";
  };
  using nlohmann::json;
  CHECK(told([] { use(fs::file_size("/nowhere/x")); }) == "4: /nowhere/x: No such file or directory");
  CHECK(told([] { fs::rename("/nowhere/x", "/nowhere/y"); }) ==
        "4: /nowhere/x and /nowhere/y: No such file or directory");
  CHECK(told([] { throw std::bad_alloc(); }).starts_with("4: there is not enough memory"));
  CHECK(told([] { std::string().resize(SIZE_MAX); }).starts_with("4: there is not enough memory"));
  CHECK(told([] { throw std::system_error(EAGAIN, std::generic_category()); }).starts_with("4: the system refuses: "));
  CHECK(told([] { use(json("caf\xe9").dump()); }).starts_with("2: a name or a text is not UTF-8"));
  CHECK(told([] { use(json::parse("[1e999]")); }).starts_with("4: a file with JSON is damaged: "));
  CHECK(told([] { use(json::parse("[1")); }).starts_with("4: a file with JSON is damaged: "));
  CHECK(told([] { use(json("x").get<int>()); }) == "a bug");
  CHECK(told([] { RUNNER_CHECK(1 > 2); }) == "a bug");
}

TEST_CASE("a file is replaced atomically, and no temporary file remains") {
  TemporaryFolder folder;
  write_file_atomic(folder.path / "a", "one");
  write_file_atomic(folder.path / "a", "two");
  CHECK(read_file(folder.path / "a") == "two");
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
  CHECK_THROWS_AS(write_file_atomic(folder.path / "missing" / "a", "x"), Error);
  fs::create_directory(folder.path / "taken");
  CHECK_THROWS_AS(write_file_atomic(folder.path / "taken", "x"), Error);
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 2);
}

TEST_CASE("a private file can be read by its owner only, also after it replaced another one") {
  TemporaryFolder folder;
  const auto permissions = [&] { return fs::status(folder.path / "a").permissions(); };
  write_private_file_atomic(folder.path / "a", "one");
  CHECK(permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  write_file_atomic(folder.path / "a", "two");
  std::ofstream(folder.path / ("a." + std::to_string(::getpid()) + ".tmp")) << "left by a process that was killed";
  write_private_file_atomic(folder.path / "a", "three");
  CHECK(permissions() == (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(read_file(folder.path / "a") == "three");
}

TEST_CASE("a scratch folder of a killed process is removed by the next one, and one in use is not") {
  TemporaryFolder folder;
  const auto before = fs::temp_directory_path();
  ::setenv("TMPDIR", folder.path.c_str(), 1);
  const auto make_old = [](const fs::path& path) {
    const timespec hour_ago[] = {{::time(nullptr) - 3600, 0}, {::time(nullptr) - 3600, 0}};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), hour_ago, 0) == 0);
  };
  const pid_t child = ::fork();
  if (child == 0) {
    new ScratchFolder(folder.path);
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  const fs::path left = fs::directory_iterator(folder.path)->path();
  write_file_atomic(left / "input.csv", "secret");
  const ScratchFolder used(folder.path);
  CHECK(fs::exists(left));  // the process that made it could still be about to lock it
  fs::create_directories(folder.path / "runner-models");
  for (const auto& entry : fs::directory_iterator(folder.path)) make_old(entry.path());
  const ScratchFolder next(folder.path);
  CHECK_FALSE(fs::exists(left));
  CHECK(fs::exists(used.path()));
  CHECK(fs::exists(folder.path / "runner-models"));
  ::setenv("TMPDIR", before.c_str(), 1);
}

TEST_CASE("a link that has the name of the temporary file is not followed") {
  TemporaryFolder folder;
  std::ofstream(folder.path / "other") << "mine";
  const fs::path link = folder.path / ("a." + std::to_string(::getpid()) + ".tmp");
  fs::create_symlink(folder.path / "other", link);
  write_file_atomic(folder.path / "a", "new");
  CHECK(read_file(folder.path / "a") == "new");
  CHECK(read_file(folder.path / "other") == "mine");
  CHECK(fs::is_symlink(link));
}

TEST_CASE("addresses of this machine only") {
  for (const char* own : {"127.0.0.1", "127.8.0.1", "::1", "localhost"}) CHECK(is_loopback(own));
  for (const char* other : {"10.0.0.1", "128.0.0.1", "127.example.org", "0.0.0.0", ""}) CHECK_FALSE(is_loopback(other));
}

TEST_CASE("errors name the path and the reason") {
  TemporaryFolder folder;
  try {
    read_file(folder.path / "none");
    FAIL("must throw");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::environment);
    CHECK(std::string(error.what()) ==
          "cannot read " + (folder.path / "none").string() + ": No such file or directory");
  }
  CHECK_THROWS_AS(MappedFile(folder.path), Error);
}

TEST_CASE("read_file reads a complete file into a buffer of its size, also a file without a known size") {
  TemporaryFolder folder;
  for (size_t size : {0, 1, 4096, 4097, 1 << 20}) {
    write_file_atomic(folder.path / "a", std::string(size, 'x'));
    const std::string content = read_file(folder.path / "a");
    CHECK(content == std::string(size, 'x'));
    CHECK(content.capacity() <= size + 4096);
  }
  CHECK(read_file("/proc/self/maps").size() > 4096);
}

TEST_CASE("an empty file maps to nothing") {
  TemporaryFolder folder;
  write_file_atomic(folder.path / "empty", "");
  CHECK(MappedFile(folder.path / "empty").bytes().empty());
  write_file_atomic(folder.path / "three", "abc");
  CHECK(MappedFile(folder.path / "three").bytes().size() == 3);
}

TEST_CASE("folders of a pattern that exist as they are written stand for themselves") {
  TemporaryFolder folder;
  const fs::path odd = folder.path / "d[1] * \\x";
  fs::create_directories(odd);
  fs::create_directories(folder.path / "d1");
  for (const fs::path& file : {odd / "b.txt", odd / "a[2].txt", folder.path / "d1" / "c.txt"})
    write_file_atomic(file, "text");
  using Paths = std::vector<std::string>;
  CHECK(paths_like(odd / "*.txt") == Paths{odd / "a[2].txt", odd / "b.txt"});
  CHECK(paths_like(odd / "a[2].txt") == Paths{odd / "a[2].txt"});
  CHECK(paths_like(folder.path / "d[1]" / "?.txt") == Paths{folder.path / "d1" / "c.txt"});
  CHECK(paths_like(odd / "[x]") == Paths{});
  CHECK(is_pattern(odd / "*.txt"));
  CHECK_FALSE(is_pattern(odd / "none.txt"));
}

TEST_CASE("** matches a folder and all folders below it, without hidden ones and without links") {
  TemporaryFolder folder;
  for (const char* name : {"a.txt", "d/b.txt", "d/e/f/c.txt", "d/e/other.bin", ".hidden/x.txt", "lost+found/x.txt"}) {
    fs::create_directories((folder.path / name).parent_path());
    write_file_atomic(folder.path / name, "x");
  }
  fs::create_directory_symlink(folder.path / "d", folder.path / "link");
  fs::create_symlink("nowhere", folder.path / "broken");  // does not end the search
  fs::create_symlink("nowhere", folder.path / "d" / "broken");
  using Paths = std::vector<std::string>;
  const fs::path& at = folder.path;
  CHECK(paths_like(at / "**/*.txt") == Paths{at / "a.txt", at / "d/b.txt", at / "d/e/f/c.txt"});
  CHECK(paths_like(at / "d/**/c.txt") == Paths{at / "d/e/f/c.txt"});
  CHECK(paths_like(at / "**/e/**/*.txt") == Paths{at / "d/e/f/c.txt"});
  CHECK(paths_like(at / "d/e/**") == Paths{at / "d/e/f/c.txt", at / "d/e/other.bin"});
  CHECK(paths_like(at / "none/**") == Paths{});
}

TEST_CASE("** names a folder that cannot be listed") {
  TemporaryFolder folder;
  const fs::path closed = folder.path / "a" / "closed";
  fs::create_directories(closed);
  fs::permissions(folder.path, fs::perms(0755));
  fs::permissions(closed, fs::perms::none);
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t nobody = 65534;
    if (::getuid() == 0 && ::setuid(nobody) != 0) ::_exit(1);  // root can list every folder
    try {
      paths_like(folder.path / "**" / "*.txt");
    } catch (const Error& error) {
      ::_exit(error.what() == "cannot list the folder " + closed.string() + ": Permission denied" ? 0 : 2);
    }
    ::_exit(3);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  fs::permissions(closed, fs::perms(0755));
  CHECK(WEXITSTATUS(status) == 0);
}
