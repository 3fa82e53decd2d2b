"""Calls of programs whose last line of output is JSON."""
import json
import os
import subprocess
import sys


def call(command, folder):
    """The last line of the output, parsed. Ends this program if the command fails."""
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"scripts/bench/{os.path.basename(sys.argv[0])}: {' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])
