"""Tests the tests: changes the program in every way that `insert.py` knows, and runs the tests that reach the change.

One build serves all mutants, and of each test it is known which mutants it reaches, so that a mutant takes seconds. A mutant
that no test notices is a survivor, which fails the run. Those that may survive are in `survivors.txt`, with the reason, and are
not run. A file without survivors is added to `confirmed.txt` with a hash of its content, and is run again only when that changes;
with `--changed`, only the functions that have changed since.

Usage, with the servers of `./test mutants`: run.py [--jobs N] [--sample N --seed S] [--tests N] [--again | --changed] PATH...
"""

import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading

import insert

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIRMED = ROOT / "tests" / "mutants" / "confirmed.txt"
WORK = ROOT / "target" / "mutants"
CHECKOUT = WORK / "checkout"
# Tests that start other programs than the server, that cannot reach what is mutated, or that break the program themselves.
IRRELEVANT = r"(dependencies|layers|monitoring|programs|sabotage|sql_queries|stack)::"
# Fewer schedules than in a run of the tests, since they run for each mutant: most violations show in the first ones.
VARIABLES = {"RUST_BACKTRACE": "0", "KEYWARD_SIMULATION_SCHEDULES": "300"}


def main():
    options = parse_arguments()
    copy_checkout(options.paths)
    mutants = insert_until_compiled(options.paths)
    binaries = build_tests()
    results = Results(WORK / f"{digest()}.jsonl")
    print(f"{len(mutants)} mutants", flush=True)
    tests = find_tests(binaries, results, options.jobs, [mutant["path"] for mutant in mutants])
    reasons = read_reasons()
    chosen = [number for number, mutant in enumerate(mutants) if mutant["name"] not in reasons]
    explained = len(mutants) - len(chosen)
    unexplained = collections.Counter(mutants[number]["path"] for number in chosen)
    if options.changed:
        changed = {path: list_changed_lines(path) for path in options.paths}
        chosen = [number for number in chosen if is_changed(mutants[number], changed)]
    if options.sample:
        chosen = sorted(random.Random(options.seed).sample(chosen, min(options.sample, len(mutants))))

    confirmed = Confirmed([mutants[number]["path"] for number in chosen], unexplained)
    if not options.sample:
        confirmed.confirm_where_none_is_left(options.paths)

    def run(number):
        key = f"mutant {mutants[number]['key']}"
        if results.get(key) is None:
            results.put(key, run_mutant(number, binaries, tests(number), options.tests))
        if results.get(key)["killed_by"] and not options.sample:
            confirmed.count_killed(mutants[number]["path"])

    each(options.jobs, run, chosen)
    survivors = [mutants[n] for n in chosen if not results.get(f"mutant {mutants[n]['key']}")["killed_by"]]
    return report(len(chosen), survivors, explained)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="./test mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="the number of tests that run at the same time")
    parser.add_argument("--sample", type=int, help="the number of mutants; default: all")
    parser.add_argument("--seed", type=int, default=1, help="determines the sample")
    parser.add_argument("--tests", type=int, default=100, help="the number of tests that are run for a mutant at most")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--again", action="store_true", help="also run files that are confirmed")
    which.add_argument("--changed", action="store_true", help="only functions that have changed since their file was confirmed")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file or directory whose code is mutated")
    options = parser.parse_args()
    files = [path for name in options.paths for path in list_rust_files(ROOT / name)]
    options.paths = [str(path.relative_to(ROOT)) for path in files]
    if not options.again:
        confirmed = read_confirmed()
        options.paths = [path for path in options.paths if confirmed.get(path, ("",))[0] != hash_of(path)]
    if not options.paths:
        print("every file is confirmed; --again runs them again")
        sys.exit(0)
    return options


def list_rust_files(path):
    """Returns a file, or the files of a directory except those that hold tests alone."""
    if path.is_file():
        return [path]
    files = sorted(path.rglob("*.rs"))
    if not files:
        sys.exit(f"{path} contains no Rust files")
    return [file for file in files if file.name != "tests.rs" and "tests" not in file.relative_to(path).parent.parts]


def copy_checkout(mutated):
    """Copies the project, except for the files that are mutated."""
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, check=True, capture_output=True)
    names = {name for name in names.stdout.decode().split("\0") if (ROOT / name).is_file()}
    for name in names - set(mutated) - {str(owner(path) / "Cargo.toml") for path in mutated}:
        write(name, (ROOT / name).read_bytes())
    for copy in CHECKOUT.rglob("*"):
        if copy.is_file() and str(copy.relative_to(CHECKOUT)) not in names:
            copy.unlink()


def write(name, content):
    """Writes a file of the copy unless it is equal, so that cargo builds only what has changed."""
    copy = CHECKOUT / name
    if not copy.exists() or copy.read_bytes() != content:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(content)
        if content.startswith(b"#!"):
            copy.chmod(0o755)


