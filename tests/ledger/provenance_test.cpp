// The git state of the working directory, with real git repositories.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "runner/base/clock.hpp"
#include "runner/base/files.hpp"
#include "runner/ledger/git_state.hpp"
#include "support.hpp"

using namespace runner;

namespace {

struct Repository {
  LedgerFolder folder;
  Repository() { git("init --quiet --initial-branch=main"); }
  void git(const std::string& arguments) {
    const std::string command = "git -C '" + folder.path.string() +
                                "' -c user.name=a -c user.email=a@example.org -c commit.gpgsign=false " + arguments +
                                " >/dev/null 2>&1";
    REQUIRE(std::system(command.c_str()) == 0);
  }
  void write(const std::string& name, const std::string& text) { write_file_atomic(folder.path / name, text); }
  CodeState code(const CodeStateOptions& options = {}) { return read_code_state(folder.path, options); }
  nlohmann::json state() { return code().git; }
};

}  // namespace

TEST_CASE("a folder outside any repository has no git state") {
  LedgerFolder folder;
  CHECK(read_code_state(folder.path).git.is_null());
  CHECK(read_code_state(folder.path / "missing").git.is_null());
}

TEST_CASE("commit, branch and changes of a repository are recorded") {
  Repository repository;
  auto state = repository.state();
  CHECK(state == nlohmann::json{{"commit", nullptr},
                                {"branch", "main"},
                                {"dirty", false},
                                {"diff_hash", nullptr},
                                {"patch", nullptr},
                                {"untracked", nlohmann::json::array()},
                                {"untracked_count", 0},
                                {"notes", nlohmann::json::array()}});

  repository.write("a.txt", "one\n");
  repository.git("add a.txt");
  repository.git("commit -m first");
  state = repository.state();
  CHECK(state["commit"].get<std::string>().size() == 40);
  CHECK(state["branch"] == "main");
  CHECK(state["dirty"] == false);
  CHECK(state["diff_hash"].is_null());

  repository.write("a.txt", "two\n");
  const auto changed = repository.state();
  CHECK(changed["commit"] == state["commit"]);
  CHECK(changed["dirty"] == true);
  CHECK(changed["diff_hash"].get<std::string>().size() == 32);
  CHECK(repository.state() == changed);
  repository.write("a.txt", "three\n");
  CHECK(repository.state()["diff_hash"] != changed["diff_hash"]);

  repository.write("a.txt", "one\n");
  repository.write("new.txt", "");
  CHECK(repository.state()["dirty"] == true);  // an untracked file

  repository.git("checkout --quiet --detach");
  CHECK(repository.state()["branch"].is_null());
}

TEST_CASE("the patch of a run gives the work tree again, with binary files and files that are new or gone") {
  Repository repository;
  repository.write("a.txt", "one\n");
  repository.write("gone.txt", "gone\n");
  repository.write("image.bin", std::string("\0\1\2", 3));
  repository.git("add .");
  repository.git("commit -m first");
  CHECK(repository.code().patch == "");
  CHECK(repository.state()["patch"].is_null());

  repository.write("a.txt", "two caf\xe9\n");  // not UTF-8
  repository.write("image.bin", std::string("\3\0\4", 3));
  repository.write("staged.txt", "new\n");
  repository.write("with space.txt", "");
  fs::remove(repository.folder.path / "gone.txt");
  repository.git("add staged.txt");
  repository.git("config diff.noprefix true");
  const auto code = repository.code();
  CHECK(code.git["patch"]["digest"].get<std::string>().size() == 32);
  CHECK(code.git["patch"]["bytes"] == code.patch.size());
  CHECK(code.git["patch"]["cut"] == false);
  CHECK(code.git["untracked"] == nlohmann::json{"with space.txt"});
  CHECK(code.git["untracked_count"] == 1);

  LedgerFolder elsewhere;
  write_file_atomic(elsewhere.path / "code.patch", code.patch);
  repository.git("reset --quiet --hard");
  CHECK_FALSE(fs::exists(repository.folder.path / "staged.txt"));
  repository.git("apply --index '" + (elsewhere.path / "code.patch").string() + "'");
  CHECK(read_file(repository.folder.path / "a.txt") == "two caf\xe9\n");
  CHECK(read_file(repository.folder.path / "image.bin") == std::string("\3\0\4", 3));
  CHECK(read_file(repository.folder.path / "staged.txt") == "new\n");
  CHECK_FALSE(fs::exists(repository.folder.path / "gone.txt"));
}

