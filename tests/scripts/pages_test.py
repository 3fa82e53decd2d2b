"""The README and the pages next to the code: links are valid, the shown recipe is the shipped one, and all commands are listed."""
import os
import re
import subprocess
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RUNNER = ""


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def pages():
    found = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "*.md"], capture_output=True, text=True).stdout
    names = [name for name in found.split("\0") if name]
    return names or ["README.md"]


def links(page):
    """The files that a page links to. Code, where `[](` begins a function of C++, has no links."""
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.DOTALL | re.MULTILINE)
    return re.findall(r"\]\(([^)#:]+)\)", text)


def commands_in(table):
    """The commands in the first column of a Markdown table. `ls`, `show [RUN]` gives ls and show."""
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name.split()[0] for row in rows for name in re.findall(r"`([^`]+)`", row)}


class Pages(unittest.TestCase):
    def test_links_are_valid(self):
        for page in pages():
            for target in links(page):
                path = os.path.join(ROOT, os.path.dirname(page), target)
                self.assertTrue(os.path.exists(path), f"{page}: there is no {target}")

    def test_every_page_is_linked(self):
        linked = {"README.md"}
        for page in pages():
            linked |= {os.path.normpath(os.path.join(os.path.dirname(page), target)) for target in links(page)}
        self.assertEqual(set(pages()) - linked, set())

    def test_the_recipe_in_the_readme_is_the_shipped_one(self):
        block = re.search(r"```toml\n(.*?)```", read("README.md"), re.DOTALL)[1]
        self.assertEqual(block, read("recipes/llm_fsdp.toml"))

    def test_the_readme_lists_the_commands_of_the_program(self):
        section = read("README.md").split("## Commands")[1]
        help_text = subprocess.run([RUNNER, "--help"], capture_output=True, text=True).stdout
        listed = re.split(r"^Every day:\s*$", help_text, flags=re.MULTILINE)[1]
        verbs = set(re.findall(r"^  ([a-z]+) ", listed, re.MULTILINE))
        self.assertGreater(len(verbs), 10)
        self.assertEqual(commands_in(section), verbs)


if __name__ == "__main__":
    RUNNER = sys.argv.pop(1)
    unittest.main()
