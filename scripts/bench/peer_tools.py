"""What the peers of scripts/bench/compare have in common: their clock, their initial weights, and the line that they print."""
import json
import os
import time


def process_start():
    """The start time of this process from the kernel, which includes the interpreter and its imports."""
    with open("/proc/self/stat", encoding="utf-8") as file:
        ticks = int(file.read().rsplit(")", 1)[1].split()[19])
    with open("/proc/uptime", encoding="utf-8") as file:
        uptime = float(file.read().split()[0])
    return time.time() - (uptime - ticks / os.sysconf("SC_CLK_TCK"))


def peak_rss_mb():
    with open("/proc/self/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024


def mix(h):
    """A hash of 32 bits, also of an array of integers."""
    for _ in range(2):
        h = ((h ^ (h >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return h ^ (h >> 16)


def initial_values(places, key, to_float64):
    """Elements of the weight with this key, as numbers of float64. `places` are their places in the flattened weight."""
    return (to_float64(mix((places + mix(key + 1)) & 0xFFFFFFFF)) / 2**32 - 0.5) * (2 * 0.02 * 3**0.5)


class Meter:
    """Marks the start of each step. A step lasts until the next mark, so it includes the framework's overhead."""

    def __init__(self, start):
        self.start, self.marks, self.losses, self.first_step_s = start, [], [], None

    def begin(self):
        if len(self.marks) == 1:
            self.first_step_s = time.time() - self.start
        self.marks.append(time.perf_counter())

    def figures(self, tokens, warmup):
        """Of steps with so many tokens, without the first ones."""
        seconds = [end - begin for begin, end in zip(self.marks, self.marks[1:])][warmup:]
        return dict(tokens_per_s=round(tokens * len(seconds) / sum(seconds), 1), tokens_per_s_median=round(tokens / sorted(seconds)[len(seconds) // 2], 1),
                    time_to_first_step_s=round(self.first_step_s, 3))


def print_line(**fields):
    print(json.dumps(fields), flush=True)
