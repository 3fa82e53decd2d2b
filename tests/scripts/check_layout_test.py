"""scripts/check_layout: the repository passes, and each kind of violation is reported with its position."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCRIPT = os.path.join(ROOT, "scripts", "check_layout")


def check(root):
    result = subprocess.run([sys.executable, SCRIPT, root], capture_output=True, text=True, timeout=60)
    return result.returncode, result.stdout.splitlines()


class CheckLayout(unittest.TestCase):
    def violations(self, files):
        """The output of the script for a tree of these files. Also checks its exit code."""
        with tempfile.TemporaryDirectory() as root:
            for path, text in files.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            code, lines = check(root)
            self.assertEqual(code, 1 if lines else 0)
            return lines

    def test_this_repository_has_no_violations(self):
        self.assertEqual(check(ROOT), (0, []))

    def test_lower_layers_may_be_included(self):
        self.assertEqual(self.violations({
            "runner/base/text.hpp": "#include <string>\n",
            "runner/config/recipe.hpp": '#include "runner/base/text.hpp"\n',
            "runner/commands/run.cpp": '#include "runner/config/recipe.hpp"\n#include "runner/base/text.hpp"\n',
            "strategies/ddp/entry.hpp": '#include "runner/base/text.hpp"\n',
        }), [])

    def test_higher_layers_must_not_be_included(self):
        self.assertEqual(self.violations({
            "runner/base/text.cpp": '#include <string>\n\n#include "runner/config/recipe.hpp"\n',
            "runner/config/recipe.hpp": "",
        }), ["runner/base/text.cpp:3: includes runner/config/recipe.hpp: runner/config (layer 2) is above; runner/base is in layer 0"])

    def test_libraries_in_one_layer_must_not_include_each_other(self):
        self.assertEqual(self.violations({
            "runner/ledger/ledger.hpp": '#include "runner/devices/devices.hpp"\n',
            "runner/devices/devices.hpp": "",
            "strategies/ddp/entry.cpp": '#include "strategies/fsdp/entry.hpp"\n',
            "strategies/fsdp/entry.hpp": "",
        }), [
            "runner/ledger/ledger.hpp:1: includes runner/devices/devices.hpp: runner/devices (layer 3) is in the same layer; runner/ledger is in layer 3",
            "strategies/ddp/entry.cpp:1: includes strategies/fsdp/entry.hpp: strategies/fsdp (layer 5) is in the same layer; strategies/ddp is in layer 5",
        ])

    def test_some_includes_of_lower_libraries_are_forbidden(self):
        self.assertEqual(self.violations({
            "runner/ledger/ledger.hpp": "",
            "runner/launch/events.hpp": "",
            "runner/launch/supervisor.hpp": "",
            "runner/config/recipe.hpp": "",
            "runner/train/worker.cpp": '#include "runner/ledger/ledger.hpp"\n#include "runner/launch/events.hpp"\n#include "runner/launch/supervisor.hpp"\n',
            "strategies/ddp/entry.cpp": '#include "runner/config/recipe.hpp"\n',
        }), [
            "runner/train/worker.cpp:1: includes runner/ledger/ledger.hpp: the worker uses a strategy and an event sink, not the ledger or the devices",
            "runner/train/worker.cpp:3: includes runner/launch/supervisor.hpp: of launch the worker may include only the event sink",
            "strategies/ddp/entry.cpp:1: includes runner/config/recipe.hpp: of runner/ strategies may include only base",
        ])

    def test_torch_stays_in_its_libraries_also_through_headers(self):
        self.assertEqual(self.violations({
            "runner/data/data.cpp": "#include <ATen/ATen.h>\n",
            "strategies/contract/strategy.hpp": "#include <torch/torch.h>\n",
            "strategies/contract/units.hpp": '#include "strategies/contract/strategy.hpp"\n',
            "strategies/contract/CMakeLists.txt": "runner_room(room_contract SOURCES units.cpp)\nrunner_room(room_torch TORCH SOURCES strategy.cpp)\n",
            "strategies/contract/units.cpp": '#include "strategies/contract/units.hpp"\n',
            "strategies/contract/strategy.cpp": '#include "strategies/contract/units.hpp"\n',
            "strategies/ddp/entry.hpp": '#include "strategies/contract/strategy.hpp"\n',
        }), [
            "runner/data/data.cpp:1: reaches <ATen/ATen.h>, but runner/data is torch-free",
            "strategies/contract/units.cpp:1: reaches <torch/torch.h> through strategies/contract/units.hpp, strategies/contract/strategy.hpp, but "
            "CMake builds it without LibTorch",
            "strategies/ddp/entry.hpp:1: reaches <torch/torch.h> through strategies/contract/strategy.hpp, but it is the torch-free part of a strategy",
        ])

    def test_a_torch_free_library_is_not_built_with_torch(self):
        self.assertEqual(self.violations({
            "runner/ledger/CMakeLists.txt": "runner_room(room_ledger TORCH SOURCES ledger.cpp)\n",
            "runner/ledger/ledger.cpp": "",
        }), ["runner/ledger/ledger.cpp:1: is built with LibTorch, but runner/ledger is torch-free"])

    def test_paths_are_written_from_the_root_and_exist(self):
        self.assertEqual(self.violations({
            "runner/base/text.cpp": '#include "text.hpp"\n#include "runner/base/gone.hpp"\n#include "tests/support/fake.hpp"\n',
            "runner/base/text.hpp": "",
            "runner/attic/old.cpp": "",
        }), [
            "runner/attic/old.cpp:1: is in no library; scripts/check_layout lists the libraries and their layers",
            'runner/base/text.cpp:1: includes "text.hpp": write the path from the repository\'s root',
            'runner/base/text.cpp:2: includes "runner/base/gone.hpp", which does not exist',
            'runner/base/text.cpp:3: includes "tests/support/fake.hpp": tests are above every layer',
        ])

    def test_files_are_short_and_config_names_no_strategy(self):
        self.assertEqual(self.violations({
            "runner/base/text.cpp": "\n" * 451,
            "runner/base/text.hpp": "\n" * 450,
            "runner/config/reader.cpp": 'if (name == "ddp_spawn") return;  // "fsdp" too\n// "zero"\n',
            "runner/ui/page/app.js": "/" * 140 + "\n" + "/" * 141 + "\n",
            "strategies/ddp/entry.cpp": 'entry.name = "ddp";\n',
        }), [
            "runner/base/text.cpp:451: has 451 lines, more than 450: split it by concept",
            "runner/config/reader.cpp:1: names the strategy ddp; only the catalog and schemas/ may",
            "runner/ui/page/app.js:2: has more than 140 columns",
        ])

    def test_each_type_is_defined_once(self):
        self.assertEqual(self.violations({
            "runner/base/text.hpp": "namespace runner {\nstruct Part;\nstruct Part {\n};\n}  // namespace runner\n",
            "runner/base/text.cpp": "namespace runner {\nnamespace {\nstruct Part {};\n}  // namespace\n}  // namespace runner\n",
            "runner/data/data.hpp": "namespace runner::data {\nstruct Part {};\n}  // namespace runner::data\n",
            "runner/ledger/ledger.hpp": "namespace runner {\nclass Part final : public Base {\n};\n}  // namespace runner\n",
        }), ["runner/ledger/ledger.hpp:2: defines runner::Part, as runner/base/text.hpp:3 does"])

    def test_no_file_names_a_machine_or_an_unknown_host(self):
        home, host = "/ho" + "me/ada", "packages.exam" + "ple.org"
        self.assertEqual(self.violations({
            "README.md": f"fine: https://arxiv.org/abs/1, http://evil.example:80/x, http://a.test, ${{TMPDIR:-/tmp}}/x, build/home/x\nbad: {home}/data\n",
            "scripts/setup": f"fetch http" + f"://user:secret@{host}/x\n",
        }), [f"README.md:2: names a path of one machine: {home}", f"scripts/setup:1: names the host {host}; scripts/check_layout lists the allowed hosts"])

    def test_in_a_checkout_only_what_git_tracks_is_read(self):
        home = "/ho" + "me/ada"
        with tempfile.TemporaryDirectory() as root:
            def git(*arguments):
                subprocess.run(["git", "-C", root, *arguments], check=True, capture_output=True, timeout=60)

            def write(name):
                with open(os.path.join(root, name), "w", encoding="utf-8") as file:
                    file.write(f"train = ['{home}/data.txt']\n")

            git("init")
            write("tracked.toml")
            git("add", "tracked.toml")
            write("recipe.toml")  # `runner init` writes such a file into the working directory
            self.assertEqual(check(root), (1, [f"tracked.toml:1: names a path of one machine: {home}"]))
            git("add", "recipe.toml")
            self.assertEqual(check(root)[1], [f"{name}.toml:1: names a path of one machine: {home}" for name in ("recipe", "tracked")])


if __name__ == "__main__":
    unittest.main()
