"""Compares rendered texts and spans of generation blocks with jinja2 and transformers, for whole templates.

    check_templates.py PROGRAM COUNT FOLDER...    PROGRAM is render_lines; FOLDER holds *.jinja
"""
import glob
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from conversations import Maker  # noqa: E402
from oracle import compare, render  # noqa: E402


def main():
    program, count, folders = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    maker = Maker(1)
    conversations = [maker.variables() for _ in range(count)]
    paths = sorted(path for folder in folders for path in glob.glob(os.path.join(folder, "*.jinja")))
    wrong, total, failed = 0, 0, 0
    python = 0.0
    for path in paths:
        with open(path, encoding="utf-8", newline="") as file:
            source = file.read()
        tasks = [(source, variables) for variables in conversations]
        started = time.perf_counter()
        answers = [render(*task) for task in tasks]
        python += time.perf_counter() - started
        here = compare(program, tasks, answers, shown=1)
        failed += sum("error" in answer for answer in answers)
        total += len(tasks)
        wrong += here
        if here:
            print(f"==== {os.path.basename(path)}: {here} of {len(tasks)} differ\n")
    print(f"{len(paths)} templates, {total} texts, of which {failed} are errors; {wrong} differ; jinja2 took {python:.1f} s")
    return 1 if wrong or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
