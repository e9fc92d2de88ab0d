"""What calls return and raise."""


class Diagnostic:
    """One thing that is wrong, at a place a person can jump to."""

    __slots__ = ("code", "title", "message", "file", "line", "column", "suggestion")

    def __init__(self, message, code=None, title=None, file=None, line=None, column=None, suggestion=None):
        self.code = code
        self.title = title
        self.message = message
        self.file = file
        self.line = line
        self.column = column
        self.suggestion = suggestion

    def __str__(self):
        place = "" if self.file is None else self.file + ":"
        if self.line is not None:
            place += f"{self.line}:{self.column}:"
        code = "" if self.code is None else f" [{self.code}]"
        return f"{place} {self.message}{code}" if place else f"{self.message}{code}"

    def __repr__(self):
        return f"Diagnostic({str(self)!r})"


class Error(Exception):
    """A call that failed.

    code: that of the first diagnostic, such as "E204"; None where there is none.
    exit_code: what the program returns: 1 a check failed, 2 bad input, 3 infeasible, 4 internal error.
    diagnostics: all that is wrong with the input.
    """

    def __init__(self, exit_code, diagnostics):
        super().__init__("\n".join(str(one) for one in diagnostics) or f"exit code {exit_code}")
        self.exit_code = exit_code
        self.diagnostics = diagnostics
        self.code = diagnostics[0].code if diagnostics else None

    def __reduce__(self):  # exceptions cross processes
        return type(self), (self.exit_code, self.diagnostics)


class InputError(Error, ValueError):
    """Bad input (exit code 2)."""


class InfeasibleError(Error):
    """A valid scenario that cannot run: out of memory, no route, a plan that does not divide (exit code 3)."""


class InternalError(Error):
    """A bug of the simulator (exit code 4)."""


class Output:
    """What a command of the program wrote."""

    __slots__ = ("code", "text", "errors")

    def __init__(self, code, text, errors):
        self.code = code
        self.text = text
        self.errors = errors

    def __repr__(self):
        return f"Output(code={self.code}, text={self.text!r}, errors={self.errors!r})"


def _frame(rows, **options):
    try:
        import pandas
    except ImportError as missing:
        raise ImportError("data frames need pandas (python3-pandas), which nothing else here does") from missing
    return pandas.DataFrame(rows, **options)


def _escape(value):
    return str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _number(value):
    return f"{value:.6g}" if isinstance(value, float) else "" if value is None else str(value)


def _html_table(columns, rows, caption=""):
    head = "".join(f"<th>{_escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{_escape(_number(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    title = f"<caption>{_escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


class Table(list):
    """Rows, each a dict."""

    @property
    def columns(self):
        columns = {}
        for row in self:
            columns.update(dict.fromkeys(row))
        return list(columns)

    def frame(self):
        """As a pandas.DataFrame."""
        return _frame(list(self))

    def _repr_html_(self):
        most = 50
        columns = self.columns
        rows = [[row.get(column) for column in columns] for row in self[:most]]
        return _html_table(columns, rows, f"{len(self)} rows" if len(self) > most else "")


class Summary(dict):
    """The summary of a run: the dict of the program's JSON."""

    @property
    def metrics(self):
        """Every measured quantity by name, such as "mfu" or "ttft_s.p99": {value, unit, low, high}."""
        out = {}

        def add(name, value):
            if not isinstance(value, dict):
                return
            if "value" in value:
                out[name] = value
                return
            for part, inner in value.items():
                add(f"{name}.{part}" if name else part, inner)

        add("", self["metrics"])
        return out

    def value(self, name):
        """A metric's number, in its unit; None where nothing was measured."""
        metrics = self.metrics
        if name not in metrics:
            raise KeyError(f"no metric {name!r}; there are {', '.join(metrics)}")
        return metrics[name]["value"]

    @property
    def passed(self):
        """Whether every expectation of the scenario (expect:) is met."""
        return all(one["met"] for one in self.get("expectations", []))

    def frame(self):
        """The metrics as a pandas.DataFrame, one row each."""
        rows = [{"metric": name, **metric} for name, metric in self.metrics.items()]
        return _frame(rows, columns=["metric", "value", "unit", "low", "high"]).set_index("metric")

    def _repr_html_(self):
        rows = []
        for name, metric in self.metrics.items():
            if metric["value"] is not None:
                low, high = metric.get("low"), metric.get("high")
                interval = "" if low is None else f"{_number(low)} to {_number(high)}"
                rows.append([name, metric["value"], metric["unit"], interval])
        out = _html_table(["metric", "value", "unit", "90 % interval"], rows, self["scenario"])
        parts = self.get("breakdown") or {}
        whole = sum(parts.values())
        if whole > 0:
            shares = [[part, seconds, f"{100 * seconds / whole:.1f} %"] for part, seconds in parts.items()]
            out += _html_table(["part", "seconds", "share"], shares, "where the time goes")
        return out + "".join(f"<p>{_escape(note)}</p>" for note in self.get("notes") or [])


class Explanation(dict):
    """Why a run takes as long as it does: the dict of `orrery explain --json`."""

    @property
    def verdict(self):
        return self["verdict"]

    def frame(self):
        """What 10 % more of each resource would save, as a pandas.DataFrame."""
        return _frame(self["what_ifs"])

    def _repr_html_(self):
        rows = [[one["change"], one["saves_s"], f"{100 * one['saves_share']:+.2f} %"] for one in self["what_ifs"]]
        return f"<p>{_escape(self.verdict)}</p>" + _html_table(["10 % more", "saves, s", "of the time"], rows)


class Plans(dict):
    """What a search found: the dict of `orrery plan --json`, best plan first."""

    @property
    def plans(self):
        return Table(self["plans"])

    @property
    def best(self):
        """The overrides of the best plan, which `run` takes as `set`; None where no plan fits."""
        return self["plans"][0]["set"] if self["plans"] else None

    def frame(self):
        """One row a plan, its overrides as columns, as a pandas.DataFrame."""
        rows = []
        for plan in self["plans"]:
            row = dict(one.split("=", 1) for one in plan["set"])
            row.update((key, value) for key, value in plan.items() if key != "set")
            rows.append(row)
        return _frame(rows)

    def _repr_html_(self):
        rows = [{**plan, "set": " ".join(plan["set"])} for plan in self["plans"][:10]]
        return Table(rows)._repr_html_()
