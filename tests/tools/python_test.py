"""Tests of the Python package, one at a time: python3 python_test.py NAME. Needs PYTHONPATH and ORRERY_PROGRAM."""

import faulthandler
import gc
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import typing

import orrery

SOURCES = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RING = {
    "orrery": 1,
    "kind": "collective",
    "cluster": {
        "nodes": 2,
        "node": "dgx-a100-80g",
        "fabric": {"kind": "leaf-spine", "nodes_per_leaf": 2, "link": "200 Gbps", "latency": "500 ns"},
    },
    "collective": {"op": "all-reduce", "algorithm": "ring", "size": "1 MiB"},
}
# Minutes of packets: no machine ends it before a test does.
SLOW = {
    **RING,
    "cluster": {**RING["cluster"], "nodes": 256},
    "network": {"fidelity": "packet"},
    "collective": {"op": "all-to-all", "algorithm": "direct", "size": "1 GiB"},
}


def raised(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"{kind.__name__} was not raised")


def scenario_forms():
    """A dict, a text and a path give the summary of the program, with overrides in either form."""
    by_dict = orrery.run(RING, set={"collective.size": "2 MiB", "network.fold": False})
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ring.json.yaml")
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(RING, stream, indent=1)
        overrides = ["collective.size=2 MiB", "network.fold=false"]
        by_path = orrery.run(path, set=overrides)
        with open(path, encoding="utf-8") as stream:
            by_text = orrery.run(stream.read(), overrides)
        words = [word for one in overrides for word in ("--set", one)]
        program = subprocess.run(
            [os.environ["ORRERY_PROGRAM"], "run", path, "--json", "-", *words], capture_output=True, check=True
        )
        assert json.loads(program.stdout) == by_path
    assert by_dict == by_text and by_dict.metrics == by_path.metrics
    assert by_dict.value("collective_time_s") > orrery.run(RING).value("collective_time_s") > 0
    assert "no metric 'mfu'" in str(raised(KeyError, lambda: by_dict.value("mfu")))
    raised(TypeError, lambda: orrery.run(7))


def own_policies():
    """Policies given as classes or objects decide for the run, which equals that with the built-in; their exceptions are its cause."""
    scenario = {
        "orrery": 1,
        "kind": "serving",
        "cluster": {"nodes": 1, "node": "dgx-h100"},
        "model": "llama-3-8b",
        "engine": {"replicas": 2, "scheduler": {"kind": "chunked-prefill", "token_budget": 512}, "kv": {"blocks": 300}},
        "requests": {"rate": 30, "count": 60, "sessions": 5, "prompt": 500, "output": 40},
    }

    class Mine:
        def __init__(self):
            self.plans = 0

        def plan(self, engine, plan):
            self.plans += 1
            assert engine.block_tokens == 16 and engine.token_budget == 512 and 0 <= engine.free_blocks <= engine.blocks == 300
            for one in engine.running:
                assert one.blocks * 16 >= one.computed and one.remaining >= 1
                plan.run(one.request, when_full="preempt")
            for one in engine.waiting[: engine.places]:
                plan.run(one.request)

    class RoundRobin:
        def __init__(self, parameters):
            self.next = -1

        def choose(self, replicas, request):
            self.next = (self.next + 1) % len(replicas)
            return self.next

    built_in = orrery.run(scenario)
    mine = Mine()
    assert orrery.run(scenario, policies={"scheduler": mine, "router": RoundRobin}).metrics == built_in.metrics
    assert mine.plans > 60
    assert orrery.run(scenario, policies={"scheduler": Mine}, timeout=60).metrics == built_in.metrics

    class Wrong:
        def plan(self, engine, plan):
            raise LookupError("no such thing")

    error = raised(orrery.InputError, lambda: orrery.run(scenario, policies={"scheduler": Wrong}))
    assert isinstance(error.__cause__, LookupError) and "no such thing" in str(error), error
    invalid = {**scenario, "engine": {"replicas": -1}}
    assert raised(orrery.InputError, lambda: orrery.run(invalid, policies={"scheduler": Mine})).__cause__ is None
    raised(TypeError, lambda: orrery.run(scenario, policies={"schedulers": Mine}))


