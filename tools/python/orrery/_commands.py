"""The commands of the program as functions."""

import json
import os

from . import _orrery
from ._results import (
    Diagnostic,
    Error,
    Explanation,
    InfeasibleError,
    InputError,
    InternalError,
    Output,
    Plans,
    Summary,
    Table,
)

_ERRORS = {2: InputError, 3: InfeasibleError, 4: InternalError}


def _invoke(words, text="", stop=None):
    # Buffers of Python are the parent's alone; the child replaces its own outputs.
    ended = _orrery.invoke([_orrery.__file__, *words], text, stop)
    if ended is None:
        return None
    code, output, errors = ended
    return Output(code, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))


def _diagnostics(errors):
    found, rest = [], []
    for line in errors.splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            one = None
        if isinstance(one, dict) and "message" in one:
            found.append(Diagnostic(**one))
        elif line.strip():
            rest.append(line)
    return found or ([Diagnostic("\n".join(rest))] if rest else [])


def _call(words, text="", timeout=None, stop=None, fine=(0,)):
    """Runs a command line; raises what it fails with."""
    words = [words[0], "--output-format=json", "--progress=none", *words[1:]]
    if timeout is None:
        ended = _invoke(words, text, stop)
    else:
        import threading

        stop = stop or _orrery.Stop()
        timer = threading.Timer(timeout, stop.set)
        timer.daemon = True
        timer.start()
        try:
            ended = _invoke(words, text, stop)
        finally:
            timer.cancel()
    if ended is None:
        raise TimeoutError("the call was stopped" if timeout is None else f"the call took more than {timeout} s")
    if ended.code not in fine:
        raise _ERRORS.get(ended.code, Error)(ended.code, _diagnostics(ended.errors))
    return ended


def _scalar(value):
    return value if isinstance(value, str) else json.dumps(value)


def _options(options):
    words = []
    for name, value in options.items():
        option = "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, (list, tuple)):
            words += [f"{option}={_word(one)}" for one in value]
        else:
            words.append(f"{option}={_word(value)}")
    return words


def _word(value):
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _overrides(set):
    if set is None:
        return []
    pairs = [f"{key}={_scalar(value)}" for key, value in set.items()] if hasattr(set, "items") else list(set)
    return ["--set=" + pair for pair in pairs]


def _given(scenario):
    """The last words of a command line, and its standard input."""
    if isinstance(scenario, os.PathLike):
        return ["--", os.fspath(scenario)], ""
    if isinstance(scenario, str):
        return (["--", "-"], scenario) if "\n" in scenario else (["--", scenario], "")
    if isinstance(scenario, dict):
        return ["--", "-"], json.dumps(scenario, indent=1)
    raise TypeError(f"a scenario is a path, YAML text or a dict, not {type(scenario).__name__}")


def _scenario_call(command, scenario, set, options, timeout, stop=None, fine=(0,)):
    last, text = _given(scenario)
    return _call([command, *_overrides(set), *_options(options), *last], text, timeout, stop, fine)


def run(scenario, set=None, *, policies=None, timeout=None, **options):
    """Simulates a scenario; returns its Summary.

    set: overrides, {"plan.tensor": 4} or ["plan.tensor=4"]. policies: {"scheduler": ..., "router": ...,
    "autoscaler": ..., "admission": ...}, a class or an object of your own for each (see orrery.policy), which decides in this
    process in place of the scenario's. options: those of `orrery run`,
    such as seed=2, trace="timeline.json", report="report.html", requests="requests.csv", data="folder of presets". timeout: seconds.
    Raises Error. A scenario whose expectations fail is no error: see Summary.passed.
    """
    if policies:
        return _run_with(policies, scenario, set, timeout, options)
    return _run(scenario, set, timeout, None, options)


def _run_with(policies, scenario, set, timeout, options):
    import tempfile
    import threading

    from . import policy

    host = policy.Host(**policies)
    # What the scheduler is told beside, such as its token budget, stays.
    given = {"engine.router": json.dumps({"kind": "outside", "from": "socket"})} if "router" in policies else {}
    if "scheduler" in policies:
        given |= {"engine.scheduler.kind": "outside", "engine.scheduler.from": "socket"}
    given |= {f"policies.{kind}.from": "socket" for kind in ("autoscaler", "admission") if kind in policies}
    with tempfile.TemporaryDirectory(prefix="orrery-") as folder:
        path = os.path.join(folder, "clock")
        over = threading.Event()
        decider = threading.Thread(target=host.meet, args=(path, over), daemon=True)
        decider.start()
        try:
            words = {**options, "socket": path, "json": "-"}
            sets = [*_overrides(set), *(f"--set={key}={value}" for key, value in given.items())]
            last, text = _given(scenario)
            ended = _call(["serve-clock", *sets, *_options(words), *last], text, timeout, None, (0, 1))
        except Error as error:
            if host.failure is not None:
                raise error from host.failure
            raise
        finally:
            over.set()
            decider.join()
    return Summary(json.loads(ended.text))


def _run(scenario, set, timeout, stop, options):
    ended = _scenario_call("run", scenario, set, {**options, "json": "-"}, timeout, stop, fine=(0, 1))
    return Summary(json.loads(ended.text))