TEST_CASE("a patch that is too large keeps the changes of the first files, and says so") {
  Repository repository;
  for (const char* name : {"a.txt", "b.txt"}) repository.write(name, "one\n");
  repository.git("add .");
  repository.git("commit -m first");
  repository.write("a.txt", "two\n");
  std::string many;
  for (int i = 0; i < 5000; ++i) many += std::to_string(i) + "\n";
  repository.write("b.txt", many);
  const auto code = repository.code({.patch_bytes_max = 4096});
  CHECK(code.git["patch"]["cut"] == true);
  CHECK(code.git["diff_hash"].is_null());
  CHECK(code.git["dirty"] == true);
  CHECK(code.patch.ends_with(
      "+two\n# cut: the changes are larger than 4.00 KiB, and those of further files are missing\n"));
  CHECK(code.patch.find("b.txt") == std::string::npos);

  LedgerFolder elsewhere;
  write_file_atomic(elsewhere.path / "code.patch", code.patch);
  repository.git("reset --quiet --hard");
  repository.git("apply '" + (elsewhere.path / "code.patch").string() + "'");
  CHECK(read_file(repository.folder.path / "a.txt") == "two\n");
}

TEST_CASE("a slow git does not delay its caller, and is ended with it") {
  Repository repository;
  repository.write("git", "#!/bin/sh\ncase \"$*\" in *status*) exec sleep 600;; esac\nexec /usr/bin/git \"$@\"\n");
  fs::permissions(repository.folder.path / "git", fs::perms(0755));
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (repository.folder.path.string() + ":" + path).c_str(), 1);
  const auto late = repository.code({.timeout = std::chrono::seconds(3)}).git;
  const double started = steady_seconds();
  {
    CodeReader reader(repository.folder.path);
    CHECK(reader.wait(std::chrono::milliseconds(1)) == nullptr);
  }
  CHECK(steady_seconds() - started < 5);
  ::setenv("PATH", path.c_str(), 1);
  CHECK(late["branch"] == "main");
  CHECK(late["dirty"].is_null());
  REQUIRE(late["notes"].size() == 1);
  CHECK(late["notes"][0].get<std::string>().starts_with("git status did not answer within 3"));

  CodeReader reader(repository.folder.path);
  const auto* code = reader.wait(std::chrono::seconds(10));
  REQUIRE(code);
  CHECK(code->git["untracked"] == nlohmann::json{"git"});
}

TEST_CASE("a kept text is found by its digest, and a late state of the code replaces the row's and the attempt's") {
  LedgerFolder folder;
  Ledger ledger(folder.home(), Ledger::Mode::write);
  const auto run = ledger.begin_run(new_run(folder));
  ledger.begin_attempt(run, "start");
  const std::string patch = "diff --git a/a b/a\n-caf\xe9\n";
  const auto digest = ledger.keep(patch);
  ledger.code(run, {{"commit", "abc"}, {"patch", {{"digest", digest}}}});
  ledger.flush();
  CHECK(ledger.kept(digest) == patch);
  CHECK_FALSE(ledger.kept("0123").has_value());
  CHECK(ledger.show(run)["git"]["patch"]["digest"] == digest);
  CHECK(ledger.show(run)["attempts"][0]["git"]["commit"] == "abc");
}

TEST_CASE("a git process that does not answer in time is given up") {
  Repository repository;
  repository.write("git", "#!/bin/sh\nexec sleep 600\n");
  fs::permissions(repository.folder.path / "git", fs::perms(0755));
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (repository.folder.path.string() + ":" + path).c_str(), 1);
  const auto state = repository.code({.timeout = std::chrono::milliseconds(50)}).git;
  ::setenv("PATH", path.c_str(), 1);
  CHECK(state.is_null());
}
