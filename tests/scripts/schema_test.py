"""schemas/recipe.schema.json with taplo, the checker that editors use: shipped recipes pass, wrong ones are reported."""
import glob
import os
import subprocess
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TAPLO = os.path.join(ROOT, ".deps", "taplo", "bin", "taplo")
SCHEMA = os.path.join(ROOT, "schemas", "recipe.schema.json")
BAD = os.path.join(ROOT, "tests", "cases", "recipes", "bad")


def passes(recipe):
    return subprocess.run([TAPLO, "check", "--schema", "file://" + SCHEMA, recipe], capture_output=True, check=False).returncode == 0


class Schema(unittest.TestCase):
    def test_every_shipped_recipe_passes(self):
        recipes = glob.glob(os.path.join(ROOT, "recipes", "**", "*.toml"), recursive=True)
        self.assertGreaterEqual(len(recipes), 8)
        for recipe in recipes:
            self.assertTrue(passes(recipe), recipe)

    def test_every_shipped_recipe_names_the_schema(self):
        for recipe in glob.glob(os.path.join(ROOT, "recipes", "**", "*.toml"), recursive=True):
            with open(recipe, encoding="utf-8") as file:
                first = file.readline().strip()
            self.assertTrue(first.startswith("#:schema "), recipe)
            self.assertEqual(os.path.realpath(os.path.join(os.path.dirname(recipe), first[9:])), SCHEMA, recipe)

    def test_wrong_recipes_are_reported_if_a_schema_can_detect_them(self):
        """caught_by_schema.txt lists them; RUNNER_UPDATE_CASES=1 writes it. The other errors are contradictions, or depend on files."""
        listed = os.path.join(BAD, "caught_by_schema.txt")
        caught = sorted(os.path.basename(path) for path in glob.glob(os.path.join(BAD, "*.toml")) if not passes(path))
        if os.environ.get("RUNNER_UPDATE_CASES"):
            with open(listed, "w", encoding="utf-8") as file:
                file.write("\n".join(caught) + "\n")
        with open(listed, encoding="utf-8") as file:
            self.assertEqual(caught, file.read().split())


if __name__ == "__main__":
    unittest.main()