def run_many(scenarios, sets=None, *, jobs=None, errors="raise", timeout=None, **options):
    """Simulates many scenarios in processes beside each other; returns their summaries in order.

    scenarios: an iterable of scenarios, or one scenario with `sets`, an iterable of overrides. jobs: processes at a time, by
    default the cores of this process. errors: "raise" ends all at the first error; "return" puts it in the place of its
    summary. timeout: seconds for each.
    """
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

    if errors not in ("raise", "return"):
        raise ValueError(f"errors must be 'raise' or 'return', not {errors!r}")
    if sets is not None:
        work = [(scenarios, one) for one in sets]
    elif isinstance(scenarios, (str, dict, os.PathLike)):
        raise TypeError("run_many takes an iterable of scenarios, or one scenario with sets=")
    else:
        work = [(one, None) for one in scenarios]
    if jobs is None:
        jobs = len(os.sched_getaffinity(0))
    stop = _orrery.Stop()

    def one(scenario, overrides):
        try:
            # A stop of its own where it has a limit of its own: one late run ends no other.
            return _run(scenario, overrides, timeout, None if timeout is not None else stop, options)
        except (Error, TimeoutError) as error:
            if errors == "raise":
                raise
            return error

    pool = ThreadPoolExecutor(max(1, jobs))
    try:
        futures = [pool.submit(one, *each) for each in work]
        pending = futures
        while pending:
            # In pieces, so that Ctrl-C is seen.
            done, pending = wait(pending, timeout=0.05, return_when=FIRST_EXCEPTION)
            for future in done:
                if future.exception() is not None:
                    raise future.exception()
        return [future.result() for future in futures]
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def explain(scenario, set=None, *, timeout=None, **options):
    """Why a run takes as long as it does: critical path, bounds, what would help, sources. Returns an Explanation."""
    ended = _scenario_call("explain", scenario, set, {**options, "json": "-"}, timeout)
    return Explanation(json.loads(ended.text))


def plan(scenario, set=None, *, timeout=None, **options):
    """Searches for the best plans of a training or serving scenario. options: those of `orrery plan`, such as
    simulate=50, nodes="64,128", price=2.5. Returns Plans."""
    ended = _scenario_call("plan", scenario, set, {**options, "json": "-"}, timeout)
    return Plans(json.loads(ended.text))


def capacity(scenario, set=None, *, timeout=None, **options):
    """The highest request rate that a serving scenario sustains within its limits, as the dict of `orrery capacity
    --json`. options: such as percentile=99, attainment=0.9, seeds=5."""
    ended = _scenario_call("capacity", scenario, set, {**options, "json": "-"}, timeout)
    return json.loads(ended.text)


def recommend(scenario, set=None, *, timeout=None, **options):
    """The cheapest GPUs for the load of a serving scenario within limits, as the dict of `orrery recommend --json`.
    options: such as gpus="h100-sxm,b200-sxm", slo="ttft_p95=2s,tpot_p95=50ms", spare=1."""
    ended = _scenario_call("recommend", scenario, set, {**options, "json": "-"}, timeout)
    return json.loads(ended.text)


def sweep(sweep, db=None, *, set=None, timeout=None, **options):
    """Runs every point of a sweep (a path, YAML text or a dict) into a database; returns a Table with one row a point.

    db: the SQLite file to write; without it, one that goes with the call. options: such as jobs=2, resume=True.
    """
    if db is None:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="orrery-") as folder:
            return _sweep(sweep, os.path.join(folder, "results.sqlite"), set, timeout, options)
    return _sweep(sweep, _word(db), set, timeout, options)


def _sweep(sweep, db, set, timeout, options):
    _scenario_call("sweep", sweep, set, {**options, "db": db, "quiet": True}, timeout)
    return Table(json.loads(_call(["table", "--format=json", "--", db]).text))


def price(operation, *, timeout=None, **options):
    """Predicts one kernel or collective: orrery.price("gemm", m=4096, n=14336, k=4096, device="h100-sxm").

    Sizes of the operation and options of `orrery price` are both by name. Returns a dict with the seconds, their interval,
    what binds it and the source.
    """
    names = ("device", "node", "dtype", "kv_dtype", "kernels", "library", "data", "memory_limit")
    given = {name: value for name, value in options.items() if name in names}
    sizes = [f"{name}={_scalar(value)}" for name, value in options.items() if name not in names]
    return json.loads(_call(["price", *_options({**given, "json": "-"}), "--", operation, *sizes], "", timeout).text)[0]


def validate(suite=None, *, timeout=None, **options):
    """Compares predictions with measured runs. Returns an Output, whose text is the report and whose code is 1 when a score
    is worse than its limit."""
    return _call(["validate", *_options(options), *([] if suite is None else ["--", suite])], "", timeout, fine=(0, 1))


def problems(scenario, set=None):
    """What is wrong with a scenario, without running it: a list of Diagnostics, empty where it is valid."""
    try:
        _scenario_call("run", scenario, set, {"dry_run": True, "quiet": True}, None)
    except (InputError, InfeasibleError) as error:
        return error.diagnostics
    return []


def import_(format, file, output=None, *, timeout=None, **options):
    """Turns what another tool wrote into a scenario, a trace or another file of Orrery (`orrery list formats`).

    Returns the text; with `output` writes it there, and returns nothing. options: those of the format.
    """
    words = ["import", *_options({**options, "output": "-" if output is None else output, "quiet": True})]
    ended = _call([*words, "--", format, _word(file)], "", timeout)
    return ended.text if output is None else None


def init(kind, **facts):
    """A commented scenario from a few facts, as YAML text: orrery.init("training", gpus=512, device="h100-sxm",
    model="llama-3-70b")."""
    return _call(["init", *_options(facts), "--", kind]).text


def help(topic=None, key=None):
    """What a command, a kind of scenario, one of its keys, a metric or an error code means."""
    return _call(["help", "--", *[word for word in (topic, key) if word is not None]]).text


def command(*words, input=""):
    """Any command line of the program, as words; returns its Output, also where it fails."""
    return _invoke([_word(word) for word in words], input)
