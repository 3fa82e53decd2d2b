// Lua files that keep checkpoints (plugins.checkpoint_io): what their functions get and return, their limits, and their mistakes.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>

#include "runner/lua/checkpoint_io_file.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace runner;
using Catch::Matchers::ContainsSubstring;

namespace {

volatile sig_atomic_t interrupts = 0;
void count_interrupt(int) { interrupts = interrupts + 1; }

/// A recipe with a store of this text.
struct Stored {
  TemporaryFolder folder;
  Recipe recipe;
  std::vector<Diagnostic> diagnostics;
  lua::CheckpointIOFile file;

  explicit Stored(const std::string& text, const nlohmann::json& options = nlohmann::json::object(),
                  bool trusted = true) {
    const auto path = folder.path / "store.lua";
    std::ofstream(path) << text;
    recipe.plugins.checkpoint_io = path.string();
    recipe.plugins.options = options;
    recipe.hooks.trusted = trusted;
    recipe.hooks.time_limit = 0.05;
    recipe.hooks.instruction_limit = 1000;
    file = lua::load_checkpoint_io_file(recipe, diagnostics);
  }
  std::string mistake() const { return diagnostics.empty() ? "" : diagnostics.front().message; }
};

/// A file whose function `save` has this body; the others do nothing.
std::string store_whose_save_does(const std::string& body) {
  return "return { options = { root = { type = 'string', default = 'here' }, tries = { type = 'integer', default = 3 "
         "} },\nsave = function(run, name, folder, options) " +
         body +
         " end,\nload = function(run, name, folder, options) return true end,\nremove = function(run, name, options) "
         "return true end,\nnames = function(run, options) return { 'step-000010', options.root } end }";
}

std::string failure_of(Stored& stored) {
  REQUIRE(stored.mistake().empty());
  try {
    stored.file.io->save("r1", "step-000010", "some/folder");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a Lua store gets run, name, folder and its options, and those of other plug-ins are left out") {
  Stored stored(store_whose_save_does(
                    "assert(run == 'r1' and name == 'step-000010' and folder == 'some/folder') "
                    "assert(options.root == 'there' and options.tries == 3 and options.bucket == nil) return true"),
                {{"root", "there"}, {"bucket", 7}});
  CHECK(failure_of(stored).empty());
  CHECK(stored.file.options == std::set<std::string>{"root", "tries"});
  CHECK(stored.file.io->names("r1") == std::vector<std::string>{"step-000010", "there"});
  CHECK_NOTHROW(stored.file.io->load("r1", "step-000010", "some/folder"));
  CHECK_NOTHROW(stored.file.io->remove("r1", "step-000010"));
}

TEST_CASE("a function of a Lua store that does not return true has failed") {
  Stored nothing(store_whose_save_does("")), no(store_whose_save_does("return false")),
      command(store_whose_save_does("return os.execute('exit 3')")), error(store_whose_save_does("error('no room')")),
      done(store_whose_save_does("return os.execute('true')"));
  CHECK_THAT(failure_of(nothing), ContainsSubstring("it returned nil; it returns true if it has succeeded"));
  CHECK_THAT(failure_of(no), ContainsSubstring("it returned false"));
  CHECK_THAT(failure_of(command), ContainsSubstring("it returned nil"));
  CHECK_THAT(failure_of(error), ContainsSubstring("store.lua:2: no room"));
  CHECK(failure_of(done).empty());
}

TEST_CASE("neither the time nor the instructions of a Lua store are limited, and its memory is") {
  Stored slow(
      store_whose_save_does("local sum = 0 for i = 1, 100000 do sum = sum + i end return os.execute('sleep 0.2')"));
  CHECK(failure_of(slow).empty());
  Stored large(store_whose_save_does("local all = {} for i = 1, 10000000 do all[i] = i end return true"));
  CHECK_THAT(failure_of(large), ContainsSubstring("needs more memory than"));
}

TEST_CASE("a command of a Lua file does not make the program ignore Ctrl-C") {
  struct sigaction action {
  }, before{};
  action.sa_handler = count_interrupt;
  REQUIRE(::sigaction(SIGINT, &action, &before) == 0);
  Stored stored(
      store_whose_save_does("return os.execute('kill -INT $PPID') and select(3, os.execute('exit 3')) == 3 and "
                            "select(2, os.execute('kill -TERM $$')) == 'signal' and os.execute()"));
  CHECK(failure_of(stored).empty());
  ::sigaction(SIGINT, &before, nullptr);
  CHECK(interrupts == 1);
}

TEST_CASE("mistakes in a Lua store are reported before it is used") {
  CHECK_THAT(Stored(store_whose_save_does("return true"), {}, /*trusted=*/false).mistake(),
             ContainsSubstring("hooks.trusted = true"));
  CHECK_THAT(Stored(store_whose_save_does("return true"), {{"tries", "many"}}).mistake(), ContainsSubstring("tries"));
  Stored lacks("return { save = print }");
  CHECK_THAT(lacks.mistake(), ContainsSubstring("has no function `load`"));
  REQUIRE(lacks.diagnostics.size() == 3);
  CHECK_THAT(lacks.diagnostics.back().message, ContainsSubstring("has no function `names`"));
  CHECK(lacks.diagnostics.back().code == "checkpoint-store-file");
  CHECK_THAT(Stored("return { saves = print }").mistake(), ContainsSubstring("is not part of a checkpoint store"));
  CHECK_THAT(Stored("return 3").mistake(), ContainsSubstring("a checkpoint store file returns a table"));
  Stored wrong("return { save = print, load = print, remove = print, names = function() return { 3 } end }");
  REQUIRE(wrong.mistake().empty());
  CHECK_THROWS_WITH(wrong.file.io->names("r1"), ContainsSubstring("it must return a list of strings"));
  Stored text("return { save = print, load = print, remove = print, names = function() return 'x' end }");
  CHECK_THROWS_WITH(text.file.io->names("r1"), ContainsSubstring("it must return a list of names, not a string"));
  Stored none("return { save = print, load = print, remove = print, names = function() return {} end }");
  CHECK(none.file.io->names("r1").empty());
}