def insert_until_compiled(paths):
    """Inserts mutants, without those that do not compile. Returns the others."""
    for manifest in {owner(path) / "Cargo.toml" for path in paths}:
        text = (ROOT / manifest).read_text()
        switch = ROOT / "tests/mutants/switch"
        dependency = f'[dependencies]\nmutant_switch = {{ package = "mutant-switch", path = "{switch}" }}\n'
        write(manifest, text.replace("[dependencies]\n", dependency, 1).encode())
    known = WORK / "excluded.json"
    excluded = set(json.loads(known.read_text())) if known.exists() else set()
    while True:
        mutants = []
        for path in paths:
            code = insert.Source(path, (ROOT / path).read_bytes(), mutants, excluded).insert()
            write(path, code)
        command = ["cargo", "check", "--workspace", "--lib", "--keep-going", "--message-format=json"]
        errors = [
            message["message"] for message in cargo(command)
            if message["reason"] == "compiler-message" and message["message"]["level"] == "error"
        ]
        if not errors:
            return mutants
        found = {mutants[number]["key"] for error in errors for number in list_numbers(error)}
        if not found:
            sys.exit("the mutants do not compile:\n" + "\n".join(error["rendered"] for error in errors))
        excluded |= found
        known.write_text(json.dumps(sorted(excluded)))


def owner(path):
    """Returns the directory of the package of a file."""
    return next(parent for parent in pathlib.Path(path).parents if (ROOT / parent / "Cargo.toml").exists())


def cargo(command):
    """Runs a command of cargo in the checkout. Returns its messages."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(WORK / "target")}
    process = subprocess.run(command, cwd=CHECKOUT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return [json.loads(line) for line in process.stdout.splitlines() if line.startswith(b"{")]


def list_numbers(error):
    """Returns the mutants in the code that an error of the compiler names."""
    spans = sorted(error["spans"], key=lambda span: not span["is_primary"])
    for span in spans:
        lines = (CHECKOUT / span["file_name"]).read_text().split("\n")
        for line in lines[span["line_start"] - 1 : span["line_end"]]:
            calls = re.findall(r"mutant_switch::\w+\((\d+)(?:, (\d+), &)?", line)
            if calls:
                return [int(number) for call in calls for number in call if number]
    return []


def build_tests():
    """Returns the path and the directory of each test binary, by name."""
    targets = ["--lib", *(word for name in ("all", "processes", "simulation") for word in ("--test", name))]
    command = ["cargo", "test", "--workspace", *targets, "--no-run", "--message-format=json"]
    binaries = {}
    for message in cargo(command):
        if message["reason"] == "compiler-artifact" and message["executable"] and message["profile"]["test"]:
            binaries[message["target"]["name"]] = (message["executable"], pathlib.Path(message["manifest_path"]).parent)
    if "all" not in binaries:
        sys.exit("the tests do not compile with the mutants")
    return binaries


def digest():
    """Returns a hash of everything on which the results depend: of what is inserted, not of the program that does it."""
    content = hashlib.sha256()
    tools = CHECKOUT / "tests" / "mutants"
    files = (path for path in CHECKOUT.rglob("*") if path.is_file() and path.parent != tools)
    for path in sorted(path for path in files if path.name != "Cargo.lock"):
        content.update(f"{path}\0".encode() + path.read_bytes())
    return content.hexdigest()[:16]


class Results:
    """Results by key, in a file, so that an interrupted run can be continued."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        lines = path.read_text().splitlines() if path.exists() else []
        self.values = dict(json.loads(line) for line in lines)

    def get(self, key):
        return self.values.get(key)

    def put(self, key, value):
        with self.lock, self.path.open("a") as file:
            file.write(json.dumps([key, value]) + "\n")
            self.values[key] = value


class Confirmed:
    """Counts the mutants of each file, and records the files whose mutants were all killed. `paths` are the files of the mutants
    that are run; `recorded` counts the mutants of each file."""

    def __init__(self, paths, recorded):
        self.total, self.killed, self.lock = collections.Counter(paths), collections.Counter(), threading.Lock()
        self.recorded = recorded

    def count_killed(self, path):
        with self.lock:
            self.killed[path] += 1
            self.confirm_where_none_is_left([path])

    def confirm_where_none_is_left(self, paths):
        for path in paths:
            if self.killed[path] == self.total[path]:
                lines = {**read_confirmed(), path: (hash_of(path), str(self.recorded[path]))}
                header = "# Files whose mutants are all killed or explained: FILE, the beginning of its SHA-256, and the mutants killed\n"
                CONFIRMED.write_text(header + "".join(f"{' '.join((name, *lines[name]))}\n" for name in sorted(lines)))


def read_confirmed():
    """Returns the hash and the number of mutants of each confirmed file."""
    lines = CONFIRMED.read_text().splitlines() if CONFIRMED.exists() else []
    return {name: tuple(rest) for name, *rest in (line.split() for line in lines if not line.startswith("#"))}


def hash_of(path):
    return short_hash((ROOT / path).read_bytes())


