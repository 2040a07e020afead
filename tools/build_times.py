"""What compiling costs by folder, from Ninja's log: `python tools/build_times.py [BUILD] [--files N]`.

The log holds when each step began and ended, of its last run. Steps run beside each other, so a step counts by the share of the machine that
it had: the sum over all steps is about the processor seconds of the whole build. What came from the compiler cache costs nearly nothing; a
build with CCACHE_RECACHE=1 shows the true costs."""
import argparse
import os
import pathlib
import re
import sys


def builds(log):
    """The steps of each build, as {output: (start, end)} in milliseconds since that build began. An output counts in the build that made it last."""
    lines = pathlib.Path(log).read_text().splitlines()
    if not lines or not re.fullmatch(r"# ninja log v[5-9]", lines[0]):
        raise ValueError(f"{log}: not a log of Ninja's; got {lines[0] if lines else 'nothing'}; expected '# ninja log v5' or later")
    made, last, commands = [], None, {}
    for line in lines[1:]:
        start, end, _, output, command = line.split("\t")
        if last is None or int(end) < last:  # steps are written as they end, so here another build begins
            made.append({})
            commands = {}
        last = int(end)
        if commands.setdefault((start, command), output) == output:  # one step may have several outputs
            for earlier in made:
                earlier.pop(output, None)
            made[-1][output] = (int(start), int(end))
    return [build for build in made if build]


def folder_of(output):
    """The folder of the sources that an object was made from, or what else the step was."""
    if not output.endswith(".o"):
        return "linking and the rest"
    path = re.sub(r"CMakeFiles/[^/]+\.dir/", "", output).replace("__/", "../")  # CMake writes .. as __
    parts = os.path.normpath(os.path.dirname(path)).split("/")
    if "site-packages" in parts:
        return "/".join(parts[parts.index("site-packages") + 1:])
    return "/".join(parts)


def seconds(build, cores):
    """{output: seconds of processor time}: at any moment the steps that run share the cores."""
    changes = {}
    for output, (start, end) in build.items():
        changes.setdefault(start, ([], []))[0].append(output)
        changes.setdefault(end, ([], []))[1].append(output)
    moments = sorted(changes)
    running, cost = set(), dict.fromkeys(build, 0.0)
    for now, then in zip(moments, moments[1:]):
        running.update(changes[now][0])
        running.difference_update(changes[now][1])
        for output in running:
            cost[output] += (then - now) / 1000 * min(1, cores / len(running))
    return cost


def report(log, cores, files):
    cost = {}
    for build in builds(log):
        cost.update(seconds(build, cores))
    folders = {}
    for output, s in cost.items():
        count, total = folders.get(folder_of(output), (0, 0))
        folders[folder_of(output)] = (count + 1, total + s)
    lines = [f"{'seconds':>9} {'steps':>6}  folder"]
    for folder, (count, total) in sorted(folders.items(), key=lambda f: -f[1][1]):
        lines.append(f"{total:9.1f} {count:6}  {folder}")
    lines.append(f"{sum(cost.values()):9.1f} {len(cost):6}  in all, on {cores} cores")
    if files:
        lines.append("")
        lines += [f"{s:9.1f}  {output}" for output, s in sorted(cost.items(), key=lambda c: -c[1])[:files]]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build/release", help="the build folder (default: build/release)")
    parser.add_argument("--files", type=int, default=10, metavar="N", help="the N costliest steps, too (default: 10)")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="of the machine that built (default: this one's)")
    arguments = parser.parse_args()
    try:
        print(report(pathlib.Path(arguments.build) / ".ninja_log", arguments.cores, arguments.files))
    except (OSError, ValueError) as e:
        sys.exit(f"build_times: {e}")


if __name__ == "__main__":
    main()
