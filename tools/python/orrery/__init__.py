"""Orrery: a discrete-event simulator of AI clusters.

    import orrery
    summary = orrery.run("scenario.yaml", set={"plan.tensor": 4})
    print(summary.value("iteration_time_s"))

A scenario is a path, YAML text (a string with a line break) or a dict with the same keys; files that a dict or a text names
are relative to the working directory. Every call runs in a child process: it holds no lock of Python, ends at once at Ctrl-C,
and a crash or lack of memory costs that call alone.

Stability: what `orrery.__all__` names keeps its name, arguments and meaning until version 2, as do the keys of results, which
are those of the program's JSON. New names, optional arguments and keys may be added. `command` reaches the whole command line.
Names with a leading underscore may change at any time.
"""

from ._commands import (
    capacity,
    command,
    explain,
    help,
    import_,
    init,
    plan,
    price,
    problems,
    recommend,
    run,
    run_many,
    sweep,
    validate,
)
from ._orrery import __version__
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

__all__ = [
    "Diagnostic",
    "Error",
    "Explanation",
    "InfeasibleError",
    "InputError",
    "InternalError",
    "Output",
    "Plans",
    "Summary",
    "Table",
    "__version__",
    "capacity",
    "command",
    "explain",
    "help",
    "import_",
    "init",
    "plan",
    "price",
    "problems",
    "recommend",
    "run",
    "run_many",
    "sweep",
    "validate",
]