def own_service_policies():
    """An autoscaler and an admission given as classes decide for the run; what they may not decide is an error with its time."""
    scenario = {
        "orrery": 1,
        "kind": "serving",
        "cluster": {"nodes": 1, "node": "dgx-h100"},
        "model": "llama-3-8b",
        "engine": {
            "replicas": 6,
            "router": "least-requests",
            "autoscale": {"target": 8, "least": 1, "interval": "1 s", "cooldown": "2 s"},
            "start": {"provision": "1 s"},
        },
        "requests": {"rate": 40, "count": 300, "arrivals": "gamma", "burstiness": 3, "prompt": 400, "output": 150},
    }

    class FollowQueue:
        def scale(self, pool):
            assert pool.interval == 1 and pool.most == 6 and pool.running + pool.starting <= 6
            return min(max(-(-pool.outstanding // int(pool.target)), pool.least), pool.most)

    class Some:
        def __init__(self):
            self.refused = 0

        def admits(self, replicas, request):
            taken = request.prompt < 300 or replicas[0].requests < 4
            self.refused += not taken
            return taken

    built_in = orrery.run(scenario)
    assert orrery.run(scenario, policies={"autoscaler": FollowQueue}).metrics == built_in.metrics
    some = Some()
    both = orrery.run(scenario, policies={"autoscaler": FollowQueue, "admission": some})
    assert some.refused > 0 and both.value("requests_refused") == some.refused
    assert f"{some.refused} requests were turned away by policies.admission" in both["notes"]

    class TooMany:
        def scale(self, pool):
            return 7

    error = raised(orrery.InputError, lambda: orrery.run(scenario, policies={"autoscaler": TooMany}))
    assert "it wants 7 replicas of pool 0, which has 1 to 6 (1 s)" in str(error), error

    class Broken:
        def admits(self, replicas, request):
            return replicas[9].requests < 4

    error = raised(orrery.InputError, lambda: orrery.run(scenario, policies={"admission": Broken}))
    assert isinstance(error.__cause__, IndexError), error.__cause__
    frames = traceback.extract_tb(error.__cause__.__traceback__)
    assert frames[-1].name == "admits" and frames[-1].filename == __file__


def errors():
    """Errors have their code, exit code and places; a failed expectation is no error."""
    error = raised(orrery.InputError, lambda: orrery.run("orrery: 1\nkind: colective\n"))
    assert isinstance(error, ValueError) and isinstance(error, orrery.Error)
    assert (error.code, error.exit_code) == ("E207", 2)
    first = error.diagnostics[0]
    assert (first.line, first.column, first.suggestion, first.code) == (2, 7, "collective", "E207")
    assert error.diagnostics[1].code == "E202" and "'cluster' is missing" in str(error)
    missing = raised(orrery.InputError, lambda: orrery.run("no-such-file.yaml"))
    assert missing.code == "E210" and missing.diagnostics[0].file == "no-such-file.yaml"
    infeasible = raised(orrery.InfeasibleError, lambda: orrery.run(RING, {"collective.ranks": 99}))
    assert (infeasible.code, infeasible.exit_code) == ("E303", 3)
    assert raised(orrery.InputError, lambda: orrery.run(RING, tensor=4)).code == "E214"
    assert [one.line for one in orrery.problems("orrery: 1\nkind: colective\n")] == [2, 1]
    assert orrery.problems(RING) == []
    unmet = orrery.run({**RING, "expect": {"collective_time_s": "< 1 ns"}})
    assert not unmet.passed and orrery.run(RING).passed
    late = raised(TimeoutError, lambda: orrery.run(SLOW, timeout=0.1))
    assert "more than 0.1 s" in str(late)


def other_commands():
    """Explanations, plans, prices, capacities, sweeps, imports and help come as the program gives them."""
    why = orrery.explain(RING)
    assert why.verdict and why["what_ifs"] and "<table>" in why._repr_html_()
    price = orrery.price("gemm", m=4096, n=14336, k=4096, device="h100-sxm")
    assert 5e-4 < price["seconds"] < 1e-3 and price["low"] < price["seconds"] < price["high"]
    plans = orrery.plan(os.path.join(SOURCES, "scenarios/training/gpt3-175b-1024xA100.yaml"), simulate=2)
    assert plans.best == plans.plans[0]["set"] and plans["feasible"] > 100 and "<table>" in plans._repr_html_()
    with tempfile.TemporaryDirectory() as folder:
        base = os.path.join(folder, "ring.yaml")
        with open(base, "w", encoding="utf-8") as stream:
            json.dump(RING, stream)
        sweep = {"orrery": 1, "kind": "sweep", "base": base, "axes": {"collective.size": ["1 MiB", "2 MiB", "4 MiB"]}}
        rows = orrery.sweep({**sweep, "keep": ["collective_time_s"]}, jobs=1)
        assert [row["collective.size"] for row in rows] == ["1 MiB", "2 MiB", "4 MiB"]
        assert rows[0]["collective_time_s"] == orrery.run(RING).value("collective_time_s")
        assert "collective_time_s" in rows.columns and "<table>" in rows._repr_html_()
    capacity = orrery.capacity(
        os.path.join(SOURCES, "scenarios/serving/llama-2-70b-conversations.yaml"),
        {"requests.count": 200},
        seeds=1,
        tolerance=0.2,
    )
    assert capacity["schema"].startswith("orrery-capacity")
    cheapest = orrery.recommend(
        os.path.join(SOURCES, "scenarios/serving/llama-2-70b-conversations.yaml"), {"requests.count": 200}, weights="bf16", pools="mixed"
    )
    assert cheapest["arrangements"][0]["gpus"] > 0
    text = orrery.init("training", gpus=512, device="h100-sxm", model="llama-3-70b")
    assert orrery.run(text).value("mfu") > 0.1
    assert "tensor-parallel" in orrery.help("training", "plan.tensor") and "orrery run" in orrery.help("run")
    output = orrery.command("list", "models", "--quiet")
    assert output.code == 0 and "llama-3-70b" in output.text.split()
    assert orrery.command("rum").code == 2 and "did you mean 'run'" in orrery.command("rum").errors
    goal = os.path.join(SOURCES, "tests/data/replay/pingpong.goal")
    text = orrery.import_("goal", goal)
    with tempfile.TemporaryDirectory() as folder:
        written = os.path.join(folder, "pingpong.replay")
        assert orrery.import_("goal", goal, written) is None
        with open(written, encoding="utf-8") as stream:
            assert stream.read() == text
    assert raised(orrery.InputError, lambda: orrery.import_("gaol", goal)).exit_code == 2


def many_runs():
    """Runs beside each other come back in order; an error ends all, or stands in its place."""
    sizes = [f"{2**i} KiB" for i in range(12)]
    results = orrery.run_many(RING, sets=[{"collective.size": size} for size in sizes], jobs=3)
    times = [one.value("collective_time_s") for one in results]
    assert times == sorted(times) and len(set(times)) == len(times)
    wrong = {**RING, "kind": "colective"}
    mixed = orrery.run_many([RING, wrong, RING], errors="return")
    assert isinstance(mixed[1], orrery.InputError) and mixed[0] == mixed[2] == orrery.run(RING)
    begin = time.monotonic()
    raised(orrery.InputError, lambda: orrery.run_many([SLOW, wrong], jobs=2))
    assert time.monotonic() - begin < 5
    raised(TypeError, lambda: orrery.run_many(RING))
    raised(ValueError, lambda: orrery.run_many([RING], errors="hide"))


def interrupts():
    """Ctrl-C ends a run, or many, within 100 ms, and leaves no process behind."""

    def seconds_until_back(call):
        sent = []

        def send():
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Timer(0.3, send).start()
        raised(KeyboardInterrupt, call)
        return time.monotonic() - sent[0]

    for call in (lambda: orrery.run(SLOW), lambda: orrery.run_many([SLOW] * 3, jobs=3)):
        assert min(seconds_until_back(call) for _ in range(3)) < 0.1
    raised(ChildProcessError, lambda: os.waitpid(-1, os.WNOHANG))


def other_threads():
    """Other threads of Python go on while a run is simulated."""
    counted = []
    done = threading.Event()

    def count():
        while not done.is_set():
            counted.append(time.monotonic())
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        begin = time.monotonic()
        raised(TimeoutError, lambda: orrery.run(SLOW, timeout=1))
        end = time.monotonic()
    finally:
        done.set()
        thread.join()
    assert sum(begin < at < end for at in counted) > 100


def memory():
    """A run that needs more than its memory limit is an error, and thousands of calls keep nothing."""
    call = lambda: orrery.run(SLOW, memory_limit="64 MiB", timeout=60)
    assert raised(orrery.InfeasibleError, call).code == "E301"
    open_files = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        orrery.command("list", "topics")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == open_files


def typed():
    """The stubs name all that the package has, and the typed dictionaries all sections and keys."""
    with open(os.path.join(os.path.dirname(orrery.__file__), "__init__.pyi"), encoding="utf-8") as stream:
        stub = stream.read()
    for name in orrery.__all__:
        assert re.search(rf"^(class|def) {name}\b|^{name}:", stub, re.MULTILINE), name
        assert hasattr(orrery, name)
    from orrery import scenarios

    with open(os.path.join(SOURCES, "schemas/scenario.json"), encoding="utf-8") as stream:
        schema = json.load(stream)
    for kind in schema["properties"]["kind"]["enum"]:
        keys = typing.get_type_hints(getattr(scenarios, kind.capitalize() + "Scenario"))
        assert set(keys) == set(schema["$defs"][kind]["properties"]), kind
    built = scenarios.CollectiveScenario(
        orrery=1,
        kind="collective",
        cluster=RING["cluster"],
        collective={"op": "all-reduce", "algorithm": "ring", "size": "1 MiB"},
    )
    assert orrery.run(built) == orrery.run(RING)


def frames():
    """Results become data frames where pandas is, and say what is missing where it is not; summaries are shown as HTML."""
    summary = orrery.run(RING)
    html = summary._repr_html_()
    assert "collective_time_s" in html and "<script" not in html
    hostile = orrery.Summary(summary, scenario="<script>alert(1)</script>")
    assert "<script" not in hostile._repr_html_()
    try:
        import pandas
    except ImportError:
        assert "pandas" in str(raised(ImportError, summary.frame))
        return
    assert summary.frame().loc["collective_time_s", "value"] == summary.value("collective_time_s")
    assert isinstance(orrery.Table([{"a": 1}]).frame(), pandas.DataFrame)


def import_time():
    """The package is there within 50 ms."""
    took = []
    for _ in range(5):
        ended = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", "import orrery"], capture_output=True, text=True, check=True
        )
        took.append(int(ended.stderr.splitlines()[-1].split("|")[1]))
    assert min(took) < 50_000, took


if __name__ == "__main__":
    faulthandler.dump_traceback_later(300, exit=True)  # a test that hangs says where
    globals()[sys.argv[1]]()
