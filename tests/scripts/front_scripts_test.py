"""The scripts in a temporary repository with fake dependencies: no network, no compiler."""
import os
import re
import shutil
import stat
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# A project whose "program" is a script that CMake copies. scripts/runner needs no more of a build.
CMAKELISTS = """
cmake_minimum_required(VERSION 3.25)
project(fake LANGUAGES NONE)
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/bin/runner COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_SOURCE_DIR}/program ${CMAKE_BINARY_DIR}/bin/runner
                   COMMAND ${CMAKE_COMMAND} -E sleep 0.5 DEPENDS program)
add_custom_target(app DEPENDS ${CMAKE_BINARY_DIR}/bin/runner)
"""
PRESETS = """{ "version": 6, "configurePresets": [ { "name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build" } ] }"""
PROGRAM = """#!/bin/sh
echo "version one, in $(pwd), with $*"
exit 7
"""


class FrontScripts(unittest.TestCase):
    def setUp(self):
        self.root = os.path.realpath(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.root)
        shutil.copytree(os.path.join(ROOT, "scripts"), os.path.join(self.root, "scripts"))
        self.write("CMakeLists.txt", CMAKELISTS)
        self.write("CMakePresets.json", PRESETS)
        self.write("program", PROGRAM, executable=True)
        # Every pinned piece is installed: its marker and a file that represents it.
        self.run_in_bash("""
          source scripts/lib/pins.sh
          mkdir -p .deps/.pins .deps/site/nvidia .deps/site/torch/lib .deps/sqlite .deps/data/digits .deps/taplo/bin .deps/trl/trl/chat_templates
          mkdir -p .deps/echarts .deps/wandb/wandb/proto && touch .deps/echarts/echarts.min.js
          touch .deps/site/torch/lib/libtorch_cpu.so .deps/sqlite/sqlite3.c .deps/data/shakespeare.txt .deps/taplo/bin/taplo
          mkdir -p .deps/arrow/include/parquet/arrow && touch .deps/arrow/include/parquet/arrow/reader.h
          mkdir -p .deps/xla/lib && touch .deps/xla/lib/libpjrt_cpu.so
          for pin in "$torch_pin" "${cuda_base_pins[@]}" "$sqlite_pin" "$shakespeare_pin" "$taplo_pin" "$trl_pin" "$arrow_pin" "$xla_pin" "$echarts_pin" "$wandb_pin" "${transformers_pins[@]}"; do
            echo "$pin" >".deps/.pins/${pin%% *}"
          done
          for pin in "${transformers_pins[@]}"; do mkdir -p ".deps/transformers/${pin%% *}"; done
          sed -n 's/^[a-z_]*packages_pin="\\(.*\\)".*/\\1/p' scripts/lib/packages.sh | while read -r name version; do
            echo "$name $version" >".deps/.pins/$name"
          done
          for pin in "${cuda_pins[@]}"; do echo "${pin% *}" >".deps/.pins/${pin%% *}"; done
          for pin in "${deb_pins[@]}" "$catch2_pin"; do
            read -r name version hash folder sign <<<"$pin"
            mkdir -p ".deps/${folder##*/}/usr"
            echo "$name $version $hash" >".deps/.pins/$name"
          done""")
        self.stubs = os.path.join(self.root, "stubs")

    def write(self, path, text, executable=False):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        if executable:
            os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)

    def run_in_bash(self, text):
        subprocess.run(["bash", "-ec", text], cwd=self.root, check=True, timeout=60)

    def stub(self, name, text):
        self.write(f"stubs/{name}", "#!/bin/sh\n" + text + "\n", executable=True)

    def call(self, *arguments, cwd=None, path=None, **variables):
        environment = {key: value for key, value in os.environ.items() if key not in ("RUNNER_LIBTORCH", "CUDA_HOME", "CXX")}
        environment |= {"PATH": path or f"{self.stubs}:{os.environ['PATH']}"} | variables
        return subprocess.run([os.path.join(self.root, arguments[0]), *arguments[1:]], cwd=cwd or self.root, env=environment, capture_output=True,
                              text=True, stdin=subprocess.DEVNULL, timeout=120)

    def result(self, done):
        return done.returncode, done.stdout, done.stderr

    def test_help_is_the_comment_at_the_head_of_the_script(self):
        for script in ("scripts/setup", "scripts/package", "scripts/nightly"):
            with open(os.path.join(ROOT, script), encoding="utf-8") as file:
                head = file.read().split("\nset -")[0].split("\n")[1:]
            self.assertEqual(self.result(self.call(script, "--help")), (0, "".join(re.sub("^# ?", "", line) + "\n" for line in head), ""))

    def test_ninja_can_say_that_nothing_is_to_do(self):
        # With file(GLOB ... CONFIGURE_DEPENDS), ninja looks for new files first, and its plan (ninja -n) ends there. So scripts/runner
        # would print that it builds before each command.
        names = subprocess.run(["git", "ls-files", "*CMakeLists.txt", "*.cmake"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
        self.assertGreater(len(names), 50)
        for name in names:
            with open(os.path.join(ROOT, name), encoding="utf-8") as file:
                self.assertNotRegex(file.read(), r"file\(GLOB\w* \w+ CONFIGURE_DEPENDS", name)

    # ---- scripts/bench/build
    def test_the_programs_of_benches_are_set_up_with_the_tests(self):
        self.write("scripts/setup", "#!/bin/sh\necho setup \"$@\"\n", executable=True)
        self.assertEqual(self.call("scripts/bench/build", "app").stdout, "setup --quiet\n")
        self.assertIn("unknown target", self.call("scripts/bench/build", "bench_x").stderr)
        self.assertEqual(self.call("scripts/bench/build", "bench_x").stdout, "setup --quiet --tests\n")

    # ---- scripts/setup
    def test_setup_does_nothing_if_everything_is_installed(self):
        for tool in ("apt-get", "dpkg", "python3", "pip", "cmake", "unzip"):
            self.stub(tool, "echo called >>$0.log; exit 99")
        self.assertEqual(self.result(self.call("scripts/setup")), (0, "", "scripts/setup: everything is installed\n"))
        self.assertEqual(self.result(self.call("scripts/setup", "--quiet")), (0, "", ""))
        self.assertFalse(os.path.exists(os.path.join(self.root, ".deps/.cuda")))
        self.assertEqual(self.result(self.call("scripts/setup", "--quiet", "--cuda", "--tests")), (0, "", ""))
        self.assertTrue(os.path.exists(os.path.join(self.root, ".deps/.cuda")))
        self.assertEqual([name for name in os.listdir(self.stubs) if name.endswith(".log")], [])

    def test_setup_downloads_removed_or_changed_pieces_again_and_reports_failures(self):
        self.write(".deps/python/bin/python", "#!/bin/sh\necho no network >&2\nexit 1\n", executable=True)
        message = ("scripts/setup: taplo (tests check the recipes' schema with it): 5 MB\nno network\n"
                   "scripts/setup: pip could not download taplo 0.9.3; see its output above (no network? wrong hash?)\n")
        os.remove(os.path.join(self.root, ".deps/taplo/bin/taplo"))
        self.assertEqual(self.result(self.call("scripts/setup", "--tests")), (4, "", message))
        self.write(".deps/taplo/bin/taplo", "")
        self.write(".deps/.pins/taplo", "taplo 0.9.2 0000\n")
        self.assertEqual(self.result(self.call("scripts/setup", "--tests")), (4, "", message))
        # Only the tests need it.
        self.assertEqual(self.result(self.call("scripts/setup")), (0, "", "scripts/setup: everything is installed\n"))

    def lack_packages(self, user):
        """Makes a PATH with everything that setup calls except mold and ccache. `user` is the id of the user."""
        os.remove(os.path.join(self.root, ".deps/.pins/packages"))
        for tool in ("bash", "awk", "cat", "cmake", "curl-config", "cut", "dirname", "env", "flock", "g++", "git", "gnuplot", "grep", "head", "mkdir", "mv",
                     "ninja", "pkg-config", "python3", "rm", "sed", "sort", "uname", "unzip", "apt-get"):
            self.stub(tool, f'exec {shutil.which(tool) or "/bin/false"} "$@"')
        self.stub("id", f"echo {user}")

    def be_another_system(self, identity, name, codename, packages="*"):
        """Makes a folder that replaces /. Its apt offers the given packages, and it contains all headers that setup installs with apt."""
        self.system = os.path.join(self.root, "system")
        self.write("system/etc/os-release", f'PRETTY_NAME="{name}"\nID={identity}\nVERSION_CODENAME={codename}\n')
        with open(os.path.join(self.root, "scripts/lib/packages.sh"), encoding="utf-8") as file:
            for header in re.findall(r"^\S+ +(include/\S+)", file.read(), re.MULTILINE):
                self.write(f"system/usr/{header}", "")
        self.stub("apt-cache", f"""case $2 in {packages}) printf '%s:\\n  Candidate: 1.0\\n' "$2" ;; esac""")
        # apt knows the system's own archive and another one. apt-helper finds Debian's packages only at the address in the file
        # `mirror`.
        self.stub("apt-get", f"""case $1 in
            install) echo "$*" >>{self.root}/installed ;;
            indextargets) printf 'http://127.0.0.1/ stable\\nhttp://localhost/{identity}/ {codename}\\n' ;;
            esac""")
        self.write("deb/DEBIAN/control", "Package: fake\nVersion: 1\nArchitecture: all\nMaintainer: none\nDescription: none\n")
        self.write("deb/usr/include/header.h", "")
        self.run_in_bash("dpkg-deb --build --root-owner-group deb fake.deb >/dev/null")
        self.write("mirror", "http://127.0.0.1/named")
        self.write("system/usr/lib/apt/apt-helper", f"""#!/bin/sh
            echo "$4 $6" >>{self.root}/asked
            case $4 in "$(cat {self.root}/mirror)"/*) exec cp {self.root}/fake.deb "$5" ;; esac
            echo "E: no $4"; exit 100""", executable=True)
        self.stub("id", "echo 0")

    def read(self, path):
        """The text of a file, "" if there is none. Removes the file."""
        path = os.path.join(self.root, path)
        if not os.path.exists(path):
            return ""
        with open(path, encoding="utf-8") as file:
            text = file.read()
        os.remove(path)
        return text

    def forget(self, *pieces):
        for piece in pieces:
            shutil.rmtree(os.path.join(self.root, ".deps", piece))

    def test_setup_names_packages_that_a_system_does_not_have(self):
        self.lack_packages(user=0)
        self.be_another_system("debian", "Debian GNU/Linux 11 (bullseye)", "bullseye", packages="[!m]*")
        done = self.call("scripts/setup", path=self.stubs, RUNNER_SYSTEM=self.system)
        self.assertEqual(self.result(done), (4, "",
            "scripts/setup: installing Debian packages: ccache (builds again in seconds), mold (links ten times faster)\n"
            "scripts/setup: Debian GNU/Linux 11 (bullseye) does not have these packages: mold (links ten times faster). "
            "Debian 12, Ubuntu 22.04 and later versions have them\n"))
        self.assertEqual(self.read("installed"), "")

    def test_setup_installs_another_compiler_where_the_systems_is_too_old(self):
        self.lack_packages(user=0)
        self.be_another_system("ubuntu", "Ubuntu 22.04.5 LTS", "jammy")
        self.stub("g++", "echo 11")
        self.assertEqual(self.call("scripts/setup", path=self.stubs, RUNNER_SYSTEM=self.system).returncode, 0)
        self.assertEqual(self.read("installed"), "install -y --no-install-recommends ccache mold\ninstall -y --no-install-recommends g++-12\n")

    def test_setup_unpacks_debians_packages_where_a_system_lacks_them(self):
        self.be_another_system("ubuntu", "Ubuntu 22.04.5 LTS", "jammy")
        self.write("system/usr/include/catch2/catch.hpp", "")  # Catch2 2
        self.forget("tomlplusplus", "gloo", "catch2")
        says = "scripts/setup: {}, unpacked under .deps: this system has none, or an older one\n"
        toml, gloo, catch2 = "libtomlplusplus-dev 3.3.0+ds-1", "libgloo-dev 0.0~git20220518.5b14351-3", "libcatch2-dev 3.7.1-0.4~bpo12+1"
        self.assertEqual(self.result(self.call("scripts/setup", RUNNER_SYSTEM=self.system)), (4, "", says.format(toml) +
            "scripts/setup: Ubuntu 22.04.5 LTS has no libtomlplusplus-dev that is new enough.\n"
            "  Name a Debian mirror (RUNNER_DEBIAN_MIRROR=URL), or install it (/usr/include/toml++/toml.h, or "
            "/usr/local/include/toml++/toml.h), and run this again\n"))
        self.assertEqual(self.read("asked"), "")
        mirror = {"RUNNER_SYSTEM": self.system, "RUNNER_DEBIAN_MIRROR": "http://127.0.0.1/named/"}
        done = self.call("scripts/setup", **mirror)
        self.assertEqual(self.result(done), (0, "", says.format(toml) + says.format(gloo) + "scripts/setup: done\n"))
        self.assertRegex(self.read("asked"), "^http://127.0.0.1/named/pool/main/t/tomlplusplus/libtomlplusplus-dev_3.3.0[+]ds-1_amd64.deb SHA256:2779c"
                         ".*\nhttp://127.0.0.1/named/pool/main/g/gloo/libgloo-dev_0.0~git20220518.5b14351-3_amd64.deb SHA256:80529.*\n$")
        done = self.call("scripts/setup", "--tests", **mirror)  # only the tests need it
        self.assertEqual(self.result(done), (0, "", says.format(catch2) + "scripts/setup: done\n"))
        for piece in ("tomlplusplus", "gloo", "catch2"):
            self.assertTrue(os.path.exists(os.path.join(self.root, ".deps", piece, "usr/include/header.h")))
        self.assertEqual(self.call("scripts/setup", "--tests", RUNNER_SYSTEM=self.system).stderr, "scripts/setup: everything is installed\n")

    def test_setup_uses_the_systems_package_if_it_is_new_enough(self):
        self.be_another_system("debian", "Debian GNU/Linux 13 (trixie)", "trixie")
        self.write("system/usr/local/include/catch2/catch_all.hpp", "")
        self.forget("catch2")
        self.assertEqual(self.result(self.call("scripts/setup", "--tests", RUNNER_SYSTEM=self.system)), (0, "", "scripts/setup: done\n"))
        self.assertEqual(self.call("scripts/setup", "--tests", RUNNER_SYSTEM=self.system).stderr, "scripts/setup: everything is installed\n")
        self.assertEqual(self.read("asked"), "")
        # A later removal is detected. A Debian system's own mirror is tried first.
        shutil.rmtree(os.path.join(self.system, "usr/local"))
        self.write("mirror", "http://localhost/debian")
        self.assertIn("libcatch2-dev", self.call("scripts/setup", "--tests", RUNNER_SYSTEM=self.system).stderr)
        self.assertRegex(self.read("asked"), "^http://localhost/debian/pool/main/c/catch2/libcatch2-dev_.*\n$")

    def test_setup_reports_that_no_mirror_has_a_package(self):
        self.be_another_system("debian", "Debian GNU/Linux 12 (bookworm)", "bookworm")
        self.forget("gloo")
        self.write("mirror", "none")
        done = self.call("scripts/setup", RUNNER_SYSTEM=self.system, RUNNER_DEBIAN_MIRROR="http://127.0.0.1/named")
        self.assertEqual(done.returncode, 4)
        self.assertEqual(re.findall("E: no (.*)/pool", done.stderr), ["http://localhost/debian", "http://127.0.0.1/named"])
        self.assertTrue(done.stderr.endswith(
            "scripts/setup: no Debian mirror has libgloo-dev 0.0~git20220518.5b14351-3; see the output of apt above.\n"
            "  Name a Debian mirror (RUNNER_DEBIAN_MIRROR=URL), or install it (/usr/include/gloo/context.h, or "
            "/usr/local/include/gloo/context.h), and run this again\n"), done.stderr)

    def test_setup_on_another_architecture_uses_a_named_libtorch(self):
        self.stub("uname", "echo aarch64")
        self.write(".deps/python/bin/python", "#!/bin/sh\nexit 1\n", executable=True)
        os.remove(os.path.join(self.root, ".deps/.pins/shakespeare"))
        os.remove(os.path.join(self.root, ".deps/.pins/taplo"))
        self.assertEqual(self.result(self.call("scripts/setup")), (4, "",
            "scripts/setup: LibTorch's pinned wheel is for x86_64; this machine is aarch64. Name another LibTorch 2.11 with RUNNER_LIBTORCH\n"))
        self.write("other/lib/libtorch_cpu.so", "")
        self.write("other/include/torch/headeronly/version.h", "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n")
        other = os.path.join(self.root, "other")
        self.assertIn("Shakespeare's works", self.call("scripts/setup", RUNNER_LIBTORCH=other).stderr)
        self.run_in_bash("source scripts/lib/pins.sh; echo $shakespeare_pin >.deps/.pins/shakespeare")
        self.assertEqual(self.call("scripts/setup", RUNNER_LIBTORCH=other).returncode, 0)
        self.assertEqual(self.result(self.call("scripts/setup", "--tests", RUNNER_LIBTORCH=other)), (4, "",
            "scripts/setup: taplo (tests check the recipes' schema with it): 5 MB\n"
            "scripts/setup: the pinned wheel of taplo is for x86_64; this machine is aarch64\n"))

    def test_setup_without_root_prints_the_command_that_installs_missing_packages(self):
        self.lack_packages(user=1000)
        done = self.call("scripts/setup", path=self.stubs)
        self.assertEqual(self.result(done), (4, "",
            "scripts/setup: Debian packages are missing: ccache (builds again in seconds), mold (links ten times faster)\n"
            "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ccache mold\n"))

    def test_setup_continues_without_launchers_that_it_cannot_install(self):
        os.remove(os.path.join(self.root, ".deps/.pins/test_packages"))
        shutil.rmtree(os.path.join(self.root, ".deps/transformers"))
        with open(os.path.join(self.root, ".deps/.pins/packages"), encoding="utf-8") as file:
            pin = file.read()
        self.lack_packages(user=1000)
        self.write(".deps/.pins/packages", pin)
        self.write(".deps/python/bin/python", "#!/bin/sh\nexit 1\n", executable=True)
        done = self.call("scripts/setup", "--tests", path=self.stubs, RUNNER_SYSTEM=os.path.join(self.root, "system"))
        # Pieces that need no root are still downloaded (this fails here: there is no network).
        self.assertEqual(done.returncode, 4, done.stderr)
        self.assertRegex(done.stderr, "Debian packages are missing: openmpi-bin [(]Open MPI[)], mpich [(]MPICH[)], .*\n"
                         "  sudo apt-get update && sudo apt-get install -y --no-install-recommends openmpi-bin mpich .*\n"
                         "scripts/setup: continuing without them: the tests that need them will be skipped\n"
                         "scripts/setup: transformers.*\n.*pip could not download transformers")
        # Only the tests need them.
        self.assertEqual(self.result(self.call("scripts/setup", path=self.stubs)), (0, "", "scripts/setup: everything is installed\n"))

    def test_setup_checks_a_named_libtorch(self):
        header = "other/include/torch/headeronly/version.h"
        other = os.path.join(self.root, "other")
        done = self.call("scripts/setup", RUNNER_LIBTORCH=other)
        self.assertEqual(done.returncode, 4)
        self.assertIn(f"RUNNER_LIBTORCH={other} has no LibTorch 2.11", done.stderr)
        self.write("other/lib/libtorch_cpu.so", "")
        self.write(header, "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 10\n")
        done = self.call("scripts/setup", RUNNER_LIBTORCH=other)
        self.assertEqual(self.result(done), (4, "", f"scripts/setup: RUNNER_LIBTORCH={other} is LibTorch 2.10; this project needs 2.11\n"))
        self.write(header, "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 11\n")
        shutil.rmtree(os.path.join(self.root, ".deps/site"))  # then the wheels are not needed
        self.assertEqual(self.call("scripts/setup", RUNNER_LIBTORCH=other).returncode, 0)

    def test_setup_refuses_unknown_arguments(self):
        self.assertEqual(self.result(self.call("scripts/setup", "--gpu")), (2, "", "scripts/setup: unknown argument --gpu; see scripts/setup --help\n"))

    # ---- scripts/runner
    def test_runner_builds_at_first_use_and_then_only_runs(self):
        folder = os.path.join(self.root, "elsewhere")
        os.mkdir(folder)
        first = self.call("scripts/runner", "run", "a recipe.toml", cwd=folder)
        self.assertEqual((first.returncode, first.stdout), (7, f"version one, in {folder}, with run a recipe.toml\n"))
        self.assertIn("scripts/runner: configuring\nscripts/runner: building what changed\n", first.stderr)
        self.assertIn("[1 of 1, ", first.stderr)
        self.assertEqual(self.result(self.call("scripts/runner", "ls", cwd=folder)), (7, f"version one, in {folder}, with ls\n", ""))

    def test_runner_configures_again_once_after_setup_has_installed_the_libraries_for_gpus(self):
        self.write("CMakeLists.txt", CMAKELISTS + "add_custom_target(app_cuda DEPENDS app)\n")
        self.assertIn("configuring", self.call("scripts/runner").stderr)
        self.run_in_bash("sleep 0.01")
        for configures in (True, False):
            self.assertEqual(self.call("scripts/setup", "--cuda", "--quiet").returncode, 0)
            self.assertEqual("configuring" in self.call("scripts/runner").stderr, configures)

    def test_runner_builds_with_a_newer_compiler_where_gxx_is_too_old(self):
        self.stub("g++", "echo 11")
        self.write("CMakeLists.txt", CMAKELISTS + 'message(STATUS "built with <$ENV{CXX}>")')
        self.call("scripts/runner")
        self.assertIn("built with <g++-12>", self.read("build/configure.log"))

    def test_a_run_without_tests_fails(self):
        done = self.call("scripts/test")
        self.assertIn("No tests were found", done.stdout + done.stderr)
        self.assertNotEqual(done.returncode, 0)

    def test_a_skip_is_a_failure_in_ci_unless_a_gpu_is_missing(self):
        def tests_that_print(**outputs):
            text = CMAKELISTS.replace("LANGUAGES NONE)", "LANGUAGES NONE)\nenable_testing()").replace("(app ", "(all_of_it ALL ")
            for name, output in outputs.items():
                self.write(name, output)
                text += f"add_test(NAME {name} COMMAND sh -c \"cat ${{CMAKE_SOURCE_DIR}}/{name}; grep -q failed ${{CMAKE_SOURCE_DIR}}/{name} && exit 1; exit 4\")\n"
                text += f"set_tests_properties({name} PROPERTIES SKIP_RETURN_CODE 4)\n"
            self.write("CMakeLists.txt", text)

        def test(ci):
            done = self.call("scripts/test", CI=ci)
            return done.returncode, [line for line in done.stderr.splitlines() if line.startswith("skipped")]

        gpu = "../tests/x_test.cpp:7: SKIPPED:\nexplicitly with message:\n  no CUDA device here\n\n"
        tests_that_print(gpu=gpu)
        self.assertEqual(test("true"), (0, ["skipped: gpu: no CUDA device here"]))
        tests_that_print(gpu=gpu, launcher="../tests/x_test.cpp:9: SKIPPED:\nexplicitly with message:\n  torchrun is not installed\n\n", script="test_it ... skipped 'no curl'\n", silent="")
        skipped = ["gpu: no CUDA device here", "launcher: torchrun is not installed", "script: no curl", "silent: SKIP_RETURN_CODE=4"]
        self.assertEqual(test("false"), (0, [f"skipped: {line}" for line in skipped]))
        self.assertEqual(test("true"), (1, ["skipped: gpu: no CUDA device here"] + [f"skipped, which is a failure with CI=true: {line}" for line in skipped[1:]]))
        tests_that_print(bad="failed\n")
        self.assertEqual(test("true"), (8, []))

    def test_a_long_build_prints_its_estimated_time(self):
        text = CMAKELISTS
        for i in range(40):
            text += (f"add_custom_command(OUTPUT {i} COMMAND ${{CMAKE_COMMAND}} -E touch {i} COMMENT \"Building {i}\")\n"
                     f"add_custom_target(step_{i} DEPENDS {i})\nadd_dependencies(app step_{i})\n")
        self.write("CMakeLists.txt", text)
        self.stub("nproc", "echo 1")
        self.assertIn("building what changed: about 2 min on 1 core(s), less if the cache has the results\n", self.call("scripts/runner").stderr)

    # ---- scripts/nightly
    def test_nightly_runs_every_check_and_reports_failures(self):
        self.write("CMakeLists.txt", CMAKELISTS.replace("LANGUAGES NONE)", "LANGUAGES NONE)\nenable_testing()").replace("(app ", "(all_of_it ALL "))
        shutil.rmtree(os.path.join(self.root, "scripts/nightly.d"))
        self.write("scripts/nightly.d/good", "#!/bin/sh\npwd\n", executable=True)
        self.write("scripts/nightly.d/gpu", "#!/bin/sh\nexit 77\n", executable=True)
        self.write("scripts/nightly.d/notes", "not a program")
        done = self.call("scripts/nightly")
        table = [line.split() for line in done.stdout.splitlines()]
        self.assertEqual([(row[0], row[1], row[-1]) for row in table], [
            ("good", "passed", "build/nightly/good.log"), ("gpu", "skipped", "build/nightly/gpu.log")])
        self.assertEqual((done.returncode, self.read("build/nightly/good.log")), (0, self.root + "\n"))
        self.write("scripts/nightly.d/bad", "#!/bin/sh\nexit 3\n", executable=True)
        done = self.call("scripts/nightly", "bad", "good")
        self.assertEqual((done.returncode, [line[:37].strip().split(maxsplit=1) for line in done.stdout.splitlines()]),
                         (1, [["bad", "failed (3)"], ["good", "passed"]]))
        self.assertEqual(self.result(self.call("scripts/nightly", "best")), (2, "", "scripts/nightly: there is no check best; there are: bad good gpu\n"))

    def test_runner_rebuilds_what_changed(self):
        self.call("scripts/runner")
        self.write("program", "echo version two\n")
        again = self.call("scripts/runner")
        self.assertEqual((again.returncode, again.stdout), (0, "version two\n"))
        self.assertIn("building what changed", again.stderr)

    def test_two_runners_at_once_build_once(self):
        command = [os.path.join(self.root, "scripts/runner")]
        both = [subprocess.Popen(command, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
        outputs = [process.communicate(timeout=120) for process in both]
        self.assertEqual([process.returncode for process in both], [7, 7])
        self.assertEqual([out for out, _ in outputs], [f"version one, in {self.root}, with \n"] * 2)
        self.assertEqual(sum(err.count("building what changed") for _, err in outputs), 1)

    def test_runner_shows_the_errors_of_a_build_and_runs_nothing(self):
        os.remove(os.path.join(self.root, "program"))
        done = self.call("scripts/runner")
        self.assertEqual((done.returncode, done.stdout), (4, ""))
        self.assertIn("scripts/runner: the build failed; see the first error above\n", done.stderr)
        self.write("CMakeLists.txt", "message(FATAL_ERROR \"odd machine\")\n")
        shutil.rmtree(os.path.join(self.root, "build"))
        done = self.call("scripts/runner")
        self.assertEqual((done.returncode, done.stdout), (4, ""))
        self.assertIn("odd machine", done.stderr)


if __name__ == "__main__":
    unittest.main()