def short_hash(content):
    return hashlib.sha256(content).hexdigest()[:16]


def list_changed_lines(path):
    """Returns the lines of a file that have changed since it was confirmed, or None if it was not."""
    confirmed = read_confirmed().get(path, ("",))[0]
    for commit in git("log", "--format=%H", "--", path).decode().split():
        if short_hash(git("show", f"{commit}:{path}")) == confirmed:
            diff = git("diff", "--unified=0", commit, "--", path).decode()
            hunks = re.findall(r"^@@ \S+ \+(\d+)(?:,(\d+))? @@", diff, re.MULTILINE)
            # Where lines were only deleted, the ones before and after.
            return {line for start, count in hunks for line in range(int(start), int(start) + max(int(count or 1), 2))}
    return None


def is_changed(mutant, changed):
    """Returns whether the function of a mutant has changed. `changed` are the changed lines of each file."""
    lines = changed[mutant["path"]]
    first, last = mutant["function_lines"]
    return lines is None or any(first <= line <= last for line in lines)


def git(*arguments):
    # A commit that deleted the file has no content to show.
    return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout


def each(jobs, function, items):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for _ in pool.map(function, items):
            pass


def find_tests(binaries, results, jobs, paths):
    """Runs each test alone. Returns a function that returns the tests that reach a mutant, in their order. `paths` are the
    files of the mutants."""
    tests = []
    for name, (program, directory) in binaries.items():
        listed = subprocess.run([program, "--list", "--format", "terse"], cwd=directory, capture_output=True, text=True)
        names = [line.removesuffix(": test") for line in listed.stdout.splitlines() if line.endswith(": test")]
        tests += [(name, test) for test in names if not re.match(IRRELEVANT, test)]

    def run(test):
        if results.get(f"test {test}") is None:
            with tempfile.NamedTemporaryFile("r") as log:
                failed = run_tests(binaries, test[0], [test[1]], {"MUTANT_LOG": log.name})
                numbers = sorted({int(number) for number in log.read().split()})
            if failed:
                print(f"{test[1]} fails without a mutant", file=sys.stderr)
            results.put(f"test {test}", {"reached": [] if failed else numbers})

    each(jobs, run, tests)
    reached = {test: results.get(f"test {test}")["reached"] for test in tests}
    reached_of_file = {test: collections.Counter(paths[number] for number in reached[test]) for test in tests}
    tests_of = collections.defaultdict(list)
    for test in sorted(tests, key=lambda test: len(reached[test])):
        for number in reached[test]:
            tests_of[number].append(test)

    def list_tests(number):
        """Returns at first the tests of libraries and the simulation; of the others, in turn, those that reach the fewest mutants
        at all, and those that reach the most of this file: they are about it."""
        def is_slow(test):
            return test[0] in ("all", "processes")

        slow = [test for test in tests_of[number] if is_slow(test)]
        about = sorted(slow, key=lambda test: -reached_of_file[test][paths[number]])
        in_turn = [test for pair in zip(slow, about) for test in pair]
        fast = sorted((test for test in tests_of[number] if not is_slow(test)), key=lambda test: test[0] == "simulation")
        return list(dict.fromkeys(fast + in_turn))

    return list_tests


def run_mutant(number, binaries, tests, tests_max):
    """Runs tests with a mutant, a few at first, those that start processes last, until one fails twice."""
    tests = sorted(tests[:tests_max], key=lambda test: test[0] == "processes")
    position = 0
    for size in (4, 12, 40, tests_max):
        chunk = tests[position : position + size]
        position += len(chunk)
        for binary in binaries:
            names = [test for name, test in chunk if name == binary]
            failed = names and run_tests(binaries, binary, names, {"MUTANT": str(number)})
            if failed and run_tests(binaries, binary, failed, {"MUTANT": str(number)}):
                return {"killed_by": failed[0]}
    return {"killed_by": None}


def run_tests(binaries, binary, names, variables):
    """Returns the tests that fail. If the process hangs or crashes, that is all of them."""
    program, directory = binaries[binary]
    environment = {**os.environ, **VARIABLES, **variables}
    command = [program, "--exact", "--test-threads", "4", *names]
    with subprocess.Popen(
        command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=60 + 10 * len(names))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return names
    failed = re.findall(r"^test (\S+) \.\.\. FAILED$", output, re.MULTILINE)
    return failed or (names if process.returncode else [])


def read_reasons():
    """Returns the names of the mutants that may survive, with the reasons."""
    lines = (ROOT / "tests/mutants/survivors.txt").read_text().splitlines()
    return dict(line.split(" | ", 1) for line in lines if line and not line.startswith("#"))


def report(total, survivors, explained):
    """Prints the survivors. Returns the exit code."""
    for mutant in survivors:
        print(f"{mutant['path']}:{mutant['line']}: {mutant['name'].partition(' ')[2]}")
    print(f"{total} mutants: {total - len(survivors)} killed, {len(survivors)} survived; {explained} others may survive for a reason")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
