"""cmake --install: the installed programs work outside the repository, with schema, recipes and completion.

    install_test.py CMAKE BUILD_FOLDER
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPLO = os.path.join(ROOT, ".deps", "taplo", "bin", "taplo")
CMAKE, BUILD = sys.argv[1:3]


class Install(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="runner test ")  # a path with a space
        cls.prefix = os.path.join(cls.folder.name, "prefix")
        subprocess.run([CMAKE, "--install", BUILD, "--prefix", cls.prefix], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def installed(self, *parts):
        return os.path.join(self.prefix, *parts)

    def run_in(self, name, *words):
        folder = os.path.join(self.folder.name, name)
        os.makedirs(folder, exist_ok=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("RUNNER_")}
        return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)

    def runner(self, name, *words):
        return self.run_in(name, self.installed("bin", "runner"), *words)

    def test_run_paths_have_no_empty_entry(self):
        """It would mean the current folder."""
        files = [os.path.join(folder, name) for top in (BUILD, self.prefix) for folder, _, names in os.walk(top) for name in names
                 if name.endswith(".so") or os.path.basename(folder) == "bin"]
        listed = subprocess.run(["readelf", "--wide", "--dynamic", *files], capture_output=True, text=True, check=False).stdout
        paths = re.findall(r"^File: (.*)|\(R(?:UN)?PATH\).*\[(.*)\]$", listed, re.MULTILINE)
        self.assertIn(os.path.join(BUILD, "bin", "runner"), [file for file, _ in paths])
        for place, (file, path) in enumerate(paths):
            if not file:
                self.assertNotIn("", path.split(":"), [file for file, _ in paths[:place] if file][-1])

    def test_a_new_recipe_names_the_installed_schema_and_editors_check_it(self):
        self.assertEqual(self.runner("init", "init", "new.toml").returncode, 0)
        recipe = os.path.join(self.folder.name, "init", "new.toml")
        with open(recipe, encoding="utf-8") as file:
            text = file.read()
        schema = self.installed("share", "runner", "schemas", "recipe.schema.json")
        self.assertEqual(text.splitlines()[0], "#:schema file://" + schema.replace(" ", "%20"))
        moved = os.path.join(self.folder.name, "moved.toml")
        for content, expected in ((text, 0), (text.replace("n_layers", "n_layer"), 1)):
            with open(moved, "w", encoding="utf-8") as file:
                file.write(content)
            done = self.run_in("elsewhere", TAPLO, "check", "--no-auto-config", moved)
            self.assertEqual(int(done.returncode != 0), expected, done.stderr)

    def test_installed_recipes_are_read_and_name_the_installed_schema(self):
        for words in (("recipes", "llm_fsdp.toml"), ("recipes", "sweeps", "lr.toml"), ("recipes", "hooks", "README.md")):
            self.assertTrue(os.path.exists(self.installed("share", "runner", *words)), words)
        self.assertTrue(os.path.exists(self.installed("include", "runner", "plugin.hpp")))
        recipe = self.installed("share", "runner", "recipes", "llm_fsdp.toml")
        self.assertEqual(self.runner("print", "print", recipe).returncode, 0)
        with open(recipe, encoding="utf-8") as file:
            schema = file.readline().strip().removeprefix("#:schema ")
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(recipe), schema)))

    def test_installed_programs_train(self):
        folder = os.path.join(self.folder.name, "train")
        os.makedirs(folder)
        with open(os.path.join(folder, "data.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"line {number * number % 97}\n" for number in range(2000))
        self.assertEqual(self.runner("train", "init").returncode, 0)
        done = self.runner("train", "run", "recipe.toml", "--json", "--set", "model.n_layers=1", "model.dim=16", "model.n_heads=2",
                           "model.max_seq_len=16", "devices=1", "train.max_steps=2", "lr_scheduler.warmup_steps=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout.splitlines()[-1])["steps"], 2)

    def test_completion_is_where_shells_look_for_it(self):
        script = self.installed("share", "bash-completion", "completions", "runner")
        line = "runner metr"
        done = self.run_in("complete", "bash", "-c", f"""PATH='{self.installed("bin")}':$PATH; source '{script}'
            COMP_LINE='{line}' COMP_POINT={len(line)}; _runner; echo "${{COMPREPLY[@]}}" """)
        self.assertEqual(done.stdout, "metrics\n", done.stderr)
        for parts in (("zsh", "site-functions", "_runner"), ("fish", "vendor_completions.d", "runner.fish")):
            with open(self.installed("share", *parts), encoding="utf-8") as file:
                self.assertIn("__complete", file.read())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
